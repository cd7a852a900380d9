"""ViT-ResNAS's spaces (Table 5): pairs of blocks of which the second may be skipped, widths that grow at each stage."""

from __future__ import annotations

from vitruvius.arch import ImageSize
from vitruvius.spaces._declaration import Choices, StageSpace
from vitruvius.spaces._registry import SPACES, nano_stages, publish
from vitruvius.spaces._space import Space


def _stage(dim: Choices, head_dim: int, heads: Choices, mlp: Choices, layers: int) -> StageSpace:
    return StageSpace(
        dim=dim,
        depth=(layers,),
        identity="anywhere",
        skippable=(1, 3, 5)[: layers // 2],
        stage={"head_dim": (head_dim,)},
        block={"heads": heads, "mlp": mlp},
    )


def _vit_resnas(
    name: str, source: str, stages: tuple[StageSpace, ...], patch: int = 14, stem: int = 24, img_size: ImageSize = 224
) -> Space:
    return Space(
        name=name,
        source=source,
        family="resvit",
        patch=(patch,),
        stem=stem,
        class_token=True,
        pool="token",
        positions="absolute",
        img_size=img_size,
        stages=stages,
    )


publish(
    _vit_resnas(
        "vit-resnas-tiny",
        "ViT-ResNAS, Table 5, left",
        (
            _stage((160, 176, 192, 224, 256), 32, (3, 4, 5, 6), (384, 448, 512, 576, 640, 704, 768), 6),
            _stage((320, 352, 384, 448, 512), 48, (6, 8, 10, 12), (768, 896, 1024, 1152, 1280, 1408, 1536), 6),
            _stage((640, 704, 768, 896, 1024), 64, (6, 8, 10, 12), (1536, 1792, 2048, 2304, 2560, 2816, 3072), 6),
        ),
    )
)
publish(
    _vit_resnas(
        "vit-resnas-small-medium",
        "ViT-ResNAS, Table 5, right",
        (
            _stage((200, 220, 240, 280, 320), 32, (5, 6, 7, 8), (480, 560, 640, 720, 800, 880, 960), 7),
            _stage((400, 440, 480, 560, 640), 48, (10, 12, 14, 16), (960, 1120, 1280, 1440, 1600, 1760, 1920), 7),
            _stage((800, 880, 960, 1120, 1280), 64, (10, 12, 14, 16), (1920, 2240, 2560, 2880, 3200, 3520, 3840), 7),
        ),
    )
)


def nano(img_size: ImageSize = 32, patch: int = 4) -> Space:
    """ViT-ResNAS's space for small images on a CPU: as many stages, at most three, as the image has room for."""
    stages = nano_stages(img_size, patch, most=3)
    return _vit_resnas(
        "vit-resnas-nano",
        "Vitruvius: ViT-ResNAS's dimensions, for small images",
        tuple(
            _stage(
                dim=tuple(width * 2**i for width in (16, 24, 32)),
                head_dim=8,
                heads=tuple(heads * 2**i for heads in (1, 2, 3)),
                mlp=tuple(width * 2**i for width in (24, 32, 48, 64)),
                layers=6 if stages == 1 else 4 if i == 0 else 3,
            )
            for i in range(stages)
        ),
        patch=patch,
        stem=8,
        img_size=img_size,
    )


SPACES.add("vit-resnas-nano", nano)
