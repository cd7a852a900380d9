"""S3's Swin-like spaces: widths and depths a stage, window, MLP ratio and q-k-v width a block, heads of 32.

Odd blocks shift their windows. A stage's q-k-v width need not be its embedding width.
"""

from __future__ import annotations

from vitruvius.arch import ImageSize
from vitruvius.spaces._declaration import Choices, StageSpace
from vitruvius.spaces._registry import SPACES, nano_stages, publish
from vitruvius.spaces._space import Space


def _stage(
    dim: Choices, depth: Choices, qkv: Choices, mlp_ratio: Choices, window: Choices, head_dim: int = 32
) -> StageSpace:
    return StageSpace(
        dim=dim,
        depth=depth,
        stage={"mixer": ("window+shifted",), "head_dim": (head_dim,)},
        block={"qkv": qkv, "mlp_ratio": mlp_ratio, "window": window},
    )


def _s3(name: str, source: str, stages: tuple[StageSpace, ...], patch: int = 4, img_size: ImageSize = 224) -> Space:
    return Space(
        name=name,
        source=source,
        family="swin",
        patch=(patch,),
        class_token=False,
        pool="mean",
        positions="bias",
        norm_eps=1e-5,
        img_size=img_size,
        stages=stages,
    )


_ABC = (224, 256, 288)
publish(_s3("s3", "S3, Section 4.1: the initial space", (_stage(_ABC, (2, 3, 4), _ABC, (3, 3.5, 4), (7, 14)),) * 4))


def _around(size: str, depths: tuple[int, ...]) -> Space:
    """The paper prints no final space: this one is 32 channels and a block to each side of the network found."""
    dims = (96, 192, 384, 768)
    stages = tuple(
        _stage(
            dim=(dim - 32, dim, dim + 32),
            depth=(depth - 1, depth, depth + 1),
            qkv=(dim - 32, dim, dim + 32),
            mlp_ratio=(3, 3.5, 4),
            window=(7, 14),
        )
        for dim, depth in zip(dims, depths, strict=True)
    )
    return _s3(f"s3-{size}", f"Vitruvius: around the published S3-{size[0].upper()}", stages)


publish(_around("tiny", (2, 2, 6, 2)))
publish(_around("small", (2, 2, 18, 2)))
publish(_around("base", (2, 2, 30, 2)))


def nano(img_size: ImageSize = 32, patch: int = 2, alike: bool = False) -> Space:
    """S3's initial space for small images on a CPU: as many stages, at most three, as the image has room for.

    alike: every stage begins with the same widths, as in Section 4.1, instead of twice those of the one before.
    """
    stages = nano_stages(img_size, patch, most=3)
    factors = [1 if alike else 2**i for i in range(stages)]
    return _s3(
        "s3-nano",
        "Vitruvius: S3's dimensions, for small images",
        tuple(
            _stage(
                dim=tuple(width * factors[i] for width in (16, 24, 32)),
                depth=(1, 2, 3) if stages > 1 else (2, 3, 4, 5),
                qkv=tuple(width * factors[i] for width in (16, 24, 32)),
                mlp_ratio=(2, 3, 4),
                window=(2, 4) if i == 0 else (2,),
                head_dim=8,
            )
            for i in range(stages)
        ),
        patch=patch,
        img_size=img_size,
    )


SPACES.add("s3-nano", nano)
