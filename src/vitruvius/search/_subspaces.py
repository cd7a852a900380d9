"""The subspaces {α_i = v} of a space: its ordered dimensions, and random architectures that tell about all of them.

Eq. 6 of S3 writes a space as the product of one set of choices for every dimension and stage, though the blocks of a
stage need not be alike (Section 2.2). An architecture has a value v in a dimension of blocks where all the stage's
blocks have it. Of blocks drawn one by one hardly any stage is such; so, unless it is told otherwise, what is drawn here
has stages of like blocks: the product of Eq. 6 itself, of which one sample tells about all of the dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from vitruvius.arch import Arch, grids_of, refuse
from vitruvius.arrays import IntArray
from vitruvius.search._domain import Domain
from vitruvius.spaces import Space, StageSpace

__all__ = ["Dimension", "Sample", "chosen", "dimensions_of", "draw", "draw_sample"]

_NET = -1
_UNMOVED = ("patch", "mixer")
"""Images are cut into few sizes of patches, and mixers have no order."""
_MOST_DRAWS = 2**19
_MOST_WIDENING = 2**16
"""Draws by rejection for a whole sample, and for one subspace, of which there are many, some of them empty."""
_BATCH = 4096
_ROUNDS = 64


@dataclass(frozen=True, slots=True)
class Dimension:
    """A dimension in whose choices there is an order."""

    name: str
    """As the space has it: "stage1.qkv"."""
    choices: tuple[float, ...]
    """Where layers may be skipped one by one, the numbers of blocks are the choices of depth."""
    positions: tuple[float, ...]
    """What the choices come to: a window beyond the token grid is the grid's."""

    @property
    def parameter(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def stage(self) -> int:
        """-1 where it is chosen once for the network."""
        return int(self.name.partition(".")[0][5:]) - 1 if "." in self.name else _NET


def dimensions_of(space: Space, img_size: int | tuple[int, int] | None = None) -> tuple[Dimension, ...]:
    """Every ordered dimension with a choice."""
    found = []
    for name, stated in space.dimensions.items():
        dimension = Dimension(name, stated, stated)
        choices = _block_counts(space.stages[dimension.stage]) if dimension.parameter == "depth" else stated
        if len(choices) < 2 or dimension.parameter in _UNMOVED:
            continue
        positions = choices
        if dimension.parameter == "window" and dimension.stage != _NET:
            side = largest_side(space, dimension.stage, img_size)
            positions = tuple(min(choice, side) for choice in choices)
        found.append(Dimension(name, choices, positions))
    return tuple(found)


def _block_counts(stage: StageSpace) -> tuple[int, ...]:
    if stage.identity == "shifted":
        return stage.depth
    return tuple(range(stage.layers - len(stage.skips), stage.layers + 1))


def largest_side(space: Space, stage: int, img_size: int | tuple[int, int] | None = None) -> int:
    """Of a stage's token grid."""
    size = space.img_size if img_size is None else img_size
    grids = (grids_of(space.family, patch, len(space.stages), size)[stage] for patch in space.patches())
    return max(max(grid) for grid in grids)


def chosen(space: Space, dimension: Dimension, vectors: IntArray) -> IntArray:
    """(n,): the index of each architecture's choice; -1 where a stage's blocks differ, or there are none."""
    layout, s, name = space.layout, dimension.stage, dimension.parameter
    if name == "depth" and space.stages[s].identity == "anywhere":
        return np.asarray(layout.active(vectors, s).sum(axis=1) - int(dimension.choices[0]))
    columns = _columns(space, dimension)
    if s == _NET or name not in space.stages[s].block:
        return vectors[:, columns[0]]
    values, active = vectors[:, columns], layout.active(vectors, s)
    low = np.where(active, values, np.iinfo(np.int64).max).min(axis=1)
    high = np.where(active, values, -1).max(axis=1)
    return np.where(low == high, high, -1)


def _columns(space: Space, dimension: Dimension) -> list[int]:
    """Of the vectors: one, or one a layer."""
    s, name, column = dimension.stage, dimension.parameter, space.layout.column
    if s != _NET and name in space.stages[s].block:
        return [cast("int", column(name, s, layer)) for layer in range(space.stages[s].layers)]
    return [cast("int", column(name, s))]


# -- drawing -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """Architectures to be scored: `drawn` at random, and after them those that widen thin subspaces."""

    space: Space
    archs: tuple[Arch, ...]
    vectors: IntArray
    drawn: int
    widening: tuple[tuple[str, int], ...]
    """Of each architecture beyond the drawn ones, the dimension and the choice that it was drawn for."""
    alike: bool

    def members(self, dimension: Dimension, choice: int) -> IntArray:
        """The places of a subspace's architectures. What was drawn for another subspace is no random sample of this."""
        told = self.alike or not _of_blocks(self.space, dimension)
        inside: Iterable[int] = ()
        if told:
            inside = np.flatnonzero(chosen(self.space, dimension, self.vectors[: self.drawn]) == choice).tolist()
        own = [self.drawn + i for i, owner in enumerate(self.widening) if owner == (dimension.name, choice)]
        return np.array([*inside, *own], dtype=np.int64)


def draw_sample(domain: Domain, seed: int, n: int, least: int, alike: bool = True) -> Sample:
    """n random architectures, and for every subspace that has fewer than `least` of them as many as it lacks.

    Where blocks are drawn one by one (`alike` false), the subspaces of blocks' dimensions get all theirs so.
    """
    space = domain.space
    base = draw(domain, np.random.default_rng((seed, 0)), n, alike=alike)
    if len(base) < n:
        refuse(
            f"found {len(base)} of {n} networks of space {space.name!r} with like blocks in a stage within the budget",
            str(domain.budget),
            "another budget, or blocks drawn one by one (blocks: free)",
        )
    parts, owners = [base], []
    for place, dimension in enumerate(dimensions_of(space, domain.counting["img_size"])):
        told = alike or not _of_blocks(space, dimension)
        of = chosen(space, dimension, base)
        for choice in range(len(dimension.choices)):
            missing = least - (int((of == choice).sum()) if told else 0)
            if missing > 0:
                rng = np.random.default_rng((seed, 1, place, choice))
                parts.append(draw(domain, rng, missing, (dimension, choice), alike))
                owners += [(dimension.name, choice)] * len(parts[-1])
    vectors = np.concatenate(parts)
    return Sample(space, tuple(space.decode_many(vectors)), vectors, n, tuple(owners), alike)


def _of_blocks(space: Space, dimension: Dimension) -> bool:
    return dimension.stage != _NET and dimension.parameter in space.stages[dimension.stage].block


def draw(
    domain: Domain,
    rng: np.random.Generator,
    n: int,
    fixed: tuple[Dimension, int] | None = None,
    alike: bool = True,
) -> IntArray:
    """Up to n random architectures within the budget, with one choice fixed. Fewer where so many are not found."""
    kept: list[IntArray] = [domain.space.sample_vectors(rng, 0)]
    for _ in range(_ROUNDS):
        if (missing := n - sum(map(len, kept))) <= 0:
            break
        vectors = _draw(domain, rng, missing, fixed, alike)
        if not len(vectors):
            break
        if fixed:  # a stage without blocks has no choice in their dimensions
            vectors = vectors[chosen(domain.space, fixed[0], vectors) == fixed[1]]
        if domain.measured and len(vectors):
            vectors = vectors[domain.meets(domain.space.decode_many(vectors))]
        kept.append(vectors)
    return np.concatenate(kept)


def _draw(
    domain: Domain, rng: np.random.Generator, n: int, fixed: tuple[Dimension, int] | None, alike: bool
) -> IntArray:
    """By the budget's exact sampler where the subspace is a space that can be declared, else by rejection."""
    space = domain.space
    source = like_blocks(space) if alike else space
    if source is None or (fixed and _counts_blocks(space, fixed[0])):
        return _by_rejection(domain, rng, n, fixed, alike)
    try:
        if fixed:
            source = source.with_choices(fixed[0].name, (fixed[0].choices[fixed[1]],))
        counted = None if domain.budget is None else domain.budget.counted
        part = Domain(source, counted, identity=domain.identity, **domain.counting)
        return _translated(source, space, part.draw(rng, n), fixed)
    except ValueError:  # no stages can follow each other so, or none within the budget
        if fixed is None:
            raise
        return space.sample_vectors(rng, 0)


def like_blocks(space: Space) -> Space | None:
    """The space with the ordered choices of blocks made once a stage; None where a stage may be empty."""
    stages = []
    for stage in space.stages:
        moved = {name: choices for name, choices in stage.block.items() if name not in _UNMOVED}
        block = {name: choices for name, choices in stage.block.items() if name in _UNMOVED}
        stages.append(replace(stage, stage={**stage.stage, **moved}, block=block))
    try:
        return replace(space, stages=tuple(stages))
    except ValueError:
        return None


def _translated(source: Space, space: Space, vectors: IntArray, fixed: tuple[Dimension, int] | None) -> IntArray:
    """Vectors of a subspace, or of the space of like blocks, as those of the space itself."""
    found = np.zeros((len(vectors), len(space.layout.genes)), dtype=np.int64)
    for place, gene in enumerate(space.layout.genes):
        for layer in (gene.layer, _NET):
            if (column := source.layout.column(gene.parameter, gene.stage, layer)) is not None:
                found[:, place] = vectors[:, column]
                break
    if fixed:
        found[:, _columns(space, fixed[0])] = fixed[1]
    return space.layout.canonical(found)


def _counts_blocks(space: Space, dimension: Dimension) -> bool:
    return dimension.parameter == "depth" and space.stages[dimension.stage].identity == "anywhere"


def _by_rejection(
    domain: Domain, rng: np.random.Generator, n: int, fixed: tuple[Dimension, int] | None, alike: bool
) -> IntArray:
    space, kept, drawn = domain.space, [domain.space.sample_vectors(rng, 0)], 0
    most = _MOST_WIDENING if fixed else _MOST_DRAWS
    while (missing := n - sum(map(len, kept))) > 0 and drawn < most:
        vectors = rng.integers(0, space.layout.counts, size=(_BATCH, len(space.layout.genes)), dtype=np.int64)
        random = space.sample_vectors(rng, _BATCH, domain.identity)
        for place, gene in enumerate(space.layout.genes):
            if gene.parameter in ("depth", "on"):
                vectors[:, place] = random[:, place]
        if alike:
            _make_alike(space, vectors)
        if fixed:
            _fix(space, vectors, *fixed, rng)
        drawn += _BATCH
        vectors = space.layout.canonical(vectors)
        kept.append(vectors[domain.allows(vectors)][:missing])
    return np.concatenate(kept)


def _make_alike(space: Space, vectors: IntArray) -> None:
    for s, stage in enumerate(space.stages):
        for name, choices in stage.block.items():
            if name not in _UNMOVED and len(choices) > 1 and stage.layers:
                columns = [cast("int", space.layout.column(name, s, layer)) for layer in range(stage.layers)]
                vectors[:, columns] = vectors[:, columns[:1]]


def _fix(space: Space, vectors: IntArray, dimension: Dimension, choice: int, rng: np.random.Generator) -> None:
    if not _counts_blocks(space, dimension):
        vectors[:, _columns(space, dimension)] = choice
        return
    skips = space.stages[dimension.stage].skips
    columns = [cast("int", space.layout.column("on", dimension.stage, layer)) for layer in skips]
    vectors[:, columns] = rng.permuted(np.tile(np.arange(len(skips)) < choice, (len(vectors), 1)), axis=1)
