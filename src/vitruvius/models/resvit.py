"""ViT-Res and ViT-ResNAS: a ViT in stages, joined by residual spatial reductions, behind a convolutional stem."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitruvius.arch import Arch, ImageSize, Patch, token_grids
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


class ConvStem(nn.Module):
    """Three 3x3 convolutions at half the resolution, the last two residual, then the patches (Section 2.4)."""

    def __init__(self, in_chans: int, dim: int, patch: Patch) -> None:
        super().__init__()
        self.conv1 = self._conv(in_chans, patch.stem, 2)
        self.conv2 = self._conv(patch.stem, patch.stem, 1)
        self.conv3 = self._conv(patch.stem, patch.stem, 1)
        self.proj = nn.Conv2d(patch.stem, dim, patch.size // 2, patch.size // 2)

    @staticmethod
    def _conv(inputs: int, outputs: int, stride: int) -> nn.Module:
        conv = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU())

    def forward(self, x_BCHW: Tensor) -> Tensor:
        x_BCHW = self.conv1(x_BCHW)
        return self.proj(x_BCHW + self.conv3(self.conv2(x_BCHW)))


class MainBranch(nn.Module):
    """The class token and the averages of 2x2 patches, with zeros for the added width."""

    def __init__(self, padding: int) -> None:
        super().__init__()
        self.padding = padding

    def forward(self, x_BNC: Tensor, grid: Grid) -> Tensor:
        pooled = to_tokens(F.avg_pool2d(to_map(x_BNC[:, 1:], grid), 2))
        return F.pad(torch.cat([x_BNC[:, :1], pooled], dim=1), (0, self.padding))


class SpatialReduction(Downsample):
    """Residual spatial reduction (Figure 3): a main branch, where the record has one, and a residual branch.

    Residual branch: norm, then a strided convolution and new positions for the patches, a linear layer for the class
    token. One norm serves patches and class token, as in the released code; the figure draws two.
    """

    axes: ClassVar[Axes] = {
        **pair("norm", "before"),
        **pair("conv", "dim", "before", None, None),
        **pair("token", "dim", "before"),
        "pos_embed": (None, None, "dim"),
    }
    follows: ClassVar[dict[str, str]] = {"pos_embed": "patch"}

    def __init__(self, before: int, after: int, grid: Grid, eps: float, main_branch: bool) -> None:
        super().__init__()
        self.main = MainBranch(after - before) if main_branch else None
        self.norm = nn.LayerNorm(before, eps=eps)
        self.conv = nn.Conv2d(before, after, 3, 2, padding=1)
        self.token = nn.Linear(before, after)
        self.pos_embed = nn.Parameter(torch.empty(1, grid[0] * grid[1], after))
        embedding(self.pos_embed)

    def forward(self, x_BNC: Tensor, grid: Grid) -> tuple[Tensor, Grid]:
        normed = self.norm(x_BNC)
        patches = to_tokens(self.conv(to_map(normed[:, 1:], grid))) + self.pos_embed
        residual = torch.cat([self.token(normed[:, :1]), patches], dim=1)
        smaller = (grid[0] // 2, grid[1] // 2)
        return (residual if self.main is None else self.main(x_BNC, grid) + residual), smaller


class ResViT(Backbone):
    axes: ClassVar[Axes] = {**Backbone.axes, **pair("patch_embed.proj", "first", None, None, None)}
    follows: ClassVar[dict[str, str]] = {
        **Backbone.follows,
        "patch_embed.proj.weight": "patch",
        "patch_embed.proj.bias": "patch",
    }

    def __init__(self, arch: Arch, num_classes: int, img_size: ImageSize, in_chans: int, drops: Drops) -> None:
        grids = token_grids(arch, img_size)
        stages = []
        for index, stage in enumerate(arch.stages):
            before = arch.stages[index - 1].dim
            reduction = (
                SpatialReduction(before, stage.dim, grids[index], arch.norm_eps, arch.main_branch) if index else None
            )
            stages.append(StageBlocks(make_blocks(arch, index, drops, GlobalAttention), reduction, None))
        super().__init__(arch, stages, num_classes, img_size, in_chans, drops)
        dim, patch = arch.stages[0].dim, arch.patch
        self.patch_embed = (
            ConvStem(in_chans, dim, patch) if patch.stem else nn.Conv2d(in_chans, dim, patch.size, patch.stride)
        )
        self.cls_token = nn.Parameter(torch.empty(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.empty(1, grids[0][0] * grids[0][1] + 1, dim))
        embedding(self.cls_token)
        embedding(self.pos_embed)

    def embed(self, x_BCHW: Tensor) -> Tensor:
        x_BNC = to_tokens(self.patch_embed(x_BCHW))
        return torch.cat([self.cls_token.expand(x_BNC.shape[0], -1, -1), x_BNC], dim=1) + self.pos_embed
