"""Several processes train as one.

Gradients are averaged here rather than by DistributedDataParallel: a step may have several backward passes, each with
other parameters in use, and what no architecture of the step uses must keep no gradient at all, lest it decay. All
processes run the same architectures in a step, so that the parameters with a gradient are the same everywhere.
"""

from __future__ import annotations

import atexit
import hashlib
from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState
from torch import Tensor

from vitruvius.arch import refuse
from vitruvius.training.config import Settings
from vitruvius.training.strategies import Pass

__all__ = ["agree", "average", "make_accelerator", "sums"]

_BUCKET = 2**24
"""So many numbers are sent at once."""


def make_accelerator(config: Settings) -> Accelerator:
    if config.device not in (None, "cpu", "cuda", "mps"):
        refuse("unknown device", config.device, "cpu, cuda, mps, or none to choose the best there is")
    here = PartialState(cpu=config.device == "cpu").device.type
    if config.device not in (None, here):
        refuse("this device is not here", config.device, f"{here}, or leave it out")
    if config.mixed_precision == "fp16" and here != "cuda":
        refuse(f"half precision of this kind does not train on {here}", "fp16", "no, bf16")
    if dist.is_initialized():
        atexit.register(_leave)
    AcceleratorState._reset_state()  # a process may train twice, and in another precision
    return Accelerator(mixed_precision=config.mixed_precision, cpu=config.device == "cpu")


def _leave() -> None:
    """Else threads that wait for the other processes may be met by the end of this one, which aborts it."""
    if dist.is_initialized():
        dist.destroy_process_group()


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
def average(tensors: Iterable[Tensor]) -> None:
    """Every process gets the mean of the processes' tensors, in place."""
    if not dist.is_initialized():
        return
    bucket: list[Tensor] = []
    for tensor in tensors:
        if bucket and (sum(t.numel() for t in bucket) + tensor.numel() > _BUCKET or tensor.dtype != bucket[0].dtype):
            _average_together(bucket)
            bucket = []
        bucket.append(tensor)
    if bucket:
        _average_together(bucket)


def _average_together(tensors: list[Tensor]) -> None:
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    parts = flat.split([tensor.numel() for tensor in tensors])
    torch._foreach_copy_(tensors, [part.view_as(t) for part, t in zip(parts, tensors, strict=True)])


def sums(values: Tensor) -> Tensor:
    """The sum over all processes."""
    if dist.is_initialized():
        dist.all_reduce(values)
    return values
