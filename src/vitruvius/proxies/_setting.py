"""What candidates are scored on: classes, image size, seed, and the images."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from vitruvius.arch import ImageSize, image_shape, refuse, require_positive
from vitruvius.costs import check_counting
from vitruvius.proxies._keyed import Keyed, keyed

if TYPE_CHECKING:
    from vitruvius.data import SearchData

__all__ = ["Setting"]

BATCH = 16


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The same for all candidates that are compared.

    batch_size: images that a proxy of images sees.
    data: real images and labels come from its train split; without, images are random normal and labels random.
    """

    seed: int = 0
    num_classes: int = 1000
    img_size: ImageSize = 224
    in_chans: int = 3
    batch_size: int = BATCH
    data: SearchData | None = field(default=None, compare=False)
    device: str = "cpu"

    def __post_init__(self) -> None:
        if type(self.seed) is not int or self.seed < 0:
            refuse("a seed is a whole number", self.seed, "0, 1, 2, ...")
        check_counting(self.num_classes, self.in_chans)
        if self.num_classes < 1:
            refuse("proxies score networks with a classifier", self.num_classes, "num_classes of 1 or more")
        image_shape(self.img_size)
        if self.device.partition(":")[0] not in ("cpu", "cuda"):
            refuse("scores are computed on a CPU or a GPU", self.device, "cpu, cuda")
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            refuse("torch sees no GPU here", self.device, "cpu")
        require_positive("batch_size", self.batch_size)
        if self.data is not None:
            found = (len(self.data.classes), self.data.in_chans)
            if found != (self.num_classes, self.in_chans):
                refuse("num_classes and in_chans are those of the data", (self.num_classes, self.in_chans), found)
            if self.batch_size > len(self.data.train):
                refuse("a batch is drawn from the train split", self.batch_size, f"up to {len(self.data.train)}")

    @property
    def random(self) -> Keyed:
        """The random tensors of the seed."""
        return keyed(self.seed)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of an image: channels, height, width."""
        return (self.in_chans, *image_shape(self.img_size))

    @cached_property
    def images(self) -> Tensor:
        """(B, C, H, W)"""
        return self._batch[0]

    @cached_property
    def labels(self) -> Tensor:
        """(B,)"""
        return self._batch[1]

    @cached_property
    def ones(self) -> Tensor:
        """One image of ones."""
        return torch.ones(1, *self.shape, device=self.device)

    @cached_property
    def _batch(self) -> tuple[Tensor, Tensor]:
        if self.data is None:
            images = self.random.normal("images", (self.batch_size, *self.shape))
            even = (self.random.uniform("labels", (self.batch_size,)).double() + 1) / 2
            labels = (even * self.num_classes).long().clamp(0, self.num_classes - 1)
            return images.to(self.device), labels.to(self.device)
        from vitruvius.data import eval_batches

        chosen = np.random.default_rng(self.seed).permutation(len(self.data.train))[: self.batch_size]
        options = {"img_size": self.img_size, "mean": self.data.mean, "std": self.data.std, "indices": chosen}
        return eval_batches(self.data.train, self.batch_size, device=self.device, **options)[0]
