"""The superformer: the shared parameters of every network of a space, and nothing else.

It owns the parameters of the largest network (and private copies) and slices them into the plain model of an
architecture with `torch.func.functional_call`, on a skeleton that has no memory of its own. There are no elastic
layers, and the architecture is an argument: nothing is set, nothing needs to be reset.
"""

from __future__ import annotations

import gc
import math
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from vitruvius.arch import Arch, Block, ImageSize, image_shape, refuse, require_choice
from vitruvius.models import Backbone, build, has_no_weight_decay
from vitruvius.models.layers import KEPT_BLOCKS, Drops, TransformerBlock, embedding, seeded
from vitruvius.spaces import Path, Space, as_path
from vitruvius.superformer import _files
from vitruvius.superformer._slices import Place, Slice, places, shared_shape, slice_of
from vitruvius.superformer._widths import AxisWidths
from vitruvius.superformer.masks import can_mask, masked_forward, shares
from vitruvius.superformer.private import check_parts
from vitruvius.superformer.sharing import SharingRule, rule_named

__all__ = ["Superformer"]

How: TypeAlias = Literal["auto", "sliced", "masked"]

_MASK_UP_TO = {"cpu": 2, "cuda": 16}
"""Samples a share. Sixteen small runs wait for launches and for sixteen gradients of full size; one masked run computes
what the narrow networks lack. Where the one outweighs the other was measured (docs/superformer.md)."""


class _Skeleton(TorchFunctionMode):
    """Makes parameters on the meta device, and skips their initialisation, which is most of a build's time."""

    _MAKERS = (torch.empty, torch.zeros, torch.ones, torch.tensor)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init" or getattr(func, "__name__", "") in _FILLERS:
            return args[0] if args else kwargs["tensor"]
        if func in self._MAKERS:
            kwargs["device"] = "meta"
        return func(*args, **kwargs)


_MOST_BLOCKS = 4096
"""So many kinds of blocks are kept."""
_FILLERS = ("uniform_", "normal_", "fill_", "zero_", "erfinv_", "clamp_", "add_", "mul_")


@dataclass(frozen=True, slots=True)
class Plan:
    """How to run one architecture."""

    skeleton: Backbone
    slices: dict[str, Slice]
    buffers: dict[str, str]
    """The skeleton's state buffers, by the name of the shared ones."""


class Superformer(nn.Module):
    """One class for every family.

    sharing: "ordinal", "bilateral", "cyclic", "free", or a rule of your own.
    private: which parts have copies of their own (see `vitruvius.superformer.private`).
    img_size: the space's own unless said otherwise.
    cache: how many architectures' skeletons and slices are kept.
    seed: of the initial weights; without one they come from torch's generator.
    token_head: a second classifier, of patch tokens (token labeling).
    drops: dropout rates, as for `build`.
    """

    def __init__(
        self,
        space: Space,
        *,
        sharing: str | SharingRule = "cyclic",
        private: Collection[str] = ("class_token", "qk"),
        num_classes: int = 1000,
        img_size: ImageSize | None = None,
        in_chans: int = 3,
        cache: int = 64,
        seed: int | None = None,
        token_head: bool = False,
        **drops: float,
    ) -> None:
        super().__init__()
        if not isinstance(space, Space):
            refuse("a superformer needs a Space", type(space).__name__, "Space, say vitruvius.spaces.load('vitas-v1')")
        if isinstance(private, str) or not isinstance(private, Collection):
            refuse("private parts are given as a tuple", private, "('class_token', 'qk'), say, or () for none")
        if type(cache) is not int or cache < 1:
            refuse("cache must be a number of kept architectures", cache, "1 or more")
        Drops.named(drops)
        self.space = space
        self.rule = rule_named(sharing)
        self.private = check_parts(private)
        self.num_classes = num_classes
        self.img_size = image_shape(space.img_size if img_size is None else img_size)
        self.in_chans = in_chans
        self.token_head = token_head
        self._drops = drops
        self._cache = cache
        self._plans: OrderedDict[tuple[Arch, Path, int], Plan] = OrderedDict()
        self._blocks: dict[object, TransformerBlock] = {}
        self._widths = AxisWidths(space, self.img_size)
        self.shared = nn.ParameterDict()
        """The shared parameters, by name; dots of module paths are slashes here."""
        with seeded(seed):
            self._make_shared()

    # -- owning ----------------------------------------------------------------------------------------------------

    def _make_shared(self) -> None:
        for skeleton, found in self._probed():
            for place in found:
                if (name := _stored(place.shared)) not in self.shared:
                    tensor = _initial(place, shared_shape(place, self._widths))
                    self.shared[name] = nn.Parameter(tensor)
            for name, buffer in self._state_buffers(skeleton):
                if _stored(name) not in self._buffers:
                    fill = 1.0 if name.endswith("running_var") else 0
                    self.register_buffer(_stored(name), torch.full(buffer.shape, fill, dtype=buffer.dtype))

    def places(self) -> Iterator[Place]:
        """Every shared parameter, as a place in a network that has it; most of them several times."""
        for _, found in self._probed():
            yield from found

    def _probed(self) -> Iterator[tuple[Backbone, Iterator[Place]]]:
        for arch in self._probes():
            skeleton = self._skeleton(arch)
            path = tuple(tuple(range(len(stage.blocks))) for stage in arch.stages)
            yield skeleton, places(skeleton, arch, path, self.private)

    def _probes(self) -> Iterator[Arch]:
        """Full networks in which every choice that has parameters of its own occurs."""
        largest = self.space.largest
        for patch in self.space.patches():
            yield replace(largest, patch=patch)
        for s, stage in enumerate(largest.stages):
            for blocks in self._fillings(s):
                stages = (*largest.stages[:s], replace(stage, blocks=blocks), *largest.stages[s + 1 :])
                yield replace(largest, stages=stages)

    def _fillings(self, s: int) -> Iterator[tuple[Block, ...]]:
        """Every full stage of blocks that differs in mixers, heads or reductions from the others."""
        layout, seen = self.space.layout, set()
        deciding = {"mixer", "reduction"}
        # Where heads are not chosen, they follow from the width of q, k and v.
        deciding |= {"heads"} if "heads" in self.space.stated(self.space.stages[s]) else {"qkv", "head_dim"}
        rows = layout.full_rows(s)
        for option in layout.block_options(s):
            if any(choice for name, choice in option.items() if name not in deciding):
                continue
            for stage in self.space.decoded_stages(layout.fill(rows, s, option), s):
                kind = tuple((block.mixer, block.heads, block.reduction) for block in stage.blocks)
                if kind not in seen:
                    seen.add(kind)
                    yield stage.blocks

    def _skeleton(self, arch: Arch) -> Backbone:
        if len(self._blocks) > _MOST_BLOCKS:
            self._blocks.clear()
        token = KEPT_BLOCKS.set(self._blocks)
        try:
            with _Skeleton():
                return self._build(arch)
        finally:
            KEPT_BLOCKS.reset(token)

    def _build(self, arch: Arch) -> Backbone:
        options = {"num_classes": self.num_classes, "img_size": self.img_size, "in_chans": self.in_chans}
        model = build(arch, **options, token_head=self.token_head, **self._drops)
        assert isinstance(model, Backbone)
        return model

    @staticmethod
    def _state_buffers(skeleton: Backbone) -> Iterator[tuple[str, Tensor]]:
        """Buffers that training changes (a batch norm's); index tables and masks are not among them."""
        return (
            (f"{prefix}.{name}" if prefix else name, buffer)
            for prefix, module in skeleton.named_modules()
            for name, buffer in module._buffers.items()
            if buffer is not None and name not in module._non_persistent_buffers_set
        )

    # -- slicing ---------------------------------------------------------------------------------------------------

    def path_of(self, arch: Arch, path: Path | None = None) -> Path:
        """The path, once the space is known to hold the architecture on it."""
        return self.space.path_of(self.space.encode(arch, path))

    def plan_of(self, arch: Arch, path: Path | None, side: int) -> Plan:
        if not isinstance(arch, Arch):
            refuse("a superformer runs an Arch", type(arch).__name__, "Arch, say space.sample(rng)")
        key = (arch, () if path is None else as_path(path), side)
        found = self._plans.get(key)
        if found is not None:
            self._plans.move_to_end(key)
            return found
        taken = self.path_of(arch, path)
        with _collector_at_rest():
            plan = self._make_plan(arch, taken, side)
        self._plans[key] = plan
        while len(self._plans) > self._cache:
            self._plans.popitem(last=False)
        return plan

    def _make_plan(self, arch: Arch, path: Path, side: int) -> Plan:
        skeleton = self._skeleton(arch)
        device = next(iter(self.shared.values())).device
        for module in skeleton.modules():
            for name, buffer in module._buffers.items():
                if buffer is not None and not buffer.is_meta:
                    module._buffers[name] = buffer.to(device)
        slices = {
            place.name: slice_of(place, self.rule, side, self._widths)
            for place in places(skeleton, arch, path, self.private)
        }
        return Plan(skeleton, slices, {name: _stored(name) for name, _ in self._state_buffers(skeleton)})

    def drop_plans(self) -> None:
        """Drops the kept architectures' skeletons and slices; they are made again when they are needed."""
        self._plans.clear()

    def _apply(self, *args: Any, **kwargs: Any) -> Superformer:
        """Moving to another device or dtype; index tables of kept skeletons would stay behind."""
        self.drop_plans()
        self._blocks.clear()
        super()._apply(*args, **kwargs)
        return self

    def tensors_of(self, plan: Plan) -> dict[str, Tensor]:
        """The parameters of a plan, sliced, and its state buffers, shared."""
        return self._sliced(plan) | {name: getattr(self, stored) for name, stored in plan.buffers.items()}

    def _sliced(self, plan: Plan) -> dict[str, Tensor]:
        return {name: part.of(self.shared[_stored(part.shared)]) for name, part in plan.slices.items()}

    def parameters_of(self, arch: Arch, path: Path | None = None, side: int = 0) -> dict[str, Tensor]:
        """The parameters of the plain model of an architecture, as differentiable slices of the shared ones."""
        return self._sliced(self.plan_of(arch, path, side))

    def slices_of(self, arch: Arch, path: Path | None = None, side: int = 0) -> dict[str, Slice]:
        """Which channels of which shared parameter each parameter of the plain model is."""
        return dict(self.plan_of(arch, path, side).slices)

    def forward(self, x: Tensor, arch: Arch, path: Path | None = None, side: int = 0, **options: Any) -> Any:
        """The logits of one architecture.

        path: which layers' weights are used (identity "anywhere"); the first ones unless said otherwise.
        side: which of the sharing rule's sets of channels (two with "bilateral").
        options: of the plain model's forward (`patch_logits=True`).
        """
        plan = self.plan_of(arch, path, side)
        if plan.skeleton.training != self.training:
            plan.skeleton.train(self.training)
        # Every name has a tensor of its own here; looking for tied ones would only take time.
        return functional_call(plan.skeleton, self.tensors_of(plan), (x,), options, tie_weights=False)

    def several(
        self,
        x: Tensor,
        archs: Sequence[Arch],
        paths: Sequence[Path | None] | None = None,
        side: int = 0,
        how: How = "auto",
        **options: Any,
    ) -> Any:
        """The logits of a batch whose consecutive equal shares run different architectures (ViT-ResNAS, Section 2.3).

        how: "sliced", one run a share; "masked", one run of the largest network for all (see `masks`); "auto", the
            faster of them: masked if the architectures can be masked and a share has few samples (see `_MASK_UP_TO`).
        paths: one for each architecture (see `forward`).

        Masked, layers that no sample has get gradients of zero; sliced, they get none. For the rest, see `forward`.
        """
        require_choice("way to run several architectures", how, get_args(How))
        share = shares(len(x), len(archs))
        given = [None] * len(archs) if paths is None else paths
        if len(given) != len(archs):
            refuse("every architecture has a path", f"{len(given)} paths", f"{len(archs)}, or none at all")
        taken = [self.path_of(arch, path) for arch, path in zip(archs, given, strict=True)]
        if how == "auto" and share <= _MASK_UP_TO.get(x.device.type, 0) and can_mask(self, archs, taken, side):
            how = "masked"
        if how == "masked":
            return masked_forward(self, x, archs, taken, side, **options)
        runs = zip(x.split(share), archs, taken, strict=True)
        outputs = [self(part, arch, path, side, **options) for part, arch, path in runs]
        if isinstance(outputs[0], Tensor):
            return torch.cat(outputs)
        return tuple(torch.cat(parts) for parts in zip(*outputs, strict=True))

    @torch.jit.ignore
    def no_weight_decay(self) -> set[str]:
        """As plain models have it, by the names of `named_parameters`."""
        return {name for name, _ in self.named_parameters() if has_no_weight_decay(name.replace("/", "."))}

    @torch.no_grad()
    def extract(self, arch: Arch, path: Path | None = None, side: int = 0) -> Backbone:
        """A plain model of the architecture with a copy of its slices."""
        plan = self.plan_of(arch, path, side)
        model = self._build(arch)
        reference = next(iter(self.shared.values()))
        model.to(device=reference.device, dtype=reference.dtype).train(self.training)
        model.load_state_dict(self.tensors_of(plan))
        return model

    # -- on disk ---------------------------------------------------------------------------------------------------

    def record(self) -> dict[str, Any]:
        """What the superformer is, but for its weights, as plain data."""
        return {
            "space": self.space.to_dict(),
            "sharing": self.rule.name,
            "private": list(self.private),
            "num_classes": self.num_classes,
            "img_size": list(self.img_size),
            "in_chans": self.in_chans,
            "token_head": self.token_head,
        }

    def save(self, folder: str | FilePath) -> None:
        """Writes weights (safetensors) and record (JSON) into a folder; what is there is replaced whole."""
        _files.write(folder, self.state_dict(), self.record())

    @classmethod
    def load(cls, folder: str | FilePath, **options: Any) -> Superformer:
        """The superformer that `save` wrote; options: `cache` and dropout rates, which are not part of it."""
        saved = _files.read_record(folder)
        made = cls(
            Space.from_dict(saved["space"]),
            sharing=saved["sharing"],
            private=saved["private"],
            num_classes=saved["num_classes"],
            img_size=tuple(saved["img_size"]),
            in_chans=saved["in_chans"],
            token_head=saved["token_head"],
            **options,
        )
        made.restore(folder)
        return made

    def restore(self, folder: str | FilePath) -> None:
        """Takes the weights of a checkpoint of an equal superformer: space, rule, private parts, classes, images."""
        _files.check_records(_files.read_record(folder), self.record(), folder)
        saved, own = _files.read_tensors(folder), self.state_dict()
        _files.check_shapes(saved, own, folder)
        self.to(_files.float_dtype(saved))
        self.load_state_dict(saved)

    def extra_repr(self) -> str:
        return f"space={self.space.name!r}, sharing={self.rule.name!r}, private={self.private}"


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """A skeleton is thousands of small objects; the garbage collector would walk all of torch for them, in vain."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _stored(name: str) -> str:
    """A parameter's name as `nn.Module` may hold it."""
    return name.replace(".", "/")


def _initial(place: Place, shape: tuple[int, ...]) -> Tensor:
    """How the plain model starts such a parameter (`init_weights`, and torch's own way for convolutions)."""
    tensor = torch.empty(shape)
    owner = place.module
    *way, last = place.own.split(".")
    for part in way:
        owner = getattr(owner, part)
    if isinstance(owner, nn.LayerNorm | nn.BatchNorm2d):
        return tensor.fill_(1.0 if last == "weight" else 0.0)
    if isinstance(owner, nn.Linear) and last == "bias":
        return tensor.zero_()
    if isinstance(owner, nn.Conv2d):
        kernel = owner.weight.shape[2] * owner.weight.shape[3]
        inputs = shape[1] if last == "weight" else owner.in_channels // owner.groups
        bound = 1 / math.sqrt(inputs * kernel)
        return tensor.uniform_(-bound, bound)
    return embedding(tensor)
