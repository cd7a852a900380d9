"""Swin, as S3 searches it: windows, every other one shifted, with a learned bias for each relative position."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitruvius.arch import Arch, Block, ImageSize, token_grids
from vitruvius.models._base import Backbone
from vitruvius.models.layers import (
    Attention,
    Axes,
    Downsample,
    Drops,
    Grid,
    StageBlocks,
    embedding,
    make_blocks,
    pair,
    to_tokens,
)


class WindowAttention(Attention):
    """Attention inside windows. A window larger than the grid shrinks to it, and then nothing shifts."""

    axes: ClassVar[Axes] = {**Attention.axes, "bias_table": ("offset", "heads")}

    def __init__(self, dim: int, block: Block, scale: float, drops: Drops, grid: Grid) -> None:
        super().__init__(dim, block, scale, drops)
        assert block.window is not None
        self.window = (min(block.window, grid[0]), min(block.window, grid[1]))
        shifts = block.mixer == "shifted"
        self.shift = tuple(block.window // 2 if shifts and side > block.window else 0 for side in grid)
        self.padded = tuple(-(-side // window) * window for side, window in zip(grid, self.window, strict=True))
        high, wide = self.window
        self.bias_table = nn.Parameter(torch.empty((2 * high - 1) * (2 * wide - 1), self.heads))
        embedding(self.bias_table)
        self.register_buffer("offsets", torch.from_numpy(_pairs(self.window)), persistent=False)
        mask = torch.from_numpy(_shift_mask(self.padded, self.window, self.shift)) if any(self.shift) else None
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x_BNC: Tensor, grid: Grid) -> Tensor:
        x_BHWC = x_BNC.unflatten(1, grid)
        if any(self.shift):
            x_BHWC = torch.roll(x_BHWC, (-self.shift[0], -self.shift[1]), (1, 2))
        x_BHWC = F.pad(x_BHWC, (0, 0, 0, self.padded[1] - grid[1], 0, self.padded[0] - grid[0]))
        high, wide = self.window
        windows = x_BHWC.unflatten(2, (-1, wide)).unflatten(1, (-1, high)).transpose(2, 3)
        x_BWNC = windows.flatten(3, 4).flatten(1, 2)
        # Windows are taken for heads, so that one bias serves every image of the batch without being copied.
        q, k, v = (self.split(linear(x_BWNC)).flatten(1, 2) for linear in (self.q, self.k, self.v))
        out_BWHND = self.attend(q, k, v, self._bias(x_BWNC.shape[1], q.dtype)).unflatten(1, (-1, self.heads))
        x_BWNC = self.merge(out_BWHND)
        tiles = (self.padded[0] // high, self.padded[1] // wide)
        x_BHWC = x_BWNC.unflatten(2, self.window).unflatten(1, tiles).transpose(2, 3).flatten(3, 4).flatten(1, 2)
        x_BHWC = x_BHWC[:, : grid[0], : grid[1]]
        if any(self.shift):
            x_BHWC = torch.roll(x_BHWC, self.shift, (1, 2))
        return x_BHWC.flatten(1, 2)

    def _bias(self, windows: int, dtype: torch.dtype) -> Tensor:
        """(1, windows * heads, N, N): the relative position bias, and the mask of what a shift brought together."""
        bias = self.bias_table[self.offsets].permute(2, 0, 1).unsqueeze(0)
        if self.mask is None:
            return bias.expand(windows, -1, -1, -1).flatten(0, 1).unsqueeze(0).to(dtype)
        return (bias + self.mask.to(bias.dtype).unsqueeze(1)).flatten(0, 1).unsqueeze(0).to(dtype)


def _pairs(window: Grid) -> np.ndarray:
    """(N, N): which row of the bias table belongs to each pair of a window's places."""
    high, wide = window
    y, x = (side.ravel() for side in np.meshgrid(np.arange(high), np.arange(wide), indexing="ij"))
    return (y[:, None] - y[None, :] + high - 1) * (2 * wide - 1) + x[:, None] - x[None, :] + wide - 1


def _shift_mask(padded: Grid, window: Grid, shift: Grid) -> np.ndarray:
    """(windows, N, N): minus infinity between places that are neighbours only because the map was rolled."""
    region = np.zeros(padded, dtype=np.int64)
    for axis in (0, 1):
        place = np.arange(padded[axis])
        part = (place >= padded[axis] - window[axis]).astype(int) + (place >= padded[axis] - shift[axis])
        region = region * 3 + (part[:, None] if axis == 0 else part[None, :])
    tiles = region.reshape(padded[0] // window[0], window[0], padded[1] // window[1], window[1])
    tiles = tiles.transpose(0, 2, 1, 3).reshape(-1, window[0] * window[1])
    return np.where(tiles[:, :, None] == tiles[:, None, :], np.float32(0), np.float32(-np.inf))


class PatchMerging(Downsample):
    """Four neighbouring tokens become one."""

    axes: ClassVar[Axes] = {**pair("norm", "4 before"), "reduction.weight": ("dim", "4 before")}

    def __init__(self, before: int, after: int, eps: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * before, eps=eps)
        self.reduction = nn.Linear(4 * before, after, bias=False)

    def forward(self, x_BNC: Tensor, grid: Grid) -> tuple[Tensor, Grid]:
        x_BHWC = F.pad(x_BNC.unflatten(1, grid), (0, 0, 0, grid[1] % 2, 0, grid[0] % 2))
        grid = ((grid[0] + 1) // 2, (grid[1] + 1) // 2)
        # In a group of four the second row comes before the second column, as in the published weights.
        quads = x_BHWC.unflatten(2, (-1, 2)).unflatten(1, (-1, 2)).permute(0, 1, 3, 4, 2, 5)
        return self.reduction(self.norm(quads.flatten(3).flatten(1, 2))), grid


class Swin(Backbone):
    def __init__(self, arch: Arch, num_classes: int, img_size: ImageSize, in_chans: int, drops: Drops) -> None:
        stages = []
        for index, grid in enumerate(token_grids(arch, img_size)):

            def attention(dim: int, block: Block, scale: float, drops: Drops, grid: Grid = grid) -> Attention:
                return WindowAttention(dim, block, scale, drops, grid)

            before = arch.stages[index - 1].dim
            merging = PatchMerging(before, arch.stages[index].dim, arch.norm_eps) if index else None
            stages.append(StageBlocks(make_blocks(arch, index, drops, attention), merging, None))
        super().__init__(arch, stages, num_classes, img_size, in_chans, drops)
        self.patch_embed = nn.Conv2d(in_chans, arch.stages[0].dim, arch.patch.size, arch.patch.stride)
        self.patch_norm = nn.LayerNorm(arch.stages[0].dim, eps=arch.norm_eps)

    def embed(self, x_BCHW: Tensor) -> Tensor:
        return self.patch_norm(to_tokens(self.patch_embed(x_BCHW)))
