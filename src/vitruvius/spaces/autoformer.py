"""AutoFormer's spaces: one width, heads of 64, relative positions on keys and values, no class token at the head."""

from __future__ import annotations

from collections.abc import Sequence

from vitruvius.arch import ImageSize
from vitruvius.spaces._declaration import StageSpace
from vitruvius.spaces._registry import SPACES, publish
from vitruvius.spaces._space import Space


def _autoformer(
    name: str,
    source: str,
    dim: Sequence[int],
    depth: Sequence[int],
    heads: Sequence[int],
    mlp_ratio: Sequence[float],
    head_dim: int = 64,
    patch: int = 16,
    img_size: ImageSize = 224,
) -> Space:
    block = {"heads": tuple(heads), "head_dim": (head_dim,), "mlp_ratio": tuple(mlp_ratio)}
    return Space(
        name=name,
        source=source,
        family="vit",
        patch=(patch,),
        class_token=True,
        pool="mean",
        positions="absolute+relative",
        norm_eps=1e-5,
        img_size=img_size,
        stages=(StageSpace(dim=tuple(dim), depth=tuple(depth), block=block),),
    )


_SOURCE = "AutoFormer, the released space (TF-TAS searches it too)"
publish(_autoformer("autoformer-tiny", _SOURCE, (192, 216, 240), (12, 13, 14), (3, 4), (3.5, 4)))
publish(_autoformer("autoformer-small", _SOURCE, (320, 384, 448), (12, 13, 14), (5, 6, 7), (3, 3.5, 4)))
publish(_autoformer("autoformer-base", _SOURCE, (528, 576, 624), (14, 15, 16), (9, 10), (3, 3.5, 4)))


def nano(img_size: ImageSize = 32, patch: int = 4) -> Space:
    """AutoFormer for small images on a CPU."""
    return _autoformer(
        "autoformer-nano",
        "Vitruvius: AutoFormer's dimensions, for small images",
        dim=(48, 64, 80),
        depth=(3, 4, 5, 6),
        heads=(2, 3, 4),
        mlp_ratio=(2, 3, 4),
        head_dim=16,
        patch=patch,
        img_size=img_size,
    )


SPACES.add("autoformer-nano", nano)
