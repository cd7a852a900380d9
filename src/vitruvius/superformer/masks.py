"""Different architectures for different samples of one batch (ViT-ResNAS, Section 2.3), by masks.

The largest plain model runs once. Each sample sees only its own channels: what a layer adds to the residual stream is
masked, what the output projections of attention and MLP read is masked, layer norms have the statistics of the narrow
network, and blocks that a sample lacks pass it by. Which channels are whose is read off the modules' declared axes, as
the slices are, so that masked and sliced execution agree. Between the stages of ViT-Res and PiT channels are carried
over by their places in the narrow network, which are not their places in the largest: there they are moved.

What one run of the largest network cannot do is refused: samples with other patches, mixers, windows or heads of other
widths, and parts that are private to a choice in which the samples differ. Batch norms (the stem of ViT-Res) see the
whole batch, not one architecture's samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from vitruvius.arch import Arch, Block, refuse
from vitruvius.models.layers import StageBlocks, TransformerBlock
from vitruvius.models.pit import Pooling
from vitruvius.models.resvit import SpatialReduction
from vitruvius.models.twins import PositionConv
from vitruvius.spaces import Path
from vitruvius.superformer._slices import DECLARING, Slice
from vitruvius.superformer.sharing import Pieces

if TYPE_CHECKING:
    from vitruvius.superformer.superformer import Superformer

__all__ = ["can_mask", "masked_forward", "masked_layer_norm", "shares"]

_READ_MASKED = ("v", "mlp")
"""Axes of which a layer reads only its own network's channels: the inputs of the two output projections."""
_STREAM = ("dim", "first", "last", "before", "4 before")


def masked_layer_norm(x: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Layer norm over the channels that the mask keeps; the others are zero before and after."""
    kept = mask.sum(dim=-1, keepdim=True)
    mean = (x * mask).sum(dim=-1, keepdim=True) / kept
    centred = (x - mean) * mask
    variance = centred.square().sum(dim=-1, keepdim=True) / kept
    return (centred * (variance + eps).rsqrt() * weight + bias) * mask


def masked_forward(
    superformer: Superformer, x: Tensor, archs: Sequence[Arch], paths: Sequence[Path], side: int = 0, **options: Any
) -> Any:
    """Logits of a batch in which sample i runs archs[i] (or, with fewer, consecutive equal shares run each)."""
    share = shares(len(x), len(archs))
    plan = superformer.plan_of(_checked_base(superformer, archs, paths, side), None, side)
    plans = [superformer.plan_of(arch, path, side).slices for arch, path in zip(archs, paths, strict=True)]
    masks = _Masks(superformer, plan.slices, plans, paths, share, x)
    skeleton = plan.skeleton
    skeleton.train(superformer.training)
    with ExitStack() as hooks:
        for handle in masks.hooks(skeleton):
            hooks.callback(handle.remove)
        return functional_call(skeleton, superformer.tensors_of(plan), (x,), options, tie_weights=False)


def can_mask(superformer: Superformer, archs: Sequence[Arch], paths: Sequence[Path], side: int = 0) -> bool:
    """Whether one run of the largest network can stand for all these architectures."""
    try:
        _checked_base(superformer, archs, paths, side)
    except ValueError:
        return False
    return True


def _checked_base(superformer: Superformer, archs: Sequence[Arch], paths: Sequence[Path], side: int) -> Arch:
    base = _base(superformer, archs, paths)
    plans = [superformer.plan_of(arch, path, side).slices for arch, path in zip(archs, paths, strict=True)]
    _check(superformer, base, archs, paths, plans, superformer.plan_of(base, None, side).slices)
    return base


def shares(batch: int, archs: int) -> int:
    """How many consecutive samples each architecture has."""
    if not archs or batch % archs:
        refuse("the architectures must share the batch evenly", f"{archs} for {batch} images", "a divisor of the batch")
    return batch // archs


def _base(superformer: Superformer, archs: Sequence[Arch], paths: Sequence[Path]) -> Arch:
    """The largest network, with the mixers and windows that the architectures have on each of its layers."""
    layout = superformer.space.layout
    vector = superformer.space.encode(superformer.space.largest)
    for arch, path in zip(archs, paths, strict=True):
        own = superformer.space.encode(arch, path)
        for column, gene in enumerate(layout.genes):
            shared = gene.parameter in ("mixer", "window", "reduction") and (
                gene.layer < 0 or gene.layer in path[gene.stage]
            )
            if gene.parameter == "patch" or shared:
                vector[column] = own[column]
    return superformer.space.decode(vector)


def _check(
    superformer: Superformer,
    base: Arch,
    archs: Sequence[Arch],
    paths: Sequence[Path],
    plans: Sequence[dict[str, Slice]],
    whole: dict[str, Slice],
) -> None:
    rule = "masked execution runs one network for all samples"
    if superformer.space.attn_scale == "embed":
        refuse(f"{rule}, and attn_scale 'embed' differs with their widths", "embed", "sliced execution, or 'head'")
    for name, part in whole.items():
        if name.endswith(".weight") and part.cuts:
            refuse(
                f"{rule}, which must have every channel of {name}",
                f"{superformer.space.name!r}, whose widest stages cannot follow each other",
                "sliced execution",
            )
    names = {part.shared for part in whole.values()}
    for arch, path, slices in zip(archs, paths, plans, strict=True):
        if other := sorted({part.shared for part in slices.values()} - names):
            refuse(
                f"{rule}, so they must share every part", other[0], "equal patches, and no private parts that differ"
            )
        for s, stage in enumerate(arch.stages):
            for layer, block in zip(path[s], stage.blocks, strict=True):
                if _kind(block) != _kind(base.stages[s].blocks[layer]):
                    refuse(
                        f"{rule}, so stage{s + 1}.block{layer + 1} must have one mixer, window and width of heads",
                        _kind(block),
                        _kind(base.stages[s].blocks[layer]),
                    )
        _check_heads(arch, slices)


def _kind(block: Block) -> tuple[object, ...]:
    return (block.mixer, block.window, block.reduction, block.qk // block.heads, block.v // block.heads)


def _check_heads(arch: Arch, slices: dict[str, Slice]) -> None:
    """Heads must be cut whole."""
    for name, part in slices.items():
        if name.endswith(("attn.q.weight", "attn.v.weight")):
            stage, place = (int(number) for number in name.split(".")[1:4:2])
            block = arch.stages[stage].blocks[place]
            unit = (block.qk if ".q." in name else block.v) // block.heads
            pieces = dict(part.cuts).get(0, ())
            if any(start % unit or length % unit for start, length in pieces):
                refuse(
                    f"masked execution needs whole heads, of {unit} channels", pieces, "a rule that cuts heads whole"
                )


class _Masks:
    """The masks of a batch, by axis, stage and layer, and the hooks that apply them."""

    def __init__(
        self,
        superformer: Superformer,
        whole: dict[str, Slice],
        plans: Sequence[dict[str, Slice]],
        paths: Sequence[Path],
        share: int,
        x: Tensor,
    ) -> None:
        self._superformer, self._whole, self._plans, self._paths, self._share = superformer, whole, plans, paths, share
        reference = next(iter(superformer.shared.values()))
        self._options = {"device": x.device, "dtype": reference.dtype}

    def _local(self, name: str, path: Path) -> str | None:
        """A parameter's name in the narrow network; None where it lacks the block."""
        parts = name.split(".")
        if parts[0] == "stages" and parts[2] == "blocks":
            layers = path[int(parts[1])]
            if int(parts[3]) not in layers:
                return None
            parts[3] = str(layers.index(int(parts[3])))
        return ".".join(parts)

    def of(self, name: str, dimension: int, length: int) -> Tensor | None:
        """(batch, length): which channels of a parameter's dimension each sample has; None if all have all."""
        rows = []
        for plan, path in zip(self._plans, self._paths, strict=True):
            local = self._local(name, path)
            cuts = dict(plan[local].cuts) if local in plan else {}
            rows.append(cuts.get(dimension, ((0, length),)))
        if all(row == ((0, length),) for row in rows):
            return None
        return (
            torch.stack([_row(pieces, length) for pieces in rows]).to(**self._options).repeat_interleave(self._share, 0)
        )

    def samples(self, has: list[bool]) -> Tensor | None:
        """(batch, 1, 1): which samples are of an architecture that has something; None if all are."""
        if all(has):
            return None
        found = torch.tensor(has, device=self._options["device"]).repeat_interleave(self._share)
        return found[:, None, None]

    def hooks(self, model: nn.Module) -> list[Any]:
        handles = []
        for prefix, module in model.named_modules():
            if isinstance(module, SpatialReduction | Pooling):
                handles += self._carrying_hooks(module, f"{prefix}.token.weight")  # before the masks of what comes out
            for own, names in module.axes.items() if isinstance(module, DECLARING) else ():
                owner_name, _, kind = own.rpartition(".")
                if kind == "weight" and (leaf := _find(module, owner_name)) is not None:
                    full = f"{prefix}.{own}" if prefix else own
                    if full in self._whole:
                        handles += self._leaf_hooks(leaf, full, names)
            if isinstance(module, SpatialReduction):
                handles += self._position_hooks(module, f"{prefix}.pos_embed")
            if isinstance(module, StageBlocks):
                handles += self._skip_hooks(module, int(prefix.split(".")[1]), prefix)
        handles += self._token_hooks(model)
        return handles

    def _leaf_hooks(self, leaf: nn.Module, name: str, axes: tuple[str | None, ...]) -> list[Any]:
        weight = leaf.weight
        assert isinstance(weight, Tensor)
        handles: list[Any] = []
        out = self.of(name, 0, weight.shape[0]) if axes[0] in _STREAM else None
        if isinstance(leaf, nn.LayerNorm):
            if out is not None:
                handles.append(leaf.register_forward_hook(lambda m, args, _, k=out: _normed(m, args[0], k)))
            return handles
        if out is not None:
            # Tokens have channels last; a convolution has them second, but Twins' positions, which are tokens again.
            last = isinstance(leaf, nn.Linear | PositionConv)
            shaped = out[:, None, :] if last else out[:, :, None, None]
            handles.append(leaf.register_forward_hook(lambda m, args, y, k=shaped: y * _fit(k, y)))
        if len(axes) > 1 and axes[1] in _READ_MASKED and (read := self.of(name, 1, weight.shape[1])) is not None:
            shaped_in = read[:, None, :]
            handles.append(leaf.register_forward_pre_hook(lambda m, args, k=shaped_in: (args[0] * _fit(k, args[0]),)))
        return handles

    def _skip_hooks(self, stage: StageBlocks, s: int, prefix: str) -> list[Any]:
        handles = []
        for layer, block in enumerate(stage.blocks):
            assert isinstance(block, TransformerBlock)
            if (here := self.samples([layer in path[s] for path in self._paths])) is not None:
                handles.append(block.register_forward_hook(lambda m, args, y, k=here: torch.where(k, y, args[0])))
        if isinstance(stage.position, PositionConv):
            handles += self._late_position_hooks(stage, stage.position, s, f"{prefix}.position.weight")
        return handles

    def _late_position_hooks(self, stage: StageBlocks, position: PositionConv, s: int, name: str) -> list[Any]:
        """Twins' positions stand behind a sample's own first block, which need not be the stage's first layer."""
        firsts = [path[s][0] if path[s] else None for path in self._paths]
        if (at_once := self.samples([first == 0 for first in firsts])) is None:
            return []
        channels = self.of(name, 0, position.out_channels)
        keep = 1.0 if channels is None else channels[:, None, :]

        def late(block: nn.Module, args: tuple[Any, ...], y: Tensor, *, own: Tensor) -> Tensor:
            return torch.where(own, PositionConv.forward(position, y, args[1]) * keep, y)  # without the hook below

        handles = [position.register_forward_hook(lambda m, args, y, k=at_once: torch.where(k, y, args[0]))]
        for layer in {first for first in firsts if first}:
            own = self.samples([first == layer for first in firsts])
            own = torch.ones_like(at_once) if own is None else own
            handles.append(stage.blocks[layer].register_forward_hook(partial(late, own=own)))
        return handles

    def _position_hooks(self, reduction: SpatialReduction, name: str) -> list[Any]:
        """Its new positions are a parameter, not a layer, and are added inside: what comes out is masked."""
        if (mask := self.of(name, 2, reduction.pos_embed.shape[2])) is None:
            return []
        return [reduction.register_forward_hook(lambda m, args, y, k=mask[:, None, :]: (y[0] * k, y[1]))]

    def _carrying_hooks(self, module: SpatialReduction | Pooling, name: str) -> list[Any]:
        """A narrow network's channels stand by their order between stages; ordinal ones stand so in the largest too."""
        sizes, origins = module.token.weight.shape, _pooled if isinstance(module, Pooling) else _padded
        rows = []
        for plan in self._plans:
            cuts = dict(plan[name].cuts)
            rows.append(origins(*sizes, *(_channels(cuts.get(i, ((0, size),))) for i, size in enumerate(sizes))))
        if all(row == origins(*sizes, [], []) for row in rows):
            return []
        index = torch.tensor(rows, device=self._options["device"]).repeat_interleave(self._share, 0)
        if isinstance(module, Pooling):
            return [module.conv.register_forward_hook(lambda conv, args, _: _pool(conv, args[0], index))]
        if module.main is None:
            return []
        return [module.main.register_forward_hook(lambda m, args, y: y.gather(2, index[:, None, :].expand_as(y)))]

    def _token_hooks(self, model: nn.Module) -> list[Any]:
        """Class token and positions are parameters, not layers: their sum is masked where it enters the stages."""
        name = next((n for n in ("cls_token", "pos_embed") if n in self._whole), None)
        drop = model.get_submodule("pos_drop")
        if name is None or (mask := self.of(name, 2, model.get_parameter(name).shape[2])) is None:
            return []
        return [drop.register_forward_hook(lambda m, args, y, k=mask[:, None, :]: y * k)]


def _channels(pieces: Pieces) -> list[int]:
    return [start + i for start, length in pieces for i in range(length)]


def _padded(after: int, before: int, target: list[int], source: list[int]) -> list[int]:
    """Of the zero-padded channels, the one that each channel of a wider stage is in a narrow network."""
    row = list(range(after))
    zero = next((channel for channel in range(after) if channel not in source), 0)
    for place, channel in enumerate(target):
        if place < len(source):
            row[channel] = source[place]
        elif channel in source:
            row[channel] = zero
    return row


def _pooled(after: int, before: int, target: list[int], source: list[int]) -> list[int]:
    """The channel that each channel of the next stage is pooled from in a narrow network."""
    row = [channel * before // after for channel in range(after)]
    for place, channel in enumerate(target):
        row[channel] = source[place * len(source) // len(target)]
    return row


def _pool(conv: nn.Conv2d, x_BCHW: Tensor, index: Tensor) -> Tensor:
    """The depthwise convolution, every sample's channels read from where its index says."""
    x_BCHW = x_BCHW.gather(1, index[:, :, None, None].expand(-1, -1, *x_BCHW.shape[2:]))
    return F.conv2d(x_BCHW, conv.weight, conv.bias, conv.stride, conv.padding, groups=conv.out_channels)


@lru_cache(maxsize=4096)
def _row(pieces: tuple[tuple[int, int], ...], length: int) -> Tensor:
    row = torch.zeros(length)
    for start, width in pieces:
        row[start : start + width] = 1.0
    return row


def _find(module: nn.Module, name: str) -> nn.Module | None:
    """A submodule by its dotted name ("": the module itself)."""
    for part in name.split(".") if name else ():
        found = module._modules.get(part)
        if found is None:
            return None
        module = found
    return module


def _fit(mask: Tensor, y: Tensor) -> Tensor:
    """A (batch, 1, C) mask for tokens of any number of dimensions between (windows have one more)."""
    while mask.ndim < y.ndim:
        mask = mask.unsqueeze(1)
    return mask


def _normed(norm: nn.LayerNorm, x: Tensor, mask: Tensor) -> Tensor:
    return masked_layer_norm(x, _fit(mask[:, None, :], x), norm.weight, norm.bias, norm.eps)
