"""The widths that every channel axis of a space may have."""

from __future__ import annotations

from functools import cache

import numpy as np

from vitruvius.arch import ImageSize, grids_of
from vitruvius.spaces import Space

Widths = tuple[int, ...]

_OF_BLOCK = ("qk", "v", "mlp", "heads")


class AxisWidths:
    """Widths by axis name, stage, and number of heads (where a copy is private to it)."""

    def __init__(self, space: Space, img_size: ImageSize) -> None:
        self._space, self._img_size = space, img_size
        self._choices = [space.stage_choices(s) for s in range(len(space.stages))]

    @cache  # noqa: B019 - lives and dies with its superformer
    def of(self, axis: str, stage: int, heads: int | None = None) -> Widths:
        """All widths of an axis, ascending; the last is the axis' length."""
        last = len(self._choices) - 1
        match axis:
            case "first" | "last" | "before" | "4 before" | "dim":
                where = {"first": 0, "last": last, "dim": stage}.get(axis, stage - 1)
                rows = self._space.layout.full_rows(where)
                values = self._space.stage_arrays(rows, where).dim
            case "qk_head" | "v_head":
                choices = self._choices[stage]
                values = choices[axis.removesuffix("_head")] // choices["heads"]
            case _:
                assert axis in _OF_BLOCK
                choices = self._choices[stage]
                values = choices[axis] if heads is None else choices[axis][choices["heads"] == heads]
        return tuple(np.unique(values).tolist())

    @cache  # noqa: B019
    def window(self, stage: int) -> tuple[int, int]:
        """The sides of a stage's largest window, which is no larger than the token grid."""
        most = int(self._choices[stage]["window"].max())
        space = self._space
        grids = [grids_of(space.family, patch, len(space.stages), self._img_size)[stage] for patch in space.patches()]
        return min(most, max(high for high, _ in grids)), min(most, max(wide for _, wide in grids))
