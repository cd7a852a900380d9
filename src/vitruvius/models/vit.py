"""ViT: DeiT, ViTAS's DeiT-like networks, and AutoFormer with its relative positions on keys and values."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitruvius.arch import RELATIVE_CLAMP, Arch, Block, ImageSize, token_grids
from vitruvius.models._base import Backbone
from vitruvius.models.layers import (
    Attention,
    Axes,
    Drops,
    GlobalAttention,
    Grid,
    StageBlocks,
    embedding,
    make_blocks,
    to_tokens,
)


class RelativeTables(nn.Module):
    """What a token learns of another's row and column: two tables of one vector a distance (AutoFormer).

    Distances are clamped to 14. Row 0 of both tables is for pairs that involve the class token.
    """

    def __init__(self, head_dim: int, grid: Grid) -> None:
        super().__init__()
        self.vertical_table = nn.Parameter(torch.empty(2 * RELATIVE_CLAMP + 2, head_dim))
        self.horizontal_table = nn.Parameter(torch.empty(2 * RELATIVE_CLAMP + 2, head_dim))
        for name, side in zip(("rows", "columns"), grid, strict=True):
            distance = np.arange(side)[None, :] - np.arange(side)[:, None]
            index = np.clip(distance, -RELATIVE_CLAMP, RELATIVE_CLAMP) + RELATIVE_CLAMP + 1
            self.register_buffer(name, torch.from_numpy(index), persistent=False)
        embedding(self.vertical_table)
        embedding(self.horizontal_table)

    def of_rows(self) -> Tensor:
        """(H, H, d): the vector of each pair of rows."""
        return self.vertical_table[self.rows]

    def of_columns(self) -> Tensor:
        """(W, W, d): the vector of each pair of columns."""
        return self.horizontal_table[self.columns]

    def of_class_token(self) -> Tensor:
        """(d,): the vector of any pair with the class token."""
        return self.vertical_table[0] + self.horizontal_table[0]


class RelativeAttention(Attention):
    """Global attention in which keys and values are shifted by relative positions.

    A pair's vector is one of its rows plus one of its columns. So query times vector is two products with as many
    vectors as the grid has rows and columns, and the values' part needs only the attention summed over rows and over
    columns: no tensor of N x N x d is ever made.
    """

    axes: ClassVar[Axes] = {
        **Attention.axes,
        "relative_k.vertical_table": (None, "qk_head"),
        "relative_k.horizontal_table": (None, "qk_head"),
        "relative_v.vertical_table": (None, "v_head"),
        "relative_v.horizontal_table": (None, "v_head"),
    }

    def __init__(self, dim: int, block: Block, scale: float, drops: Drops, grid: Grid, class_token: bool) -> None:
        super().__init__(dim, block, scale, drops)
        self.class_token = class_token
        self.relative_k = RelativeTables(block.qk // block.heads, grid)
        self.relative_v = RelativeTables(block.v // block.heads, grid)

    def forward(self, x_BNC: Tensor, grid: Grid) -> Tensor:
        q, k, v = (self.split(linear(x_BNC)) for linear in (self.q, self.k, self.v))
        logits = q @ k.transpose(-2, -1) + self._key_logits(q, grid)
        attention = F.dropout((logits * self.scale).softmax(dim=-1), self.attn_drop, self.training)
        return self.merge(attention @ v + self._values(attention, grid))

    def _key_logits(self, q_BHND: Tensor, grid: Grid) -> Tensor:
        """(B, heads, N, N): q times the relative vector of each pair."""
        patches = q_BHND[:, :, int(self.class_token) :].unflatten(2, grid)
        rows = _by_row(patches, self.relative_k.of_rows().transpose(1, 2))
        columns = _by_row(patches.transpose(2, 3), self.relative_k.of_columns().transpose(1, 2)).transpose(2, 3)
        pairs = (rows.unsqueeze(-1) + columns.unsqueeze(-2)).flatten(2, 3).flatten(3)
        if not self.class_token:
            return pairs
        with_class = q_BHND @ self.relative_k.of_class_token().unsqueeze(-1)
        below = torch.cat([with_class[:, :, 1:], pairs], dim=-1)
        return torch.cat([with_class[:, :, :1].expand(-1, -1, -1, below.shape[-1]), below], dim=2)

    def _values(self, attention_BHNN: Tensor, grid: Grid) -> Tensor:
        """(B, heads, N, d): the attention-weighted sum of each pair's relative vector."""
        first = int(self.class_token)
        pairs = attention_BHNN[:, :, first:, first:].unflatten(3, grid).unflatten(2, grid)
        rows = _by_row(pairs.sum(-1), self.relative_v.of_rows())
        columns = _by_row(pairs.sum(-2).transpose(2, 3), self.relative_v.of_columns()).transpose(2, 3)
        patches = (rows + columns).flatten(2, 3)
        if not self.class_token:
            return patches
        vector = self.relative_v.of_class_token()
        patches = patches + attention_BHNN[:, :, 1:, :1] * vector
        return torch.cat([attention_BHNN[:, :, :1].sum(-1, keepdim=True) * vector, patches], dim=2)


def _by_row(x_BHYXI: Tensor, matrices_YIO: Tensor) -> Tensor:
    """(B, heads, Y, X, O): each row y times its own matrix, in one batched product."""
    together = x_BHYXI.movedim(2, 0)
    return torch.bmm(together.flatten(1, 3), matrices_YIO).unflatten(1, together.shape[1:4]).movedim(0, 2)


class ViT(Backbone):
    taps = "block"

    def __init__(self, arch: Arch, num_classes: int, img_size: ImageSize, in_chans: int, drops: Drops) -> None:
        grid = token_grids(arch, img_size)[0]

        def attention(dim: int, block: Block, scale: float, drops: Drops) -> Attention:
            if "relative" in arch.positions:
                return RelativeAttention(dim, block, scale, drops, grid, arch.class_token)
            return GlobalAttention(dim, block, scale, drops)

        stages = [StageBlocks(make_blocks(arch, 0, drops, attention), None, None)]
        super().__init__(arch, stages, num_classes, img_size, in_chans, drops)
        dim = arch.stages[0].dim
        self.patch_embed = nn.Conv2d(in_chans, dim, arch.patch.size, arch.patch.stride)
        self.cls_token = nn.Parameter(torch.empty(1, 1, dim)) if arch.class_token else None
        tokens = grid[0] * grid[1] + arch.class_token
        self.pos_embed = nn.Parameter(torch.empty(1, tokens, dim)) if "absolute" in arch.positions else None
        for parameter in (self.cls_token, self.pos_embed):
            if parameter is not None:
                embedding(parameter)

    def embed(self, x_BCHW: Tensor) -> Tensor:
        x_BNC = to_tokens(self.patch_embed(x_BCHW))
        if self.cls_token is not None:
            x_BNC = torch.cat([self.cls_token.expand(x_BNC.shape[0], -1, -1), x_BNC], dim=1)
        return x_BNC if self.pos_embed is None else x_BNC + self.pos_embed
