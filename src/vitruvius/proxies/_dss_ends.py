"""The collapsed network's ends: tokens of an image of ones, and the gradient of the sum of the logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from vitruvius.proxies._dss_batch import Group
from vitruvius.proxies._dss_layers import Normed

if TYPE_CHECKING:
    from vitruvius.proxies._dss_network import Collapsed

__all__ = ["Ends"]


class Ends:
    def __init__(self, network: Collapsed) -> None:
        self.network, self.columns, self.first = network, network.columns, network.columns.first

    def embedded(self) -> Tensor:
        """(n, T, widest)"""
        network, columns = self.network, self.columns
        widest = max(int(stage.dim.max()) for stage in columns.stages)
        x = torch.zeros(len(columns), network.tokens, widest, dtype=torch.float64, device=network.device)
        for group in self._groups(0, columns.patch):
            dim, p = group.key
            x[group.candidates, :, :dim] = self._tokens(dim, columns.patches[p].size, columns.grids[p][0])
        return x

    def _tokens(self, dim: int, size: int, grid: tuple[int, int]) -> Tensor:
        """(T, dim): the class token, and the mean patch."""
        parameter = self.network.parameter
        shape = (dim, self.network.in_chans, size, size)
        inputs = self.network.in_chans * size**2
        patch = parameter("patch_embed.weight", shape, inputs).flatten(1).contiguous().sum(1)
        patch = patch + parameter("patch_embed.bias", (dim,), inputs)
        first = int(self.first.class_token)
        places = None
        if "absolute" in self.first.positions:
            places = parameter("pos_embed", (1, grid[0] * grid[1] + first, dim))[0].contiguous()
            patch = patch + places[first:].mean(0)
        if not first:
            return patch.unsqueeze(0)
        token = parameter("cls_token", (1, 1, dim))[0, 0]
        return torch.stack([token if places is None else token + places[0], patch])

    def pulled_back(self, x: Tensor) -> Tensor:
        """By the last block's tokens."""
        network, gradient = self.network, torch.zeros_like(x)
        read = 0 if self.first.pool == "token" else network.tokens - 1
        for group in self._groups(len(self.columns.stages) - 1):
            (dim,) = group.key
            last = x[group.index, read, :dim]
            weight, bias = (network.parameter(f"norm.{own}", (dim,)) for own in ("weight", "bias"))
            norm = Normed.of(last, weight, bias, self.first.norm_eps)
            pulled = network.parameter("head.weight", (network.num_classes, dim)).contiguous().sum(0)
            gradient[group.candidates, read, :dim] = norm.back(pulled.expand_as(last))[: group.count]
        return gradient

    def _groups(self, s: int, *keys: np.ndarray) -> list[Group]:
        return self.network.groups(np.arange(len(self.columns)), self.columns.stages[s].dim, *keys)
