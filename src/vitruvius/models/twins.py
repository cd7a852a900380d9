"""Twins, as ViTAS v2 searches it: local windows, sub-sampled global attention, positions from a convolution."""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from vitruvius.arch import Arch, Block, ImageSize
from vitruvius.models._base import Backbone
from vitruvius.models.layers import (
    Attention,
    Axes,
    Downsample,
    Drops,
    GlobalAttention,
    Grid,
    StageBlocks,
    make_blocks,
    pair,
    to_map,
    to_tokens,
)

_EPS = 1e-5
"""Of the norms outside the blocks, whatever the network's own epsilon (as published)."""


class LocalAttention(Attention):
    """Attention inside windows; a grid they do not tile is padded with zeros, which are attended to (as in Twins)."""

    def __init__(self, dim: int, block: Block, scale: float, drops: Drops) -> None:
        super().__init__(dim, block, scale, drops)
        assert block.window is not None
        self.window = block.window

    def forward(self, x_BNC: Tensor, grid: Grid) -> Tensor:
        w = self.window
        padded = (-(-grid[0] // w) * w, -(-grid[1] // w) * w)
        x_BHWC = F.pad(x_BNC.unflatten(1, grid), (0, 0, 0, padded[1] - grid[1], 0, padded[0] - grid[0]))
        x_BWNC = x_BHWC.unflatten(2, (-1, w)).unflatten(1, (-1, w)).transpose(2, 3).flatten(3, 4).flatten(1, 2)
        q, k, v = (self.split(linear(x_BWNC)).flatten(1, 2) for linear in (self.q, self.k, self.v))
        out_BWNC = self.merge(self.attend(q, k, v).unflatten(1, (-1, self.heads)))
        tiles = (padded[0] // w, padded[1] // w)
        x_BHWC = out_BWNC.unflatten(2, (w, w)).unflatten(1, tiles).transpose(2, 3).flatten(3, 4).flatten(1, 2)
        return x_BHWC[:, : grid[0], : grid[1]].flatten(1, 2)


class SubsampledAttention(Attention):
    """Every token attends to a coarser map of all tokens, made by a strided convolution."""

    axes: ClassVar[Axes] = {
        **Attention.axes,
        **pair("reduce", "dim", "dim", None, None),
        **pair("reduce_norm", "dim"),
    }
    follows: ClassVar[dict[str, str]] = dict.fromkeys(
        ("reduce.weight", "reduce.bias", "reduce_norm.weight", "reduce_norm.bias"), "reduction"
    )

    def __init__(self, dim: int, block: Block, scale: float, drops: Drops) -> None:
        super().__init__(dim, block, scale, drops)
        assert block.reduction is not None
        self.reduce = nn.Conv2d(dim, dim, block.reduction, block.reduction)
        self.reduce_norm = nn.LayerNorm(dim, eps=_EPS)

    def forward(self, x_BNC: Tensor, grid: Grid) -> Tensor:
        coarse_BMC = self.reduce_norm(to_tokens(self.reduce(to_map(x_BNC, grid))))
        q, k, v = self.split(self.q(x_BNC)), self.split(self.k(coarse_BMC)), self.split(self.v(coarse_BMC))
        return self.merge(self.attend(q, k, v))


class PositionConv(nn.Conv2d):
    """A residual depthwise convolution, from whose padding tokens learn where they are."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim, dim, 3, padding=1, groups=dim)

    def forward(self, x_BNC: Tensor, grid: Grid) -> Tensor:  # type: ignore[override]
        return x_BNC + to_tokens(super().forward(to_map(x_BNC, grid)))


class PatchReduction(Downsample):
    """Patches of 2x2 tokens embedded anew."""

    axes: ClassVar[Axes] = {**pair("proj", "dim", "before", None, None), **pair("norm", "dim")}

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(before, after, 2, 2)
        self.norm = nn.LayerNorm(after, eps=_EPS)

    def forward(self, x_BNC: Tensor, grid: Grid) -> tuple[Tensor, Grid]:
        return self.norm(to_tokens(self.proj(to_map(x_BNC, grid)))), (grid[0] // 2, grid[1] // 2)


def _attention(dim: int, block: Block, scale: float, drops: Drops) -> Attention:
    kinds = {"local": LocalAttention, "subsampled": SubsampledAttention, "global": GlobalAttention}
    return kinds[block.mixer](dim, block, scale, drops)


class Twins(Backbone):
    def __init__(self, arch: Arch, num_classes: int, img_size: ImageSize, in_chans: int, drops: Drops) -> None:
        stages = []
        for index, stage in enumerate(arch.stages):
            reduction = PatchReduction(arch.stages[index - 1].dim, stage.dim) if index else None
            position = PositionConv(stage.dim) if stage.blocks else None
            stages.append(StageBlocks(make_blocks(arch, index, drops, _attention), reduction, position))
        super().__init__(arch, stages, num_classes, img_size, in_chans, drops)
        self.patch_embed = nn.Conv2d(in_chans, arch.stages[0].dim, arch.patch.size, arch.patch.stride)
        self.patch_norm = nn.LayerNorm(arch.stages[0].dim, eps=_EPS)

    def embed(self, x_BCHW: Tensor) -> Tensor:
        return self.patch_norm(to_tokens(self.patch_embed(x_BCHW)))
