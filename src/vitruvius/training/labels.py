"""How a run's images are augmented, mixed and labelled."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from vitruvius.arch import ImageSize, token_grids
from vitruvius.data import Augment, Mix, SearchData
from vitruvius.superformer import Superformer
from vitruvius.training.config import Settings
from vitruvius.training.feed import Batch, Label
from vitruvius.training.jobs import Job
from vitruvius.training.token_labels import TokenLabels

__all__ = ["augment_of", "label_of", "plain"]


def augment_of(config: Settings, data: SearchData, img_size: ImageSize) -> Augment:
    return Augment(
        img_size=img_size,
        mean=data.mean,
        std=data.std,
        crop=config.crop,
        scale=config.crop_scale,
        hflip=config.hflip,
        color_jitter=config.color_jitter or None,
        auto_augment=config.auto_augment,
        re_prob=config.erasing,
        interpolation=config.interpolation,
    )


def label_of(config: Settings, data: SearchData, job: Job) -> Label:
    """Mixes as a process' own batch; plain labels where there is nothing to mix (the loss smooths those)."""
    mixing: dict[str, Any] = {"mixup_alpha": config.mixup, "cutmix_alpha": config.cutmix}
    mixing |= {"num_classes": len(data.classes), "label_smoothing": config.label_smoothing}
    if config.token_labeling != "off":
        arch = job.model.space.largest if isinstance(job.model, Superformer) else job.model.arch
        switch = 1.0 if config.token_labeling == "cutmix" else config.mix_switch
        return TokenLabels(**mixing, switch_prob=switch, grid=token_grids(arch, job.img_size)[-1])
    mix = Mix(**mixing, switch_prob=config.mix_switch, prob=config.mix_probability)
    return mix if mix.mixes else plain


def plain(images: Tensor, labels: Tensor, key: tuple[int, ...]) -> Batch:
    return images, labels
