"""The optimiser, the learning rate as a function of the step, and the moving average of the weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from timm.optim import param_groups_weight_decay
from torch import Tensor, nn

from vitruvius.models import Backbone
from vitruvius.superformer import Superformer
from vitruvius.training.config import Settings

__all__ = ["MovingAverage", "learning_rate", "make_optimizer", "peak_rate"]


def make_optimizer(model: Backbone | Superformer, config: Settings) -> torch.optim.Optimizer:
    """No decay on biases, norms, class tokens and position embeddings.

    Parameters that a step does not use have no gradient, and are left alone, decay included.
    """
    groups = param_groups_weight_decay(model, config.weight_decay, no_weight_decay_list=tuple(model.no_weight_decay()))
    rate = peak_rate(config)
    # One kernel for all parameters: a quarter of a nano network's step is the loop over them otherwise. SGD's fused one
    # fails where some parameters have no momentum yet, as those of architectures that no step has drawn so far.
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=rate, momentum=config.momentum, nesterov=config.momentum > 0, foreach=True)
    fused = next(model.parameters()).device.type in ("cpu", "cuda")
    return torch.optim.AdamW(groups, lr=rate, betas=config.betas, eps=config.eps, fused=fused)


def peak_rate(config: Settings) -> float:
    """The learning rate of this run's number of images a step."""
    return config.lr * config.batch_size / (config.lr_reference_batch or config.batch_size)


def learning_rate(config: Settings, step: int, steps_per_epoch: int) -> float:
    """Linear warm-up, then a constant, or a cosine over the whole run (timm's: the warm-up hides its beginning)."""
    peak, warmup = peak_rate(config), config.warmup_epochs * steps_per_epoch
    if step < warmup:
        return config.warmup_lr + (peak - config.warmup_lr) * step / warmup
    if config.schedule == "constant":
        return peak
    part = step / (config.epochs * steps_per_epoch)
    return config.min_lr + (peak - config.min_lr) * (1 + math.cos(math.pi * part)) / 2


class MovingAverage:
    """An exponential moving average of a model's floating point state."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.tensors = {name: tensor.detach().clone() for name, tensor in _floats(model)}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        averages = list(self.tensors.values())
        torch._foreach_lerp_(averages, [tensor.detach() for _, tensor in _floats(model)], 1 - self.decay)

    @torch.no_grad()
    def load(self, tensors: dict[str, Tensor]) -> None:
        for name, tensor in self.tensors.items():
            tensor.copy_(tensors[name])

    @contextmanager
    def worn_by(self, model: nn.Module) -> Iterator[None]:
        """The model has the averages inside, and its own weights afterwards."""
        own = {name: tensor.detach().clone() for name, tensor in _floats(model)}
        self._put(model, self.tensors)
        try:
            yield
        finally:
            self._put(model, own)

    @staticmethod
    @torch.no_grad()
    def _put(model: nn.Module, tensors: dict[str, Tensor]) -> None:
        for name, tensor in _floats(model):
            tensor.copy_(tensors[name])


def _floats(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return ((name, tensor) for name, tensor in model.state_dict().items() if tensor.is_floating_point())
