"""Accuracy of a model, or of architectures of a superformer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor

from vitruvius.arch import ImageSize, image_shape
from vitruvius.data import Images, SearchData, eval_batches, stream_batches
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


class Judge:
    """Measures accuracy on a set of images, which several processes share."""

    def __init__(
        self, images: Images, data: SearchData, img_size: ImageSize, batch_size: int, accelerator: Accelerator
    ) -> None:
        self._accelerator = accelerator
        mine = range(accelerator.process_index, len(images), accelerator.num_processes)
        height, width = image_shape(img_size)
        self._options = {"img_size": img_size, "mean": data.mean, "std": data.std, "indices": list(mine)}
        self._images, self._batch_size = images, batch_size
        small = len(mine) * height * width * data.in_chans * 4 <= _MEMORY
        self._kept = eval_batches(images, batch_size, **self._options) if small else None

    def _batches(self) -> Iterable[tuple[Tensor, Tensor]]:
        return self._kept or stream_batches(self._images, self._batch_size, **self._options)

    @torch.no_grad()
    def __call__(self, forward: Callable[[Tensor], Tensor]) -> Accuracy:
        device = self._accelerator.device
        totals = torch.zeros(4, dtype=torch.float64)
        for x, labels in self._batches():
            x, labels = x.to(device), labels.to(device)
            with self._accelerator.autocast():
                logits = forward(x)
            logits = logits.float()
            hits = logits.topk(min(5, logits.shape[1])).indices == labels[:, None]
            loss = F.cross_entropy(logits, labels, reduction="sum")
            counts = torch.stack([hits[:, 0].sum(), hits.sum(), loss]).double().cpu()
            totals += torch.cat([counts, torch.tensor([len(x)], dtype=torch.float64)])
        first, five, loss, count = sums(totals.to(torch.float64 if device.type != "mps" else torch.float32)).tolist()
        return Accuracy(100 * first / count, 100 * five / count, loss / count)
