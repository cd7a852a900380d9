"""From an architecture to slices of shared parameters: which copy, and which channels of each of its dimensions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn

from vitruvius.arch import Arch, Block
from vitruvius.models import Backbone
from vitruvius.models.layers import Attention, Downsample, StageBlocks, TransformerBlock
from vitruvius.models.swin import WindowAttention
from vitruvius.spaces import Path
from vitruvius.superformer._widths import AxisWidths
from vitruvius.superformer.private import copy_key
from vitruvius.superformer.sharing import Pieces, SharingRule

DECLARING = (Backbone, StageBlocks, Downsample, TransformerBlock, Attention)
"""The modules that declare axes."""
_MOST_PIECES = 2
"""Up to so many pieces are joined from views; more are gathered by index."""


@dataclass(frozen=True, slots=True)
class Slice:
    """One parameter of a plain network, as a part of a shared one."""

    shared: str
    """The name of the shared parameter."""
    cuts: tuple[tuple[int, Pieces], ...]
    """(dimension, pieces) of every dimension that is not taken whole."""

    def of(self, tensor: Tensor) -> Tensor:
        for dimension, pieces in self.cuts:
            if len(pieces) == 1:
                tensor = tensor.narrow(dimension, *pieces[0])
            elif len(pieces) <= _MOST_PIECES:
                tensor = torch.cat([tensor.narrow(dimension, *piece) for piece in pieces], dimension)
            else:
                tensor = tensor.index_select(dimension, _index(pieces, tensor.device))
        return tensor


@lru_cache(maxsize=1024)
def _index(pieces: Pieces, device: torch.device) -> Tensor:
    return torch.cat([torch.arange(start, start + length) for start, length in pieces]).to(device)


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension of a parameter: its axis in the space, or None, and how long it is in the network at hand."""

    axis: str | None
    stage: int
    heads: int | None
    size: int

    def width(self) -> int:
        """The axis' width in the network at hand."""
        return self.size // 4 if self.axis == "4 before" else self.size


@dataclass(frozen=True, slots=True)
class Place:
    """One parameter of a plain network: where its shared copy is, and what its dimensions are."""

    name: str
    shared: str
    module: nn.Module
    own: str
    """Its name inside the module that declares its axes."""
    dimensions: tuple[Dimension, ...]


def places(model: Backbone, arch: Arch, path: Path, private: tuple[str, ...]) -> Iterator[Place]:
    """Every parameter of a plain network, read off the modules' declarations."""
    declared = {
        f"{prefix}.{own}" if prefix else own: (module, own)
        for prefix, module in model.named_modules()
        if isinstance(module, DECLARING)
        for own in module.axes
    }
    for name, parameter in model.named_parameters(remove_duplicate=False):  # copies of blocks share their shapes
        module, own = declared.get(name, (model, name))
        axes = module.axes.get(own, (None,) * parameter.ndim)
        stage, block, shared = _locate(name, arch, path)
        key = copy_key(own, module.follows.get(own), block, arch.patch, private)
        heads = block.heads if block is not None and "@heads" in key else None
        dimensions = tuple(
            Dimension(axis, stage, heads if axis in ("qk", "v") else None, size)
            for axis, size in zip(axes, parameter.shape, strict=True)
        )
        yield Place(name, shared + key, module, own, dimensions)


def _locate(name: str, arch: Arch, path: Path) -> tuple[int, Block | None, str]:
    """The stage and the block of a parameter, and its name on the superformer's layers."""
    parts = name.split(".")
    if parts[0] != "stages":
        return 0, None, name
    stage = int(parts[1])
    if parts[2] != "blocks":
        return stage, None, name
    place = int(parts[3])
    layer = path[stage][place]
    return stage, arch.stages[stage].blocks[place], ".".join([*parts[:3], str(layer), *parts[4:]])


def shared_shape(place: Place, widths: AxisWidths) -> tuple[int, ...]:
    """The shape of the shared parameter of a place: every axis at its longest."""
    return tuple(_longest(dimension, widths) for dimension in place.dimensions)


def _longest(dimension: Dimension, widths: AxisWidths) -> int:
    match dimension.axis:
        case None:
            return dimension.size
        case "offset":
            high, wide = widths.window(dimension.stage)
            return (2 * high - 1) * (2 * wide - 1)
        case "4 before":
            return 4 * widths.of("before", dimension.stage)[-1]
    return widths.of(dimension.axis, dimension.stage, dimension.heads)[-1]


def slice_of(place: Place, rule: SharingRule, side: int, widths: AxisWidths) -> Slice:
    """Which part of its shared parameter a network's parameter is."""
    cuts = []
    for index, dimension in enumerate(place.dimensions):
        if dimension.axis == "offset":
            assert isinstance(place.module, WindowAttention)
            pieces = middle(place.module.window, widths.window(dimension.stage))
        elif dimension.size == _longest(dimension, widths):
            continue  # the longest choice is the whole axis, whatever the rule
        else:
            assert dimension.axis is not None, f"{place.name} varies in a dimension that declares no axis"
            allowed = widths.of(dimension.axis, dimension.stage, dimension.heads)
            pieces = rule.pieces(allowed, dimension.width(), side)
            if dimension.axis == "4 before":
                pieces = tuple((part * allowed[-1] + start, n) for part in range(4) for start, n in pieces)
        cuts.append((index, pieces))
    return Slice(place.shared, tuple(cuts))


def middle(window: tuple[int, int], largest: tuple[int, int]) -> Pieces:
    """The rows of a table over the largest window's offsets that lie inside a smaller window."""
    high, wide = (2 * side - 1 for side in window)
    rows, columns = (2 * side - 1 for side in largest)
    if wide == columns:  # whole rows follow each other
        return (((rows - high) // 2 * columns, high * wide),)
    top, left = (rows - high) // 2, (columns - wide) // 2
    return tuple(((top + row) * columns + left, wide) for row in range(high))
