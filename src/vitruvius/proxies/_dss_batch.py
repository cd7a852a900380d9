"""Candidates side by side for the collapsed network: their widths as arrays, in groups that share a layer's slice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vitruvius.arch import Arch, ImageSize, Patch, token_grids
from vitruvius.arrays import IntArray, arrays_of

__all__ = ["Columns", "Group", "groups", "product", "tile_rows"]


@dataclass(frozen=True, slots=True)
class StageColumns:
    """One stage; blocks are packed to the left as the plain network numbers them."""

    dim: IntArray
    """(n,)"""
    depth: IntArray
    """(n,)"""
    heads: IntArray
    """(n, L), as the rest; arbitrary, but positive, behind a candidate's depth."""
    qk: IntArray
    v: IntArray
    mlp: IntArray

    def of(self, name: str) -> IntArray:
        found = getattr(self, name)
        assert isinstance(found, np.ndarray)
        return found


@dataclass(frozen=True, slots=True)
class Columns:
    """Architectures that differ in widths, depths and patches only."""

    first: Arch
    patches: tuple[Patch, ...]
    patch: IntArray
    """(n,): which of `patches`."""
    embed_scale: np.ndarray
    """(n,): whether logits are scaled by the width of the embedding (`Arch.attn_scale`)."""
    grids: tuple[tuple[tuple[int, int], ...], ...]
    """Of each patch, each stage's token grid."""
    stages: tuple[StageColumns, ...]

    @classmethod
    def of(cls, archs: Sequence[Arch], img_size: ImageSize) -> Columns:
        arrays = arrays_of(archs)
        stages = []
        for stage in arrays.stages:
            left = np.argsort(~stage.active, axis=1, kind="stable")
            packed = {
                name: np.take_along_axis(np.broadcast_to(getattr(stage, name), stage.active.shape), left, axis=1)
                for name in ("heads", "qk", "v", "mlp")
            }
            stages.append(StageColumns(dim=stage.dim, depth=stage.active.sum(axis=1), **packed))
        holders = [archs[int(np.flatnonzero(arrays.patch == p)[0])] for p in range(len(arrays.patches))]
        return cls(
            first=archs[0],
            patches=arrays.patches,
            patch=arrays.patch,
            embed_scale=np.array([arch.attn_scale == "embed" for arch in archs]),
            grids=tuple(tuple(token_grids(arch, img_size)) for arch in holders),
            stages=tuple(stages),
        )

    def __len__(self) -> int:
        return len(self.patch)


@dataclass(frozen=True, slots=True)
class Group:
    """Candidates that share a slice. The index is filled up to whole tiles by its first entry again."""

    key: tuple[int, ...]
    index: Tensor
    count: int
    """How many of the index are candidates of the group, the first ones."""

    @property
    def candidates(self) -> Tensor:
        return self.index[: self.count]

    def add(self, x: Tensor, change: Tensor) -> None:
        """Adds to what the candidates have in `x` (n, ...); of wider channels the first ones."""
        change = change[: self.count]
        if x.ndim == 1:
            x[self.candidates] += change
        else:
            x[self.candidates, :, : change.shape[-1]] += change


def groups(among: IntArray, keys: Sequence[IntArray], tile: int, device: torch.device) -> Iterator[Group]:
    """The candidates `among`, by equal keys (each as long as `among`); whole tiles of `tile` candidates."""
    table = np.stack(np.broadcast_arrays(*keys), axis=1)
    values, which = np.unique(table, axis=0, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(which.ravel(), minlength=len(values)))
    for key, start, end in zip(values.tolist(), [0, *ends[:-1]], ends, strict=True):
        members = among[order[start:end]]
        filled = np.full(-(-len(members) // tile) * tile, members[0])
        filled[: len(members)] = members
        yield Group(tuple(key), torch.from_numpy(filled).to(device), len(members))


def tile_rows(device: torch.device) -> int:
    """Rows of one matrix product. All have as many, so that what comes out for a row does not hang on what else is in
    the batch: a BLAS adds up in another order for another shape, but not for another place in it."""
    return 32 if device.type == "cpu" else 256


def product(x_BTK: Tensor, w_KN: Tensor) -> Tensor:
    """(B, T, N), tile by tile."""
    rows = x_BTK.reshape(-1, x_BTK.shape[-1])
    tile = tile_rows(rows.device)
    assert len(rows) % tile == 0
    out = rows.new_empty(len(rows), w_KN.shape[1])
    for start in range(0, len(rows), tile):
        torch.mm(rows[start : start + tile], w_KN, out=out[start : start + tile])
    return out.unflatten(0, x_BTK.shape[:2])
