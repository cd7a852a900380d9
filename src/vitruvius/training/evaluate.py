"""Accuracy of a model, or of architectures of a superformer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vitruvius.arch import ImageSize, image_shape
from vitruvius.data import Images, SearchData, eval_batches
from vitruvius.training.feed import workers_for
from vitruvius.training.processes import sums

__all__ = ["Accuracy", "Judge"]

_MEMORY = 2**30
"""So many bytes of prepared images are kept; larger sets are prepared anew each time."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Percent, and the mean cross-entropy."""

    top1: float
    top5: float
    loss: float

    def rounded(self) -> dict[str, float]:
        return {name: round(value, 6) for name, value in asdict(self).items()}


class _Batches(Dataset[tuple[Tensor, Tensor]]):
    """Batches by number, for the processes that make them."""

    def __init__(self, images: Images, indices: list[int], batch_size: int, options: dict[str, Any]) -> None:
        self._images, self._indices, self._batch_size, self._options = images, indices, batch_size, options

    def __len__(self) -> int:
        return -(-len(self._indices) // self._batch_size)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        first = number * self._batch_size
        mine = self._indices[first : first + self._batch_size]
        [batch] = eval_batches(self._images, self._batch_size, indices=mine, **self._options)
        return batch


class Judge:
    """Measures accuracy on a set of images, which several processes share."""

    def __init__(
        self,
        images: Images,
        data: SearchData,
        img_size: ImageSize,
        batch_size: int,
        accelerator: Accelerator,
        workers: int | None = None,
    ) -> None:
        self._accelerator = accelerator
        mine = range(accelerator.process_index, len(images), accelerator.num_processes)
        height, width = image_shape(img_size)
        options = {"img_size": img_size, "mean": data.mean, "std": data.std}
        self._batches: Iterable[tuple[Tensor, Tensor]]
        if len(mine) * height * width * data.in_chans * 4 <= _MEMORY:
            self._batches = eval_batches(images, batch_size, indices=list(mine), **options)
        else:
            workers = workers_for() if workers is None else workers
            pin = accelerator.device.type == "cuda"
            batches = _Batches(images, list(mine), batch_size, options)
            self._batches = DataLoader(batches, batch_size=None, num_workers=workers, pin_memory=pin)

    def __call__(self, forward: Callable[[Tensor], Tensor]) -> Accuracy:
        [found] = self.several([forward])
        return found

    @torch.no_grad()
    def several(self, forwards: Sequence[Callable[[Tensor], Tensor]]) -> list[Accuracy]:
        """Of several networks on the same batches, which are prepared once."""
        device = self._accelerator.device
        totals = torch.zeros(len(forwards), 4, dtype=torch.float64)
        for x, labels in self._batches:
            x, labels = x.to(device), labels.to(device)
            counts = torch.stack([self._counts(forward, x, labels) for forward in forwards])
            totals += counts.double().cpu()
        totals = sums(totals.to(device, torch.float32 if device.type == "mps" else torch.float64))
        return [
            Accuracy(100 * first / count, 100 * five / count, loss / count)
            for first, five, loss, count in totals.tolist()
        ]

    def _counts(self, forward: Callable[[Tensor], Tensor], x: Tensor, labels: Tensor) -> Tensor:
        """Hits, hits among five, the sum of losses, images."""
        with self._accelerator.autocast():
            logits = forward(x)
        logits = logits.float()
        hits = logits.topk(min(5, logits.shape[1])).indices == labels[:, None]
        loss = F.cross_entropy(logits, labels, reduction="sum")
        return torch.stack([hits[:, 0].sum(), hits.sum(), loss, loss.new_tensor(len(x))])
