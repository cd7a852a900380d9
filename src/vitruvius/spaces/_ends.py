"""The widest and the narrowest network of a space whose stages must be able to follow each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitruvius.arch import refuse, width_follows
from vitruvius.arrays import IntArray
from vitruvius.spaces._layout import NET

if TYPE_CHECKING:
    from vitruvius.spaces._space import Space


def chained_end(space: Space, vector: IntArray, last: bool) -> IntArray:
    """The vector with other choices of whole stages: as wide in sum (or narrow) as widths that follow allow."""
    sign = 1 if last else -1
    found: list[tuple[int, IntArray]] = []
    for config in space.layout.combinations(NET):
        # By the last stage's width: the best sum of widths that leads to it, and its vector.
        chains: dict[int | None, tuple[int, IntArray]] = {None: (0, _with(space, vector, config))}
        for s in range(len(space.stages)):
            longer: dict[int | None, tuple[int, IntArray]] = {}
            for before, (total, start) in chains.items():
                for state in space.layout.combinations(s):
                    trial = _with(space, start, state)
                    dim = int(space.stage_arrays(trial[None], s).dim[0])
                    if before is not None and not width_follows(space.family, before, dim):
                        continue
                    if dim not in longer or sign * (total + dim) > sign * longer[dim][0]:
                        longer[dim] = (total + dim, trial)
            chains = longer
        found += chains.values()
    if not found:
        refuse(f"no stages of space {space.name!r} can follow each other", space.name, "widths that can")
    return max(found, key=lambda each: sign * each[0])[1]


def _with(space: Space, vector: IntArray, choices: dict[int, int]) -> IntArray:
    changed = vector.copy()
    for column, value in choices.items():
        if space.layout.genes[column].parameter != "patch":
            changed[column] = value
    return changed
