"""Parameters and multiply-accumulates (MACs) of every family, in closed form.

A network's cost is a sum of parts: its entry (patches, tokens, positions), its blocks, what stands between two stages,
and its exit (last norm and classifier). Every function below works on NumPy arrays of any shapes that broadcast
together, so that one formula serves one block, thousands of architectures, and the tables of the budget sampler.

MACs count every matrix product and convolution and nothing else: they equal torch's FLOP counter divided by two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vitruvius.arch import RELATIVE_CLAMP, Arch, ImageSize, Patch, grids_of, image_shape, refuse, token_grids
from vitruvius.arrays import MIXERS, ArchArrays, StageArrays, arrays_of

Ints: TypeAlias = Any
"""A whole number, or an int64 array that broadcasts with the others."""
Grid: TypeAlias = tuple[Ints, Ints]


@dataclass(frozen=True, slots=True)
class Cost:
    """Parameters and MACs, side by side."""

    params: Ints = 0
    macs: Ints = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.params + other.params, self.macs + other.macs)

    def where(self, mask: Ints) -> Cost:
        """This cost where the mask holds, nothing elsewhere."""
        return Cost(np.where(mask, self.params, 0), np.where(mask, self.macs, 0))

    def sum(self) -> Cost:
        """Over the last axis."""
        return Cost(np.sum(self.params, axis=-1), np.sum(self.macs, axis=-1))


def _linear(inputs: Ints, outputs: Ints, tokens: Ints, bias: bool = True) -> Cost:
    return Cost(inputs * outputs + (outputs if bias else 0), tokens * inputs * outputs)


def _conv(inputs: Ints, outputs: Ints, kernel: Ints, pixels: Ints, bias: bool = True) -> Cost:
    """`inputs` is the channels that one output channel reads: 1 in a depthwise convolution."""
    return _linear(inputs * kernel**2, outputs, pixels, bias)


def _norm(dim: Ints) -> Cost:
    return Cost(2 * dim)


def _area(grid: Grid) -> Ints:
    return grid[0] * grid[1]


@dataclass(frozen=True, slots=True)
class FamilyCost:
    """The parts of a family's networks."""

    family: str
    class_token: bool
    positions: str

    def entry(self, patch: Patch, dim: Ints, grid: Grid, in_chans: int) -> Cost:
        """From pixels to the first stage's tokens."""
        pixels = _area(grid)
        if patch.stem:
            cost = self._stem(patch, dim, grid, in_chans)
        else:
            cost = _conv(in_chans, dim, patch.size, pixels)
        if self.family in ("swin", "twins"):
            cost += _norm(dim)
        if self.class_token:
            cost += Cost(dim)
        if "absolute" in self.positions:
            # PiT gives its class token no position.
            cost += Cost(dim * (pixels + (self.class_token and self.family != "pit")))
        return cost

    def _stem(self, patch: Patch, dim: Ints, grid: Grid, in_chans: int) -> Cost:
        """Three 3x3 convolutions with batch norms at half the resolution, then the patch convolution."""
        half = patch.size // 2
        fine = _area(grid) * half**2
        convs = [_conv(inputs, patch.stem, 3, fine, bias=False) for inputs in (in_chans, patch.stem, patch.stem)]
        return sum(convs, _conv(patch.stem, dim, half, _area(grid))) + Cost(3 * 2 * patch.stem)

    def between(self, before: Ints, after: Ints, grid: Grid) -> Cost:
        """From a stage of width `before` to one of width `after` whose token grid is `grid`."""
        pixels = _area(grid)
        match self.family:
            case "swin":
                return _norm(4 * before) + _linear(4 * before, after, pixels, bias=False)
            case "twins":
                return _conv(before, after, 2, pixels) + _norm(after)
            case "resvit":
                token = _linear(before, after, 1)
                return _norm(before) + _conv(before, after, 3, pixels) + token + Cost(after * pixels)
            case "pit":
                return _conv(1, after, 3, pixels) + _linear(before, after, 1)
        raise AssertionError(f"family {self.family!r} has one stage")

    def occupied(self, dim: Ints, grid: Grid) -> Cost:
        """What a stage costs beyond its blocks if it has any: the position convolution behind Twins' first block."""
        return _conv(1, dim, 3, _area(grid)) if self.positions == "conv" else Cost()

    def exit(self, dim: Ints, num_classes: int) -> Cost:
        return _norm(dim) + (_linear(dim, num_classes, 1) if num_classes else Cost())

    def block(
        self,
        grid: Grid,
        dim: Ints,
        mixer: Ints,
        heads: Ints,
        qk: Ints,
        v: Ints,
        mlp: Ints,
        window: Ints,
        reduction: Ints,
    ) -> Cost:
        """One block; `mixer` is a code of `MIXERS`."""
        tokens = _area(grid) + self.class_token
        mixing = self._mixing(grid, tokens, dim, mixer, heads, qk, v, window, reduction)
        return mixing + _linear(dim, mlp, tokens) + _linear(mlp, dim, tokens) + Cost(4 * dim)

    def _mixing(
        self,
        grid: Grid,
        tokens: Ints,
        dim: Ints,
        mixer: Ints,
        heads: Ints,
        qk: Ints,
        v: Ints,
        window: Ints,
        reduction: Ints,
    ) -> Cost:
        match self.family:
            case "swin":
                wide = (np.minimum(window, grid[0]), np.minimum(window, grid[1]))
                table = (2 * wide[0] - 1) * (2 * wide[1] - 1) * heads
                return self._windows(grid, dim, qk, v, wide) + Cost(table)
            case "twins":
                local = self._windows(grid, dim, qk, v, (window, window))
                pooled = _area((grid[0] // reduction, grid[1] // reduction))
                squeeze = (_conv(dim, dim, reduction, pooled) + _norm(dim)).where(reduction > 1)
                whole = self._attention(dim, qk, v, tokens, pooled) + squeeze
                return local.where(mixer == MIXERS.index("local")) + whole.where(mixer != MIXERS.index("local"))
        cost = self._attention(dim, qk, v, tokens, tokens)
        return cost + self._relative(grid, heads, qk, v) if "relative" in self.positions else cost

    def _windows(self, grid: Grid, dim: Ints, qk: Ints, v: Ints, window: Grid) -> Cost:
        """Attention inside windows; a grid that they do not tile is padded."""
        windows = -(-grid[0] // window[0]) * -(-grid[1] // window[1])
        inside = _area(window)
        one = self._attention(dim, qk, v, inside, inside)
        return Cost(one.params, one.macs * windows)

    @staticmethod
    def _attention(dim: Ints, qk: Ints, v: Ints, queries: Ints, keys: Ints) -> Cost:
        linears = _linear(dim, qk, queries) + _linear(dim, qk, keys) + _linear(dim, v, keys) + _linear(v, dim, queries)
        return linears + Cost(0, queries * keys * (qk + v))

    def _relative(self, grid: Grid, heads: Ints, qk: Ints, v: Ints) -> Cost:
        """Four tables a block (rows and columns, for keys and values), each one product with a grid side of rows."""
        rows = 2 * RELATIVE_CLAMP + 2
        pixels = _area(grid)
        macs = pixels * (grid[0] + grid[1]) * (qk + v)
        if self.class_token:
            macs = macs + (pixels + 1) * qk
        return Cost(2 * rows * (qk + v) // heads, macs)


def cost_of_arrays(arrays: ArchArrays, img_size: ImageSize, num_classes: int, in_chans: int) -> Cost:
    """(n,) parameters and MACs."""
    family = FamilyCost(arrays.family, arrays.class_token, arrays.positions)
    _check_overflow(arrays, img_size, max(num_classes, in_chans))
    grids = [grids_of(arrays.family, patch, len(arrays.stages), img_size) for patch in arrays.patches]
    # (stage, side, patch) -> the (n,) sides of each stage's token grid
    sides = np.array(grids, dtype=np.int64).transpose(1, 2, 0)[:, :, arrays.patch]
    entries = [
        family.entry(patch, arrays.stages[0].dim, (grid[0][0], grid[0][1]), in_chans)
        for patch, grid in zip(arrays.patches, grids, strict=True)
    ]
    rows = np.arange(len(arrays.patch))
    total = Cost(
        np.stack([entry.params for entry in entries])[arrays.patch, rows],
        np.stack([entry.macs for entry in entries])[arrays.patch, rows],
    )
    for i, stage in enumerate(arrays.stages):
        grid = (sides[i, 0], sides[i, 1])
        if i:
            total += family.between(arrays.stages[i - 1].dim, stage.dim, grid)
        if ((stage.reduction > np.minimum(*grid)[:, None]) & stage.active).any():
            refuse(
                "a reduction must fit the token grid", int(stage.reduction.max()), f"2..{int(np.minimum(*grid).min())}"
            )
        total += blocks_cost(family, stage, grid).where(stage.active).sum()
        total += family.occupied(stage.dim, grid).where(stage.active.any(axis=-1))
    return total + family.exit(arrays.stages[-1].dim, num_classes)


def _check_overflow(arrays: ArchArrays, img_size: ImageSize, other: int) -> None:
    """Refuses what might not fit into 64 bits, by a bound that no real network comes near."""
    high, wide = image_shape(img_size)
    stride = min(patch.stride for patch in arrays.patches)
    pixels = max(patch.size for patch in arrays.patches) ** 2
    tokens = (high // stride + 1) * (wide // stride + 1) + 1
    width = max([other, *(int(getattr(s, n).max(initial=1)) for s in arrays.stages for n in ("dim", "qk", "v", "mlp"))])
    layers = sum(stage.active.shape[1] for stage in arrays.stages) + len(arrays.stages) + 2
    if layers * tokens * width * (2 * tokens + 64 * width + 3 * pixels) >= 2**63:
        refuse("an architecture and its image must be countable in 64 bits", (high, wide), "smaller widths or images")


def blocks_cost(family: FamilyCost, stage: StageArrays, grid: Grid) -> Cost:
    """(n, L): the cost of every block, whether it exists or not."""
    tall = (grid[0][:, None], grid[1][:, None])
    dim = stage.dim[:, None]
    return family.block(
        tall, dim, stage.mixer, stage.heads, stage.qk, stage.v, stage.mlp, stage.window, stage.reduction
    )


def cost_of_archs(archs: Sequence[Arch], img_size: ImageSize, num_classes: int, in_chans: int) -> Cost:
    """(n,) parameters and MACs of any architectures, in their order."""
    groups: dict[tuple[str, bool, str, int], list[int]] = {}
    for place, arch in enumerate(archs):
        token_grids(arch, img_size)
        kind = (arch.family, arch.class_token, arch.positions, len(arch.stages))
        groups.setdefault(kind, []).append(place)
    params: NDArray[np.int64] = np.zeros(len(archs), dtype=np.int64)
    macs = np.zeros_like(params)
    for places in groups.values():
        cost = cost_of_arrays(arrays_of([archs[place] for place in places]), img_size, num_classes, in_chans)
        params[places], macs[places] = cost.params, cost.macs
    return Cost(params, macs)
