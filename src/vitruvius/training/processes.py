"""Several processes train as one.

Gradients are averaged here rather than by DistributedDataParallel: a step may have several backward passes, each with
other parameters in use, and what no architecture of the step uses must keep no gradient at all, lest it decay. All
processes run the same architectures in a step, so that the parameters with a gradient are the same everywhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor, nn

from vitruvius.arch import refuse
from vitruvius.training.config import Settings
from vitruvius.training.strategies import Pass

__all__ = ["agree", "make_accelerator", "mean_gradients", "sums"]

_BUCKET = 2**24
"""So many numbers are sent at once."""


def make_accelerator(config: Settings) -> Accelerator:
    if config.device not in (None, "cpu", "cuda", "mps"):
        refuse("unknown device", config.device, "cpu, cuda, mps, or none to choose the best there is")
    AcceleratorState._reset_state()  # a process may train twice, and in another precision
    accelerator = Accelerator(mixed_precision=config.mixed_precision, cpu=config.device == "cpu")
    if config.device not in (None, accelerator.device.type):
        refuse("this device is not here", config.device, f"{accelerator.device.type}, or leave it out")
    return accelerator


def agree(step: int, passes: Sequence[Pass], sound: bool, device: torch.device) -> bool:
    """Whether the loss was finite on every process, once all of them are known to train the same architectures."""
    if not dist.is_initialized():
        return sound
    text = repr((step, [([arch.id for arch in each.archs], each.paths, each.side) for each in passes]))
    word = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")
    told = torch.tensor([word, -word, int(sound)], dtype=torch.int64, device=device)
    dist.all_reduce(told, dist.ReduceOp.MIN)
    if told[0] != -told[1]:
        raise RuntimeError(
            f"step {step}: the processes do not train the same architectures (this one: {text[:200]}); they must be "
            "started with the same configuration and the same version of Vitruvius"
        )
    return bool(told[2])


@torch.no_grad()
def mean_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Every process gets the mean of the processes' gradients."""
    if not dist.is_initialized():
        return
    bucket: list[Tensor] = []
    for gradient in [p.grad for p in parameters if p.grad is not None]:
        if bucket and (
            sum(g.numel() for g in bucket) + gradient.numel() > _BUCKET or gradient.dtype != bucket[0].dtype
        ):
            _mean_together(bucket)
            bucket = []
        bucket.append(gradient)
    if bucket:
        _mean_together(bucket)


def _mean_together(gradients: list[Tensor]) -> None:
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    parts = flat.split([gradient.numel() for gradient in gradients])
    torch._foreach_copy_(gradients, [part.view_as(g) for part, g in zip(parts, gradients, strict=True)])


def sums(values: Tensor) -> Tensor:
    """The sum over all processes."""
    if dist.is_initialized():
        dist.all_reduce(values)
    return values
