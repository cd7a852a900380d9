"""ViTAS v2's Twins-like spaces: every layer is local attention, sub-sampled global attention or (shifted) the identity.

"Max_a" is q, k and v together. Twins sub-samples keys and values by 8, 4, 2 and 1 in its four stages (1 is plain global
attention) and has local windows of 7; the paper keeps both.
"""

from __future__ import annotations

from vitruvius.arch import ImageSize
from vitruvius.spaces._declaration import Choices, StageSpace, tenths
from vitruvius.spaces._registry import SPACES, nano_stages, publish
from vitruvius.spaces._space import Space

_REDUCTIONS = (8, 4, 2, 1)


def _mixing(window: int, reduction: int) -> dict[str, Choices]:
    whole = (
        {"mixer": ("local", "subsampled"), "reduction": (reduction,)}
        if reduction > 1
        else {"mixer": ("local", "global")}
    )
    return {**whole, "window": (window,)}


def _twins(name: str, source: str, stages: tuple[StageSpace, ...], patch: int = 4, img_size: ImageSize = 224) -> Space:
    return Space(
        name=name,
        source=source,
        family="twins",
        patch=(patch,),
        class_token=False,
        pool="mean",
        positions="conv",
        img_size=img_size,
        stages=stages,
    )


def _vitas_twins(
    size: str,
    figure: str,
    dims: tuple[int, ...],
    attention: tuple[int, ...],
    mlps: tuple[int, ...],
    layers: tuple[int, ...],
) -> Space:
    rows = zip(dims, attention, mlps, layers, _REDUCTIONS, strict=True)
    stages = tuple(
        StageSpace(
            dim=tenths(dim),
            depth=tuple(range(most + 1)),
            block={
                **_mixing(7, reduction),
                "heads": (2, 4, 8, 16),
                "qkv": tenths(qkv // 3),
                "mlp": tenths(mlp),
            },
        )
        for dim, qkv, mlp, most, reduction in rows
    )
    return _twins(f"vitas-twins-{size}", f"ViTAS v2, Figure {figure}", stages)


# The paper prints one table for tiny and for small, though it says that tiny is "uniformly scaled" from small.
_SMALL = ((128, 256, 512, 1024), (480, 960, 1920, 3840), (512, 1024, 2048, 4096), (4, 4, 12, 6))
publish(_vitas_twins("tiny", "6a", *_SMALL))
publish(_vitas_twins("small", "6b", *_SMALL))
publish(
    _vitas_twins("base", "6c", (192, 384, 768, 1536), (480, 960, 1920, 3840), (768, 1536, 3072, 6144), (4, 4, 20, 4))
)
publish(
    _vitas_twins(
        "large", "6d", (256, 512, 1024, 2048), (960, 1920, 3840, 7680), (1024, 2048, 4096, 8192), (4, 4, 20, 4)
    )
)


def nano(img_size: ImageSize = 32, patch: int = 2) -> Space:
    """ViTAS v2's Twins space for small images on a CPU: as many stages, at most three, as the image has room for."""
    stages = nano_stages(img_size, patch, most=3)
    return _twins(
        "vitas-twins-nano",
        "Vitruvius: ViTAS v2's Twins dimensions, for small images",
        tuple(
            StageSpace(
                dim=tuple(width * 2**i for width in (16, 24, 32)),
                depth=(1, 2, 3) if stages > 1 else (2, 3, 4, 5),
                block={
                    **_mixing(2, 2 if i < stages - 1 else 1),
                    "heads": (1, 2, 4),
                    "qkv": tuple(width * 2**i for width in (16, 24, 32)),
                    "mlp": tuple(width * 2**i for width in (32, 48, 64)),
                },
            )
            for i in range(stages)
        ),
        patch=patch,
        img_size=img_size,
    )


SPACES.add("vitas-twins-nano", nano)
