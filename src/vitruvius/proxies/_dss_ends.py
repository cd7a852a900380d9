"""The collapsed network outside its blocks: tokens of an image of ones, what stands between stages, and the head."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vitruvius.proxies._dss_batch import Group, product
from vitruvius.proxies._dss_layers import Normed

if TYPE_CHECKING:
    from vitruvius.proxies._dss_network import Collapsed

__all__ = ["Crossing", "Ends"]


class Crossing(NamedTuple):
    """A group's way from one stage to the next, and what its gradient needs."""

    group: Group
    weight: Tensor
    """Swin: of the reduction. PiT: of the class token's layer."""
    normed: Normed | None = None
    kernel: Tensor | None = None
    """PiT: (after,), what a mean patch's channel is multiplied with."""


class Ends:
    def __init__(self, network: Collapsed) -> None:
        self.network, self.columns, self.first = network, network.columns, network.columns.first

    def embedded(self) -> Tensor:
        """(n, T, width)"""
        columns = self.columns
        x = self._empty(0)
        for group in self._groups(columns.stages[0].dim, columns.patch):
            dim, p = group.key
            x[group.candidates, :, :dim], spread = self._tokens(dim, columns.patches[p].size, columns.grids[p][0])
            self.network.spread[group.candidates] = spread
        return x

    def _empty(self, s: int) -> Tensor:
        shape = (len(self.columns), self.network.tokens, int(self.columns.stages[s].dim.max()))
        return torch.zeros(shape, dtype=torch.float64, device=self.network.device)

    def _tokens(self, dim: int, size: int, grid: tuple[int, int]) -> tuple[Tensor, float]:
        """(T, dim): the class token, and the mean patch; and the mean variance of a patch's distance from that."""
        parameter = self.network.parameter
        shape = (dim, self.network.in_chans, size, size)
        inputs = self.network.in_chans * size**2
        patch = parameter("patch_embed.weight", shape, inputs).flatten(1).contiguous().sum(1)
        patch = patch + parameter("patch_embed.bias", (dim,), inputs)
        if self.first.family == "swin":
            return self._normed("patch_norm", patch.unsqueeze(0)).out, 0.0
        spread = 0.0
        token = parameter("cls_token", (1, 1, dim))[0, 0] if self.first.class_token else None
        if "absolute" in self.first.positions:
            # Of a PiT, the class token has none.
            first = int(self.first.class_token and self.first.family != "pit")
            places = parameter("pos_embed", (1, grid[0] * grid[1] + first, dim))[0].contiguous()
            mean = places[first:].mean(0)
            patch = patch + mean
            spread = float((places[first:] - mean).var(dim=1, correction=0).mean())
            if token is not None and first:
                token = token + places[0]
        return (patch.unsqueeze(0) if token is None else torch.stack([token, patch])), spread

    def pulled_back(self, x: Tensor) -> Tensor:
        """The gradient of the sum of the logits by the last block's tokens."""
        network, gradient = self.network, torch.zeros_like(x)
        read = 0 if self.first.pool == "token" else network.tokens - 1
        for group in self._groups(self.columns.stages[-1].dim):
            (dim,) = group.key
            spread = None if read < network.tokens - 1 else network.spread[group.index]
            norm = self._normed("norm", x[group.index, read : read + 1, :dim], spread)
            pulled = network.parameter("head.weight", (network.num_classes, dim)).contiguous().sum(0)
            gradient[group.candidates, read, :dim] = norm.back(pulled.expand_as(norm.out))[: group.count, 0]
        return gradient

    # -- between stages --------------------------------------------------------------------------------------------

    def entered(self, s: int, x: Tensor) -> tuple[Tensor, list[Crossing]]:
        """The tokens that stage `s` starts with."""
        if not s:
            return x, []
        self.network.spread.zero_()  # little of the positions' is left behind a pooling, which makes its own
        out, crossings = self._empty(s), []
        cross = {"swin": self._merged, "pit": self._pooled}[self.first.family]
        before, after = (self.columns.stages[i].dim for i in (s - 1, s))
        for group in self._groups(before, after, self.columns.patch):
            tokens, crossing = cross(group, s, x[group.index, :, : group.key[0]])
            out[group.candidates, :, : group.key[1]] = tokens[: group.count]
            crossings.append(crossing)
        return out, crossings

    def entered_back(self, gradient: Tensor, crossings: list[Crossing]) -> Tensor:
        if not crossings:
            return gradient
        widest = max(crossing.group.key[0] for crossing in crossings)
        out = gradient.new_zeros(*gradient.shape[:2], widest)
        for crossing in crossings:
            group = crossing.group
            inner = gradient[group.index, :, : group.key[1]]
            back = self._pooled_back(inner, crossing) if crossing.normed is None else self._merged_back(inner, crossing)
            out[group.candidates, :, : group.key[0]] = back[: group.count]
        return out

    def _merged(self, group: Group, s: int, x_BTC: Tensor) -> tuple[Tensor, Crossing]:
        """Swin's patch merging: four equal tokens side by side."""
        before, after, _ = group.key
        normed = self._normed(f"stages.{s}.downsample.norm", x_BTC.repeat(1, 1, 4))
        weight = self.network.parameter(f"stages.{s}.downsample.reduction.weight", (after, 4 * before))
        return product(normed.out, weight.T), Crossing(group, weight, normed)

    def _merged_back(self, gradient: Tensor, crossing: Crossing) -> Tensor:
        assert crossing.normed is not None
        return crossing.normed.back(product(gradient, crossing.weight)).unflatten(-1, (4, -1)).sum(-2)

    def _pooled(self, group: Group, s: int, x_BTC: Tensor) -> tuple[Tensor, Crossing]:
        """PiT's pooling: a depthwise convolution of stride 2, at the edges of which patches see zeros."""
        before, after, p = group.key
        parameter, name = self.network.parameter, f"stages.{s}.downsample"
        token = parameter(f"{name}.token.weight", (after, before))
        kernels = parameter(f"{name}.conv.weight", (after, 1, 3, 3), 9)[:, 0]
        down, across = (torch.from_numpy(_inside(side)).to(kernels) for side in self.columns.grids[p][s - 1])
        kernels = (down @ kernels @ across.T).flatten(1)  # of every output patch, what of the kernel it sees
        kernel = kernels.mean(1)
        out = product(x_BTC, token.T)
        out[:, 0] += parameter(f"{name}.token.bias", (after,))
        wide = x_BTC.repeat_interleave(after // before, dim=-1)
        patch = wide[:, 1]
        # How far patches are from their mean, without what a norm takes away: a shift of all channels.
        varied = (patch.square() * kernels.var(1, correction=0)).mean(-1)
        varied -= (product(wide, kernels)[:, 1] / after).var(-1, correction=0)
        self.network.spread[group.candidates] = varied[: group.count]
        out[:, 1] = patch * kernel + parameter(f"{name}.conv.bias", (after,), 9)
        return out, Crossing(group, token, kernel=kernel)

    def _pooled_back(self, gradient: Tensor, crossing: Crossing) -> Tensor:
        assert crossing.kernel is not None
        before = crossing.group.key[0]
        out = product(gradient, crossing.weight)
        out[:, 1] = (gradient[:, 1] * crossing.kernel).unflatten(-1, (before, -1)).sum(-1)
        return out

    # -- what they share -------------------------------------------------------------------------------------------

    def _groups(self, *keys: np.ndarray) -> list[Group]:
        return self.network.groups(np.arange(len(self.columns)), *keys)

    def _normed(self, name: str, x: Tensor, spread: Tensor | None = None) -> Normed:
        weight, bias = (self.network.parameter(f"{name}.{own}", x.shape[-1:]) for own in ("weight", "bias"))
        return Normed.of(x, weight, bias, self.first.norm_eps, spread)


def _inside(side: int) -> np.ndarray:
    """(outputs, 3): of every output of a kernel of 3, stride 2 and padding 1, which places of the kernel are inside."""
    first = np.arange(0, side, 2)[:, None] - 1 + np.arange(3)
    return ((first >= 0) & (first < side)).astype(np.float64)
