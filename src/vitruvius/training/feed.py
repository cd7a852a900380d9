"""Batches as a pure function of the step: what a resumed run sees is what it would have seen.

The images of a step are the same however many processes share them: process r takes every n-th image from the r-th on,
so that consecutive shares of the whole batch (of several architectures) stay together on every process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vitruvius.arch import refuse
from vitruvius.data import Augment, Images

__all__ = ["Batch", "Feed", "Order", "usable_cores", "workers_for"]

Batch: TypeAlias = tuple[Tensor, ...]
"""Images, what they are labelled with, and with token labeling what their patches are labelled with."""
Label: TypeAlias = Callable[[Tensor, Tensor, tuple[int, ...]], Batch]
"""From images, labels and a key to a batch: mixing, smoothing."""

_MOST_WORKERS = 8
_TOGETHER = 2**17
"""Numbers."""


@dataclass(frozen=True, slots=True)
class Order:
    """Which images each step sees."""

    images: int
    batch_size: int
    seed: int
    copies: int = 1
    """Repeated augmentation: an epoch has as many samples as there are images, but so many of each it sees."""

    def __post_init__(self) -> None:
        if self.batch_size > self.images:
            refuse("a step's images must be there", f"batch_size {self.batch_size}", f"up to {self.images} images")

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches; the images that are left over differ from epoch to epoch."""
        return self.images // self.batch_size

    def of(self, step: int) -> tuple[np.ndarray, list[tuple[int, ...]]]:
        """The indices of a step's images, and the keys of their augmentation."""
        epoch, place = divmod(step, self.steps_per_epoch)
        first = place * self.batch_size
        positions = range(first, first + self.batch_size)
        return _shuffled(self, epoch)[first : first + self.batch_size], [(self.seed, epoch, p) for p in positions]


@lru_cache(maxsize=2)
def _shuffled(order: Order, epoch: int) -> np.ndarray:
    shuffled = np.random.default_rng((order.seed, epoch)).permutation(order.images)
    return np.repeat(shuffled, order.copies)[: order.images] if order.copies > 1 else shuffled


class Feed(Dataset[Batch]):
    """The batches of one process, by step."""

    def __init__(
        self, images: Images, augment: Augment, label: Label, order: Order, process: int = 0, processes: int = 1
    ) -> None:
        if order.batch_size % processes:
            refuse(f"{processes} processes share a step's images evenly", order.batch_size, f"{processes} x n")
        self.images, self.augment, self.label, self.order = augment.prepare(images), augment, label, order
        self.process, self.processes = process, processes

    def __getitem__(self, step: int) -> Batch:
        [batch] = self._several(range(step, step + 1))
        return batch

    def _several(self, steps: range) -> Iterator[Batch]:
        """The batches of some steps, augmented at once, which changes no sample."""
        mine = slice(self.process, None, self.processes)
        orders = [self.order.of(step) for step in steps]
        indices = np.concatenate([indices[mine] for indices, _ in orders])
        x = self.augment(self.images, indices, [key for _, keys in orders for key in keys[mine]])
        labels = torch.from_numpy(self.images.labels[indices])
        size = len(indices) // len(steps)
        for step, part, own in zip(steps, x.split(size), labels.split(size), strict=True):
            yield self.label(part, own, (self.order.seed, step, self.process))

    def _together(self) -> int:
        """So many steps' images are prepared at once; a nano network's step would pay some percent for its own."""
        pixels = self.augment.shape[0] * self.augment.shape[1] * len(self.augment.mean)
        return max(1, _TOGETHER * self.processes // (self.order.batch_size * pixels))

    def batches(self, first: int, last: int, workers: int | None, pin: bool = False) -> Iterator[Batch]:
        """The batches of steps first..last-1. workers: None chooses, none for images that are in memory."""
        if workers is None:
            workers = 0 if self.images.in_memory and self.augment.weak else workers_for()
        steps = range(first, last)
        if not workers and not pin:
            several = self._together()
            parts = (steps[i : i + several] for i in range(0, len(steps), several))
            return chain.from_iterable(map(self._several, parts))
        return iter(DataLoader(self, batch_size=None, sampler=steps, num_workers=workers, pin_memory=pin))


def usable_cores() -> int:
    """Those of the machine that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def workers_for() -> int:
    """Processes that load images for one training process, of those that share this machine."""
    return max(1, min(_MOST_WORKERS, usable_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
