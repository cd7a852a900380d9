"""Plain networks of architectures, in timm's conventions: one file a family."""

from __future__ import annotations

from collections.abc import Sequence

from timm.models._features import FeatureGetterNet
from torch import nn

from vitruvius.arch import Arch, ImageSize, refuse
from vitruvius.models._base import Backbone, has_no_weight_decay
from vitruvius.models.layers import Drops, seeded
from vitruvius.models.pit import PiT
from vitruvius.models.resvit import ResViT
from vitruvius.models.swin import Swin
from vitruvius.models.timm_names import from_timm
from vitruvius.models.twins import Twins
from vitruvius.models.vit import ViT

__all__ = [
    "FAMILY_MODELS",
    "Backbone",
    "PiT",
    "ResViT",
    "Swin",
    "Twins",
    "ViT",
    "build",
    "from_timm",
    "has_no_weight_decay",
]

FAMILY_MODELS: dict[str, type[Backbone]] = {"vit": ViT, "swin": Swin, "twins": Twins, "resvit": ResViT, "pit": PiT}


def build(
    arch: Arch,
    *,
    num_classes: int = 1000,
    img_size: ImageSize = 224,
    in_chans: int = 3,
    features_only: bool = False,
    out_indices: int | Sequence[int] | None = None,
    seed: int | None = None,
    token_head: bool = False,
    **drops: float,
) -> nn.Module:
    """A plain network with random weights.

    seed: of the weights. Without one they come from torch's generator, as any module's do.
    drops: `drop_rate`, `pos_drop_rate`, `proj_drop_rate`, `attn_drop_rate`, `drop_path_rate`, as timm has them.
    token_head: a second classifier, of patch tokens (see `Backbone.forward`).
    features_only: a network that gives the feature maps of its stages (of its blocks, if it has one stage), or of
        `out_indices` among them, instead of logits.
    """
    if not isinstance(arch, Arch):
        refuse("build needs an Arch", type(arch).__name__, "Arch, say vitruvius.zoo.load('s3-tiny')")
    for name, value, least in (("num_classes", num_classes, 0), ("in_chans", in_chans, 1)):
        if type(value) is not int or value < least:
            refuse(f"{name} must be a whole number", value, f"{least} or more")
    rates = Drops.named(drops)
    with seeded(seed):
        model = FAMILY_MODELS[arch.family](arch, num_classes, img_size, in_chans, rates)
        if token_head:
            model.add_token_head()
    if not features_only:
        return model
    if not model.feature_info:
        refuse("features need a block to be taken from", arch.id, "an architecture with blocks")
    taps = len(model.feature_info)
    if isinstance(out_indices, int):
        out_indices = range(taps - out_indices, taps)
    indices = list(range(taps) if out_indices is None else out_indices)
    if not indices or any(type(index) is not int or not -taps <= index < taps for index in indices):
        refuse("out_indices name feature maps", indices, f"{-taps}..{taps - 1}, or how many of the last")
    return FeatureGetterNet(model, indices)
