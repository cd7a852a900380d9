"""One candidate, with the passes that several proxies share: each is run when it is first asked for, and once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from vitruvius.arch import Arch
from vitruvius.models import Backbone, build
from vitruvius.models.layers import Mlp, TransformerBlock
from vitruvius.proxies._setting import Setting

__all__ = ["Candidate", "Record", "Trace", "network", "steady", "weights_of"]

Record: TypeAlias = Literal["layers", "units", "blocks"]
"""Outputs of linear and convolution layers; what goes into nonlinear units; what goes into and comes out of blocks."""


@dataclass
class Trace:
    """What a forward pass wrote down, in the order of the network; empty where nobody needs it."""

    logits: Tensor
    layers: dict[str, Tensor] = field(default_factory=dict)
    units: dict[str, Tensor] = field(default_factory=dict)
    """(B, ...): before each GELU or ReLU."""
    blocks: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """(B, N, C) each: a block's input and output."""
    convolutions: frozenset[str] = frozenset()
    """Which layers are convolutions, whose channels come second and not last."""


@contextmanager
def steady() -> Iterator[None]:
    """One thread, and attention as plain products: sums come in one order, and gradients have gradients.

    Scores are to the bit the same however many threads there are; many candidates are spread over processes instead.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.set_num_threads(threads)


def network(arch: Arch, setting: Setting, init: Literal["default", "normal"] = "default") -> Backbone:
    """The plain network with weights by key (see `_keyed`), for evaluation: dropout is off and a batch norm, whose
    statistics are those of its start, does nothing."""
    options = {"num_classes": setting.num_classes, "img_size": setting.img_size, "in_chans": setting.in_chans}
    with torch.device("meta"):
        model = build(arch, **options)
    assert isinstance(model, Backbone)
    for prefix, module in model.named_modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                made = _initial(module, name, f"{prefix}.{name}".lstrip("."), parameter.shape, setting, init)
                module._parameters[name] = nn.Parameter(made.to(setting.device, copy=True))
        if isinstance(module, nn.BatchNorm2d):
            for name, buffer in module._buffers.items():
                module._buffers[name] = torch.empty_like(buffer, device=setting.device)
            module.reset_running_stats()
    return model.to(setting.device).eval()


def _initial(
    owner: nn.Module, last: str, name: str, shape: torch.Size, setting: Setting, init: Literal["default", "normal"]
) -> Tensor:
    """Distributed as `build` distributes it; with "normal", weights of linear and convolution layers are N(0, 1)."""
    if isinstance(owner, nn.LayerNorm | nn.BatchNorm2d):
        return torch.ones(shape) if last == "weight" else torch.zeros(shape)
    layer = isinstance(owner, nn.Linear | nn.Conv2d)
    if layer and last == "bias" and (init == "normal" or isinstance(owner, nn.Linear)):
        return torch.zeros(shape)
    if layer and init == "normal":
        return setting.random.normal(name, tuple(shape))
    if isinstance(owner, nn.Conv2d):
        return setting.random.uniform(name, tuple(shape)) / math.sqrt(owner.weight[0].numel())
    return setting.random.normal(name, tuple(shape)) * 0.02


def weights_of(model: nn.Module) -> dict[str, nn.Parameter]:
    """The weights, no biases, of linear and convolution layers, by name: what the saliencies are summed over."""
    return {
        f"{name}.weight": module.weight
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | nn.Conv2d)
    }


class Candidate:
    """An architecture about to be scored.

    records: what all proxies together want written down of the shared forward pass.
    order: how often any of them differentiates it.
    """

    def __init__(self, arch: Arch, setting: Setting, records: frozenset[Record] = frozenset(), order: int = 1) -> None:
        self.arch, self.setting = arch, setting
        self._records, self._order = records, order

    @cached_property
    def model(self) -> Backbone:
        """With its weights as `build` distributes them. Shared: leave it as it is."""
        return network(self.arch, self.setting)

    @cached_property
    def weights(self) -> dict[str, nn.Parameter]:
        return weights_of(self.model)

    @cached_property
    def trace(self) -> Trace:
        """The forward pass of the setting's images."""
        with torch.set_grad_enabled(self._order > 0):
            return traced(self.model, self.setting.images, self._records)

    @cached_property
    def loss(self) -> Tensor:
        """Cross-entropy, the mean over the images."""
        return F.cross_entropy(self.trace.logits, self.setting.labels)

    @cached_property
    def gradients(self) -> dict[str, Tensor]:
        """Of the loss, by the names of the weights and of the recorded layers ("layers.NAME" for an output)."""
        wanted: dict[str, Tensor] = {**self.weights, **{f"layers.{n}": out for n, out in self.trace.layers.items()}}
        found = torch.autograd.grad(
            self.loss, list(wanted.values()), create_graph=self._order > 1, retain_graph=True, materialize_grads=True
        )
        return dict(zip(wanted, found, strict=True))

    @cached_property
    def agreement(self) -> Tensor:
        """(B, B): in how many nonlinear units two images are on the same side of zero; all units, on the diagonal."""
        return _agreement(self.trace)


def _agreement(trace: Trace) -> Tensor:
    images = len(trace.logits)
    total = torch.zeros(images, images, dtype=torch.float64, device=trace.logits.device)
    for units in trace.units.values():
        # Counts are whole numbers, which float32 adds exactly up to 2^24.
        for part in (units.detach().flatten(1) > 0).float().split(2**23, dim=1):
            total += part @ part.T
            total += (1 - part) @ (1 - part).T
    return total


def traced(model: Backbone, images: Tensor, records: frozenset[Record]) -> Trace:
    """A forward pass that writes down what is asked for."""
    trace = Trace(logits=torch.empty(0))
    handles = []

    def keep(store: dict[str, Tensor], name: str, of_input: bool = False) -> Any:
        def hook(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            store[name] = inputs[0] if of_input else output

        return hook

    def block(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        trace.blocks.append((inputs[0], output))

    for name, module in model.named_modules():
        if "layers" in records and isinstance(module, nn.Linear | nn.Conv2d):
            if isinstance(module, nn.Conv2d):
                trace.convolutions |= {name}
            handles.append(module.register_forward_hook(keep(trace.layers, name)))
        if "units" in records and isinstance(module, Mlp):
            handles.append(module.fc1.register_forward_hook(keep(trace.units, f"{name}.fc1")))
        if "units" in records and isinstance(module, nn.ReLU):
            handles.append(module.register_forward_hook(keep(trace.units, name, of_input=True)))
        if "blocks" in records and isinstance(module, TransformerBlock):
            handles.append(module.register_forward_hook(block))
    try:
        trace.logits = model(images)
    finally:
        for handle in handles:
            handle.remove()
    return trace
