"""Mixup, CutMix and label smoothing, as a function of a batch and a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from timm.data.mixup import Mixup, mixup_target
from torch import Tensor

from vitruvius.arch import refuse, require_choice, require_positive
from vitruvius.data._keys import hashes, lent_generators

Mode = Literal["batch", "pair", "elem"]


@dataclass(frozen=True, kw_only=True)
class Mix:
    """timm's `Mixup`, whose random numbers come from the key; settings named as timm names them.

    switch_prob: of CutMix where both are on; prob: that a batch (pair, element: `mode`) is mixed at all.
    """

    num_classes: int
    mixup_alpha: float = 0.0
    cutmix_alpha: float = 0.0
    cutmix_minmax: tuple[float, float] | None = None
    prob: float = 1.0
    switch_prob: float = 0.5
    mode: Mode = "batch"
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        require_positive("num_classes", self.num_classes)
        require_choice("mode of mixing", self.mode, get_args(Mode))
        for name in ("mixup_alpha", "cutmix_alpha"):
            if not 0 <= getattr(self, name) < float("inf"):
                refuse(f"{name} is a parameter of a beta distribution", getattr(self, name), "0 (off), or above")
        for name in ("prob", "switch_prob", "label_smoothing"):
            if not 0 <= getattr(self, name) <= 1:
                refuse(f"{name} must be a probability", getattr(self, name), "0 to 1")
        if self.cutmix_minmax is not None:
            low, high = self.cutmix_minmax
            if not 0 < low < high <= 1:
                refuse("cutmix_minmax is a range of shares of the side", self.cutmix_minmax, "0 < low < high <= 1")
            object.__setattr__(self, "cutmix_minmax", (float(low), float(high)))

    @property
    def mixes(self) -> bool:
        """Whether images are mixed; else labels are only smoothed."""
        return bool(self.prob and (self.mixup_alpha or self.cutmix_alpha or self.cutmix_minmax))

    def __call__(self, images_BCHW: Tensor, labels_B: Tensor, key: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """New images, and soft targets (B, num_classes). The batch given stays as it is."""
        if not self.mixes:
            return images_BCHW, mixup_target(labels_B, self.num_classes, smoothing=self.label_smoothing)
        if len(images_BCHW) % 2:
            refuse("images are mixed in pairs, so a batch must be even", len(images_BCHW), "2, 4, 6, ...")
        mixup = Mixup(
            mixup_alpha=self.mixup_alpha,
            cutmix_alpha=self.cutmix_alpha,
            cutmix_minmax=self.cutmix_minmax,
            prob=self.prob,
            switch_prob=self.switch_prob,
            mode=self.mode,
            label_smoothing=self.label_smoothing,
            num_classes=self.num_classes,
        )
        with lent_generators() as seed:
            seed(int(hashes([key])[0]))
            mixed: tuple[Tensor, Tensor] = mixup(images_BCHW.clone(memory_format=torch.contiguous_format), labels_B)
        return mixed
