"""PiT, as TF-TAS searches it: overlapping patches, and depthwise pooling between stages."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from vitruvius.arch import Arch, ImageSize, token_grids
from vitruvius.models._base import Backbone
from vitruvius.models.layers import (
    Axes,
    Downsample,
    Drops,
    GlobalAttention,
    Grid,
    StageBlocks,
    embedding,
    make_blocks,
    pair,
    to_map,
    to_tokens,
)


class Pooling(Downsample):
    """A depthwise strided convolution of the patches (each input channel makes `after / before` new ones), and a linear
    layer for the class token."""

    axes: ClassVar[Axes] = {**pair("conv", "dim", None, None, None), **pair("token", "dim", "before")}

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, after, 3, 2, padding=1, groups=before)
        self.token = nn.Linear(before, after)

    def forward(self, x_BNC: Tensor, grid: Grid) -> tuple[Tensor, Grid]:
        pooled = self.conv(to_map(x_BNC[:, 1:], grid))
        return torch.cat([self.token(x_BNC[:, :1]), to_tokens(pooled)], dim=1), (pooled.shape[2], pooled.shape[3])


class PiT(Backbone):
    def __init__(self, arch: Arch, num_classes: int, img_size: ImageSize, in_chans: int, drops: Drops) -> None:
        stages = []
        for index, stage in enumerate(arch.stages):
            pooling = Pooling(arch.stages[index - 1].dim, stage.dim) if index else None
            stages.append(StageBlocks(make_blocks(arch, index, drops, GlobalAttention), pooling, None))
        super().__init__(arch, stages, num_classes, img_size, in_chans, drops)
        dim, grid = arch.stages[0].dim, token_grids(arch, img_size)[0]
        self.patch_embed = nn.Conv2d(in_chans, dim, arch.patch.size, arch.patch.stride)
        self.cls_token = nn.Parameter(torch.empty(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.empty(1, grid[0] * grid[1], dim))
        embedding(self.cls_token)
        embedding(self.pos_embed)

    def embed(self, x_BCHW: Tensor) -> Tensor:
        x_BNC = to_tokens(self.patch_embed(x_BCHW)) + self.pos_embed
        return torch.cat([self.cls_token.expand(x_BNC.shape[0], -1, -1), x_BNC], dim=1)
