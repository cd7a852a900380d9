"""TF-TAS's PiT spaces: overlapping patches, depthwise pooling between stages, one MLP ratio and head width for all.

A stage's width is its heads times the head width, and a multiple of the width before.
"""

from __future__ import annotations

from vitruvius.arch import ImageSize
from vitruvius.spaces._declaration import Choices, StageSpace
from vitruvius.spaces._registry import SPACES, nano_stages, publish
from vitruvius.spaces._space import Space


def _pit(
    name: str,
    source: str,
    head_dim: Choices,
    heads: Choices,
    depths: tuple[Choices, ...],
    mlp_ratio: Choices = (2, 4, 6, 8),
    patch: int = 16,
    stride: int = 8,
    img_size: ImageSize = 224,
) -> Space:
    return Space(
        name=name,
        source=source,
        family="pit",
        patch=(patch,),
        stride=stride,
        class_token=True,
        pool="token",
        positions="absolute",
        img_size=img_size,
        net={"head_dim": head_dim, "mlp_ratio": mlp_ratio},
        stages=tuple(StageSpace(depth=depth, stage={"heads": heads}) for depth in depths),
    )


_SOURCE = "TF-TAS, Section 4.3 (the released space)"
_DEPTHS = ((1, 2, 3), (4, 6, 8), (2, 4, 6))
publish(_pit("pit-ti", _SOURCE, (16, 24, 32, 40), (2, 4, 8), _DEPTHS))
publish(_pit("pit-xs", _SOURCE, (40, 48, 56, 64), (2, 4, 8), _DEPTHS))
publish(_pit("pit-s", _SOURCE, (36, 48, 60, 72), (3, 6, 12), _DEPTHS))


def nano(img_size: ImageSize = 32, patch: int = 4) -> Space:
    """PiT for small images on a CPU, its MLP ratio chosen for every block so that there is something to search."""
    stages = nano_stages(img_size, patch, most=3)
    stage = StageSpace(depth=(1, 2, 3, 4), stage={"heads": (1, 2, 4)}, block={"mlp_ratio": (1, 2, 3, 4)})
    return Space(
        name="pit-nano",
        source="Vitruvius: PiT's dimensions, for small images",
        family="pit",
        patch=(patch,),
        stride=max(patch // 2, 1),
        class_token=True,
        pool="token",
        positions="absolute",
        img_size=img_size,
        net={"head_dim": (8, 12, 16)},
        stages=(stage,) * max(stages, 2),
    )


SPACES.add("pit-nano", nano)
