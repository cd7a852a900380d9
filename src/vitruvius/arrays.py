"""Thousands of architectures as NumPy arrays: what the closed-form costs read.

A `StageArrays` holds one stage of n architectures side by side, its blocks padded to the longest; `ArchArrays` holds
the stages of architectures that agree in everything that is not a width, a depth or a patch size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from vitruvius.arch import Arch, Patch

__all__ = ["MIXERS", "ArchArrays", "IntArray", "StageArrays", "arrays_of"]

IntArray: TypeAlias = NDArray[np.int64]
MIXERS = ("global", "window", "shifted", "local", "subsampled")
"""A mixer's code in the arrays is its place here."""


@dataclass(frozen=True, slots=True)
class StageArrays:
    dim: IntArray
    """(n,)"""
    active: NDArray[np.bool_]
    """(n, L): which of the padded blocks exist. The other (n, L) arrays are arbitrary, but positive, elsewhere."""
    mixer: IntArray
    heads: IntArray
    qk: IntArray
    v: IntArray
    mlp: IntArray
    window: IntArray
    """1 where the block has none."""
    reduction: IntArray
    """1 where the block has none."""


@dataclass(frozen=True, slots=True)
class ArchArrays:
    family: str
    class_token: bool
    positions: str
    patches: tuple[Patch, ...]
    patch: IntArray
    """(n,): which of `patches`."""
    stages: tuple[StageArrays, ...]


def arrays_of(archs: Sequence[Arch]) -> ArchArrays:
    """The arrays of architectures of one kind (same family, class token, positions and number of stages)."""
    first = archs[0]
    patches = tuple(dict.fromkeys(arch.patch for arch in archs))
    return ArchArrays(
        family=first.family,
        class_token=first.class_token,
        positions=first.positions,
        patches=patches,
        patch=np.array([patches.index(arch.patch) for arch in archs], dtype=np.int64),
        stages=tuple(_stage_arrays(archs, i) for i in range(len(first.stages))),
    )


def _stage_arrays(archs: Sequence[Arch], index: int) -> StageArrays:
    stages = [arch.stages[index] for arch in archs]
    longest = max(len(stage.blocks) for stage in stages)

    def column(name: str) -> IntArray:
        values = np.ones((len(stages), longest), dtype=np.int64)
        for row, stage in enumerate(stages):
            for place, block in enumerate(stage.blocks):
                value = MIXERS.index(block.mixer) if name == "mixer" else getattr(block, name)
                values[row, place] = 1 if value is None else value
        return values

    depth = np.array([len(stage.blocks) for stage in stages])
    return StageArrays(
        dim=np.array([stage.dim for stage in stages], dtype=np.int64),
        active=np.arange(longest)[None, :] < depth[:, None],
        **{name: column(name) for name in ("mixer", "heads", "qk", "v", "mlp", "window", "reduction")},
    )
