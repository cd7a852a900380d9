"""How a run's images are augmented, mixed and labelled."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from vitruvius.arch import token_grids
from vitruvius.data import Augment, Mix
from vitruvius.superformer import Superformer
from vitruvius.training.feed import Batch, Label
from vitruvius.training.plan import Plan
from vitruvius.training.token_labels import TokenLabels

__all__ = ["augment_of", "label_of"]


def augment_of(plan: Plan) -> Augment:
    config, data = plan.config, plan.data.search
    return Augment(
        img_size=plan.size,
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


def label_of(plan: Plan) -> Label:
    """Mixes as a process' own batch; plain labels where there is nothing to mix (the loss smooths those)."""
    config, classes = plan.config, len(plan.data.search.classes)
    mixing: dict[str, Any] = {"mixup_alpha": config.mixup, "cutmix_alpha": config.cutmix}
    mixing |= {"num_classes": classes, "switch_prob": config.mix_switch, "label_smoothing": config.label_smoothing}
    if config.token_labeling != "off":
        model = plan.job.model
        arch = model.space.largest if isinstance(model, Superformer) else model.arch
        switch = 1.0 if config.token_labeling == "cutmix" else config.mix_switch
        return TokenLabels(**{**mixing, "switch_prob": switch}, grid=token_grids(arch, plan.size)[-1])
    mix = Mix(**mixing, prob=config.mix_probability)
    return mix if mix.mixes else _plain


def _plain(images: Tensor, labels: Tensor, key: tuple[int, ...]) -> Batch:
    return images, labels
