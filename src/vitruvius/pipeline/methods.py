"""The published methods as pipelines, and the project's own: which spaces, which recipes, what comes between them.

A paper's recipes are for ImageNet. On small images the same method runs in its nano form: the same strategy, sharing
rule and search, in the nano space of its family, with the optimiser settings of the project's own small recipes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vitruvius import recipes
from vitruvius.registry import Registry

__all__ = ["METHODS", "Method"]

_STRUCTURE = (
    "strategy", "sharing", "private", "archs_per_step", "release_until", "random_archs", "distill", "token_labeling"
)  # fmt: skip
"""The settings of a superformer's training that make it a method's, at any size of images."""
_LABELS = ("mixup", "cutmix")
"""And what token labels are made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    paper: str
    spaces: Mapping[str, str | None]
    """From small to large, each with the recipe of its superformer; None where none is trained."""
    nano: str
    search: str
    """Its recipe."""
    retrain: Mapping[float, str]
    """Recipes, by the MACs up to which they are for."""
    aligned: bool = False
    """Whether networks are sampled so that their mean cost is the budget (ViTAS)."""
    evolves: bool = False
    """Whether the space is searched first (S3)."""

    @property
    def structure(self) -> dict[str, Any]:
        """Of the superformer's training, what does not depend on the size of images."""
        recipe = next(iter(self.spaces.values()))
        settings = {} if recipe is None else recipes.load(recipe, "superformer").settings
        labels = _LABELS if settings.get("token_labeling", "off") != "off" else ()
        return {key: settings[key] for key in (*_STRUCTURE, *labels) if key in settings}

    def retrain_recipe(self, macs: float) -> str:
        return next(recipe for most, recipe in self.retrain.items() if macs <= most)


METHODS: Registry[Method] = Registry("method")

METHODS.add(
    "vitruvius",
    Method(
        paper="none: the project's own mixture",
        spaces={"vitas-deit-tiny": "vitas-v2-superformer", "vitas-deit-small": "vitas-v2-superformer"},
        nano="vitas-nano",
        search="s3-search",
        retrain={math.inf: "vitas-v2-deit-retrain"},
        aligned=True,
    ),
)
METHODS.add(
    "vitas-v1",
    Method(
        paper="ViTAS v1",
        spaces={"vitas-v1": "vitas-v1-superformer-1.3g", "vitas-v1-large": "vitas-v1-superformer-1.3g"},
        nano="vitas-nano",
        search="vitas-search",
        retrain={1.25e9: "vitas-v1-retrain-below-1.3g", math.inf: "vitas-v1-retrain-from-1.3g"},
        aligned=True,
    ),
)
METHODS.add(
    "vitas-v2",
    Method(
        paper="ViTAS v2",
        spaces={f"vitas-twins-{size}": "vitas-v2-superformer" for size in ("tiny", "small", "base", "large")},
        nano="vitas-twins-nano",
        search="vitas-search",
        retrain={
            2.1e9: "vitas-v2-twins-retrain-tiny",
            6e9: "vitas-v2-twins-retrain-small",
            12e9: "vitas-v2-twins-retrain-base",
            math.inf: "vitas-v2-twins-retrain-large",
        },
        aligned=True,
    ),
)
METHODS.add(
    "s3",
    Method(
        paper="S3",
        spaces={"s3": "s3-superformer"},
        nano="s3-nano",
        search="s3-search",
        retrain={math.inf: "s3-retrain"},
        evolves=True,
    ),
)
METHODS.add(
    "vit-resnas",
    Method(
        paper="ViT-ResNAS",
        spaces={
            "vit-resnas-tiny": "vit-resnas-superformer-tiny",
            "vit-resnas-small-medium": "vit-resnas-superformer-small-medium",
        },
        nano="vit-resnas-nano",
        search="vit-resnas-search",
        retrain={
            2.3e9: "vit-resnas-retrain-tiny",
            3.6e9: "vit-resnas-retrain-small",
            math.inf: "vit-resnas-retrain-medium",
        },
    ),
)
METHODS.add(
    "tf-tas",
    Method(
        paper="TF-TAS",
        spaces=dict.fromkeys(("autoformer-tiny", "autoformer-small", "autoformer-base")),
        nano="autoformer-nano",
        search="tf-tas-search",
        retrain={math.inf: "tf-tas-retrain"},
    ),
)
METHODS.add(
    "autoformer",
    Method(
        paper="AutoFormer",
        spaces={f"autoformer-{size}": "autoformer-superformer" for size in ("tiny", "small", "base")},
        nano="autoformer-nano",
        search="autoformer-search",
        retrain={math.inf: "autoformer-retrain"},
    ),
)
