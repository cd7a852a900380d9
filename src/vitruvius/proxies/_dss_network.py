"""The collapsed network of many candidates at once: a class token and a mean patch instead of hundreds of patches.

An image of ones makes equal patches, but for their position embeddings. So one mean patch stands for all: it counts as
often as there are patches in the softmax, its position embedding is their mean, and relative positions are averaged
over all pairs of patches. Gradients of weights then are sums of one outer product a token, and are never made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitruvius.arch import RELATIVE_CLAMP
from vitruvius.arrays import IntArray
from vitruvius.proxies._dss_batch import Columns, Group, groups, product, tile_rows
from vitruvius.proxies._dss_ends import Crossing, Ends
from vitruvius.proxies._dss_exact import Variant
from vitruvius.proxies._dss_layers import Attended, Normed, Relative, attend, attend_back, gelu_back, saliency
from vitruvius.proxies._dss_norms import NuclearNorms, nuclear_of_products

__all__ = ["Collapsed", "Tensors"]


class Tensors(Protocol):
    """Gives a parameter's start, the leading part of what all architectures share; in float32, not to be written to."""

    def __call__(self, name: str, shape: tuple[int, ...], inputs: int = 0) -> Tensor:
        """inputs: of a convolution's weight or bias, the inputs of one filter."""
        ...


LAYERS = {
    "attn.q": ("qk", "dim"),
    "attn.k": ("qk", "dim"),
    "attn.v": ("v", "dim"),
    "attn.proj": ("dim", "v"),
    "mlp.fc1": ("mlp", "dim"),
    "mlp.fc2": ("dim", "mlp"),
}
"""The widths that a layer's rows and columns have."""


@dataclass(frozen=True, slots=True)
class BlockWeights:
    """The parameters of one block in float64, as wide as the widest candidate's; candidates take slices."""

    name: str
    make: Callable[[str, tuple[int, ...]], Tensor]
    most: dict[str, int]
    kept: dict[str, Tensor] = field(default_factory=dict)

    def __call__(self, name: str, axes: tuple[str, ...], *sizes: int) -> Tensor:
        if name not in self.kept:
            self.kept[name] = self.make(f"{self.name}.{name}", tuple(self.most[axis] for axis in axes))
        return self.kept[name][tuple(map(slice, sizes))]

    def weight(self, layer: str, rows: int, columns: int) -> Tensor:
        return self(f"{layer}.weight", LAYERS[layer], rows, columns)

    def positive(self, layer: str, rows: int, columns: int) -> Tensor:
        """The weight without its signs."""
        if (key := f"{layer}.positive") not in self.kept:
            self.weight(layer, rows, columns)
            self.kept[key] = self.kept[f"{layer}.weight"].abs()
        return self.kept[key][:rows, :columns]

    def bias(self, layer: str, rows: int) -> Tensor:
        return self(f"{layer}.bias", LAYERS[layer][:1], rows)

    def linear(self, layer: str, x_BTI: Tensor, width: int) -> Tensor:
        out = product(x_BTI, self.weight(layer, width, x_BTI.shape[-1]).T)
        return out.add_(self.bias(layer, width))

    def linear_back(self, layer: str, gradient_BTO: Tensor, width: int) -> Tensor:
        return product(gradient_BTO, self.weight(layer, gradient_BTO.shape[-1], width))


class Part(NamedTuple):
    """Those of an attention group that have one number of heads and one patch; the index is places in the group."""

    group: Group
    scale: float
    relative: tuple[Relative, Relative] | None
    attended: Attended


class AttentionPass(NamedTuple):
    group: Group
    normed: Normed
    mixed: Tensor
    parts: list[Part]


class MlpPass(NamedTuple):
    group: Group
    normed: Normed
    hidden: Tensor
    activated: Tensor


class Collapsed:
    """The candidates of one chunk, from the image to their scores.

    columns: of these candidates, which are of one kind.
    """

    def __init__(
        self,
        columns: Columns,
        variant: Variant,
        tensors: Tensors,
        norms: NuclearNorms,
        *,
        num_classes: int,
        in_chans: int,
        device: torch.device,
    ) -> None:
        self.columns, self.variant, self.tensors, self.norms = columns, variant, tensors, norms
        self.num_classes, self.in_chans, self.device = num_classes, in_chans, device
        self.first = columns.first
        self.tokens = 1 + self.first.class_token
        self.tile = tile_rows(device) // self.tokens
        self.scores = torch.zeros(len(columns), dtype=torch.float64, device=device)
        self.spread = torch.zeros_like(self.scores)
        """Of each candidate, the mean variance of what a patch has and the mean patch has not."""

    def parameter(self, name: str, shape: tuple[int, ...], inputs: int = 0) -> Tensor:
        """As the variant has it, in float64."""
        tensor = self.variant.prepared(name, self.tensors(name, shape, inputs))
        return tensor.to(device=self.device, dtype=torch.float64)

    def run(self) -> Tensor:
        """(n,): the scores."""
        ends = Ends(self)
        x = ends.embedded()
        passes: list[tuple[int, int, list[AttentionPass], list[MlpPass]]] = []
        entered: list[list[Crossing]] = []
        for s, stage in enumerate(self.columns.stages):
            x, crossings = ends.entered(s, x)
            entered.append(crossings)
            for b in range(int(stage.depth.max())):
                weights = self._weights(s, b)
                attention = [self._attention(x, group, s, b, weights) for group in self._groups(s, b, "qk", "v")]
                mlp = [self._mlp(x, group, weights) for group in self._groups(s, b, "mlp")]
                passes.append((s, b, attention, mlp))
        gradient = ends.pulled_back(x)
        del x
        for s in reversed(range(len(entered))):
            while passes and passes[-1][0] == s:
                _, b, attention, mlp = passes.pop()
                weights = self._weights(s, b)
                for other in mlp:
                    self._mlp_back(gradient, other, weights)
                for one in attention:
                    self._attention_back(gradient, one, weights)
            gradient = ends.entered_back(gradient, entered[s])
        return self.scores

    def groups(self, among: IntArray, *keys: IntArray) -> list[Group]:
        return list(groups(among, keys, self.tile, self.device))

    def _groups(self, s: int, b: int, *names: str) -> list[Group]:
        """Candidates that have the block, by the widths of their stage and of these parts of the block."""
        stage = self.columns.stages[s]
        here = np.flatnonzero(stage.depth > b)
        return self.groups(here, stage.dim[here], *(stage.of(name)[here, b] for name in names))

    def _weights(self, s: int, b: int) -> BlockWeights:
        stage = self.columns.stages[s]
        here = stage.depth > b
        most = {name: int(stage.of(name)[here, b].max()) for name in ("qk", "v", "mlp")}
        return BlockWeights(f"stages.{s}.blocks.{b}", self.parameter, {**most, "dim": int(stage.dim[here].max())})

    # -- blocks ----------------------------------------------------------------------------------------------------

    def _normed(self, x: Tensor, group: Group, weights: BlockWeights, name: str) -> Normed:
        dim = group.key[0]
        weight, bias = (weights(f"{name}.{own}", ("dim",), dim) for own in ("weight", "bias"))
        return Normed.of(x[group.index, :, :dim], weight, bias, self.first.norm_eps, self.spread[group.index])

    def _attention(self, x: Tensor, group: Group, s: int, b: int, weights: BlockWeights) -> AttentionPass:
        """Adds what attention gives to the candidates of a group."""
        dim, qk, v = group.key
        normed = self._normed(x, group, weights, "norm1")
        inputs = [
            weights.linear(f"attn.{layer}", normed.out, wide) for layer, wide in zip("qkv", (qk, qk, v), strict=True)
        ]
        mixed, parts = torch.empty_like(inputs[2]), []
        members = group.candidates.cpu().numpy()
        columns = self.columns
        keys = (columns.stages[s].heads[members, b], columns.patch[members], columns.embed_scale[members])
        for part in self.groups(np.arange(group.count), *keys):
            heads, p, embed = part.key
            grid = columns.grids[p][s]
            scale = ((dim if embed else qk) // heads) ** -0.5
            relative = self._relative(weights.name, grid, qk // heads, v // heads)
            attended = attend(*(tensor[part.index] for tensor in inputs), heads, scale, grid[0] * grid[1], relative)
            mixed[part.candidates] = attended.out[: part.count]
            parts.append(Part(part, scale, relative, attended))
        mixed[group.count :] = 0
        group.add(x, weights.linear("attn.proj", mixed, dim))
        return AttentionPass(group, normed, mixed, parts)

    def _attention_back(self, gradient: Tensor, saved: AttentionPass, weights: BlockWeights) -> None:
        group, normed, mixed, parts = saved
        dim, qk, v = group.key
        outer = gradient[group.index, :, :dim]
        self._diversity(group, weights, "attn.proj", outer, mixed)
        inner = weights.linear_back("attn.proj", outer, v)
        wide = {"q": qk, "k": qk, "v": v}
        found = {layer: torch.zeros_like(inner[..., :1]).expand(-1, -1, w).clone() for layer, w in wide.items()}
        for part in parts:
            back = attend_back(part.attended, inner[part.group.index], part.scale, part.relative)
            for layer, value in zip("qkv", back, strict=True):
                found[layer][part.group.candidates] = value[: part.group.count]
        total = torch.zeros_like(outer)
        for layer in "qkv":
            self._diversity(group, weights, f"attn.{layer}", found[layer], normed.out)
            total += weights.linear_back(f"attn.{layer}", found[layer], dim)
        group.add(gradient, normed.back(total))

    def _mlp(self, x: Tensor, group: Group, weights: BlockWeights) -> MlpPass:
        dim, mlp = group.key
        normed = self._normed(x, group, weights, "norm2")
        hidden = weights.linear("mlp.fc1", normed.out, mlp)
        activated = F.gelu(hidden)
        group.add(x, weights.linear("mlp.fc2", activated, dim))
        return MlpPass(group, normed, hidden, activated)

    def _mlp_back(self, gradient: Tensor, saved: MlpPass, weights: BlockWeights) -> None:
        group, normed, hidden, activated = saved
        dim, mlp = group.key
        outer = gradient[group.index, :, :dim]
        pulled = weights.linear_back("mlp.fc2", outer, mlp)
        self._saliency(group, weights, "mlp.fc2", outer, activated, pulled)
        inner = gelu_back(pulled, hidden)
        pulled = weights.linear_back("mlp.fc1", inner, dim)
        self._saliency(group, weights, "mlp.fc1", inner, normed.out, pulled)
        group.add(gradient, normed.back(pulled))

    # -- what counts -----------------------------------------------------------------------------------------------

    def _diversity(self, group: Group, weights: BlockWeights, layer: str, left: Tensor, right: Tensor) -> None:
        if layer.removeprefix("attn.") not in self.variant.diversity:
            return
        rows, columns = left.shape[-1], right.shape[-1]
        name = f"{weights.name}.{layer}.weight"
        norm = self.norms.of(name, rows, columns, lambda: weights.weight(layer, rows, columns))
        group.add(self.scores, nuclear_of_products(left, right) * norm)

    def _saliency(
        self, group: Group, weights: BlockWeights, layer: str, left: Tensor, right: Tensor, pulled: Tensor
    ) -> None:
        """pulled: left times the weight, of which the signed sum is all there is to know."""
        if self.variant.saliency == "signed":
            terms = (pulled * right).sum(-1).sum(-1)
        else:
            positive = weights.positive(layer, left.shape[-1], right.shape[-1])
            terms = saliency(left, right, positive)
        group.add(self.scores, terms)

    def _relative(self, block: str, grid: tuple[int, int], qk: int, v: int) -> tuple[Relative, Relative] | None:
        if "relative" not in self.first.positions:
            return None
        found = []
        for side, width in (("relative_k", qk), ("relative_v", v)):
            shape = (2 * RELATIVE_CLAMP + 2, width)
            names = (f"{block}.attn.{side}.{way}_table" for way in ("vertical", "horizontal"))
            down, across = (self.parameter(name, shape).contiguous() for name in names)
            found.append(Relative(down[0] + across[0], _mean_row(down, grid[0]) + _mean_row(across, grid[1])))
        return found[0], found[1]


def _mean_row(table: Tensor, side: int) -> Tensor:
    """The mean over all pairs of places on a side of a relative table's rows."""
    place = np.arange(side)
    distance = np.clip(place[None, :] - place[:, None], -RELATIVE_CLAMP, RELATIVE_CLAMP) + RELATIVE_CLAMP + 1
    share = np.bincount(distance.ravel(), minlength=len(table)) / side**2
    return (table * torch.from_numpy(share).to(table.device).unsqueeze(1)).sum(0)
