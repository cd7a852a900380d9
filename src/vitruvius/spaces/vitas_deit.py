"""ViTAS's DeiT-like spaces: every width a tenth of its maximum, every layer a block or the identity.

The papers' "Max Output Dim" of attention is q, k and v together; here `qkv` is one of the three.
"""

from __future__ import annotations

from vitruvius.arch import AttnScale, ImageSize
from vitruvius.spaces._declaration import StageSpace, tenths
from vitruvius.spaces._registry import SPACES, publish
from vitruvius.spaces._space import Space

_HEADS = (3, 6, 12, 16)


def _vitas_deit(
    name: str,
    source: str,
    stage: StageSpace,
    patch: tuple[int, ...] = (14, 16, 32),
    attn_scale: AttnScale = "head",
    img_size: ImageSize = 224,
) -> Space:
    return Space(
        name=name,
        source=source,
        family="vit",
        patch=patch,
        class_token=True,
        pool="token",
        positions="absolute",
        attn_scale=attn_scale,
        img_size=img_size,
        stages=(stage,),
    )


def _block(most: int) -> dict[str, tuple[int, ...]]:
    return {"heads": _HEADS, "qkv": tenths(most // 3), "mlp": tenths(most)}


# v1 divides the logits by the root of D / h with D the width of the embedding (Eq. 3 and 7), and so does its code when
# it retrains; v2 says nothing, and has the usual root of the head's width.
publish(
    _vitas_deit(
        "vitas-v1",
        "ViTAS v1, Table 1",
        StageSpace(dim=tenths(384), depth=(16,), identity="anywhere", block=_block(1440)),
        attn_scale="embed",
    )
)
publish(
    _vitas_deit(
        "vitas-v1-large",
        "ViTAS v1, Table 9",
        StageSpace(dim=tenths(768), depth=(16,), identity="anywhere", block=_block(2880)),
        attn_scale="embed",
    )
)
publish(
    _vitas_deit(
        "vitas-v1-block",
        "ViTAS v1, Section 5.3: one block, 12 times, patch 16",
        StageSpace(dim=tenths(384), depth=(12,), stage=_block(1440)),
        patch=(16,),
        attn_scale="embed",
    )
)
publish(
    _vitas_deit(
        "vitas-deit-tiny",
        "ViTAS v2, Figure 7a",
        StageSpace(dim=tenths(384), depth=tuple(range(15)), block=_block(1440)),
    )
)
publish(
    _vitas_deit(
        "vitas-deit-small",
        "ViTAS v2, Figure 7b",
        StageSpace(dim=tenths(768), depth=tuple(range(15)), block=_block(2880)),
    )
)


def nano(img_size: ImageSize = 32, patch: int | tuple[int, ...] = 4) -> Space:
    """ViTAS v1's space for small images on a CPU."""
    block = {"heads": (1, 2, 4), "qkv": (16, 32, 48, 64), "mlp": (32, 64, 96, 128)}
    return _vitas_deit(
        "vitas-nano",
        "Vitruvius: ViTAS v1's dimensions, for small images",
        StageSpace(dim=(32, 48, 64), depth=(6,), identity="anywhere", skippable=(1, 2, 3, 4, 5), block=block),
        patch=(patch,) if isinstance(patch, int) else tuple(patch),
        img_size=img_size,
    )


SPACES.add("vitas-nano", nano)
