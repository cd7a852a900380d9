"""The declared spaces beside the papers' tables, transcribed here a second time, in the tables' own words.

"Max" of attention is q, k and v together; a ratio is i/10, i = 1..10.
"""

from __future__ import annotations

import pytest

from vitruvius import spaces

TENTHS = [i / 10 for i in range(1, 11)]


def of(maximum: int) -> tuple[int, ...]:
    return tuple(round(maximum * ratio) for ratio in TENTHS)


AUTOFORMER = {  # embedding, MLP ratio, heads of 64, depth (the released space)
    "autoformer-tiny": ((192, 216, 240), (3.5, 4), (3, 4), (12, 13, 14)),
    "autoformer-small": ((320, 384, 448), (3, 3.5, 4), (5, 6, 7), (12, 13, 14)),
    "autoformer-base": ((528, 576, 624), (3, 3.5, 4), (9, 10), (14, 15, 16)),
}


@pytest.mark.parametrize("name", AUTOFORMER)
def test_autoformer(name: str) -> None:
    dim, ratio, heads, depth = AUTOFORMER[name]
    assert spaces.load(name).dimensions == {
        "patch": (16,),
        "stage1.dim": dim,
        "stage1.depth": depth,
        "stage1.heads": heads,
        "stage1.head_dim": (64,),
        "stage1.mlp_ratio": ratio,
    }


DEIT = {  # number of layers, max of the linear projection, of MHSA and of MLP
    "vitas-v1": (16, 384, 1440, 1440),  # v1, Table 1
    "vitas-v1-large": (16, 768, 2880, 2880),  # v1, Table 9
    "vitas-deit-tiny": (14, 384, 1440, 1440),  # v2, Figure 7a
    "vitas-deit-small": (14, 768, 2880, 2880),  # v2, Figure 7b
}


@pytest.mark.parametrize("name", DEIT)
def test_vitas_deit(name: str) -> None:
    layers, embedding, attention, mlp = DEIT[name]
    space = spaces.load(name)
    shifted = "deit" in name  # v2 samples the number of identities, which are the deepest layers
    assert space.stages[0].identity == ("shifted" if shifted else "anywhere")
    assert space.stages[0].skips == (() if shifted else tuple(range(layers)))
    assert space.dimensions == {
        "patch": (14, 16, 32),
        "stage1.dim": of(embedding),
        "stage1.depth": tuple(range(layers + 1)) if shifted else (layers,),
        "stage1.heads": (3, 6, 12, 16),
        "stage1.qkv": of(attention // 3),
        "stage1.mlp": of(mlp),
    }


TWINS = {  # v2, Figure 6; a row a stage: layers, max of the embedding, Max_a, Max_m
    "vitas-twins-tiny": ((4, 128, 480, 512), (4, 256, 960, 1024), (12, 512, 1920, 2048), (6, 1024, 3840, 4096)),
    "vitas-twins-small": ((4, 128, 480, 512), (4, 256, 960, 1024), (12, 512, 1920, 2048), (6, 1024, 3840, 4096)),
    "vitas-twins-base": ((4, 192, 480, 768), (4, 384, 960, 1536), (20, 768, 1920, 3072), (4, 1536, 3840, 6144)),
    "vitas-twins-large": ((4, 256, 960, 1024), (4, 512, 1920, 2048), (20, 1024, 3840, 4096), (4, 2048, 7680, 8192)),
}


@pytest.mark.parametrize("name", TWINS)
def test_vitas_twins(name: str) -> None:
    found = spaces.load(name).dimensions
    assert found["patch"] == (4,)
    for stage, (layers, embedding, attention, mlp) in enumerate(TWINS[name], start=1):
        assert found[f"stage{stage}.depth"] == tuple(range(layers + 1))
        assert found[f"stage{stage}.dim"] == of(embedding)
        assert found[f"stage{stage}.heads"] == (2, 4, 8, 16)
        assert found[f"stage{stage}.qkv"] == of(attention // 3)
        assert found[f"stage{stage}.mlp"] == of(mlp)
        assert len(found[f"stage{stage}.mixer"]) == 2  # local, global


def test_s3() -> None:
    """S3, Section 4.1 (which prints the heads and the MLP ratios in each other's place)."""
    found, width = spaces.load("s3").dimensions, (224, 256, 288)
    for stage in range(1, 5):
        assert found[f"stage{stage}.depth"] == (2, 3, 4)
        assert found[f"stage{stage}.dim"] == found[f"stage{stage}.qkv"] == width
        assert tuple(qkv // 32 for qkv in width) == (7, 8, 9)
        assert found[f"stage{stage}.head_dim"] == (32,)
        assert found[f"stage{stage}.mlp_ratio"] == (3, 3.5, 4)
        assert found[f"stage{stage}.window"] == (7, 14)


RESNAS = {  # ViT-ResNAS, Table 5; a row a stage: d, h, f, width of a head; then the number of blocks
    "vit-resnas-tiny": (
        ((256, 224, 192, 176, 160), (6, 5, 4, 3), (768, 704, 640, 576, 512, 448, 384), 32),
        ((512, 448, 384, 352, 320), (12, 10, 8, 6), (1536, 1408, 1280, 1152, 1024, 896, 768), 48),
        ((1024, 896, 768, 704, 640), (12, 10, 8, 6), (3072, 2816, 2560, 2304, 2048, 1792, 1536), 64),
        6,
    ),
    "vit-resnas-small-medium": (
        ((320, 280, 240, 220, 200), (8, 7, 6, 5), (960, 880, 800, 720, 640, 560, 480), 32),
        ((640, 560, 480, 440, 400), (16, 14, 12, 10), (1920, 1760, 1600, 1440, 1280, 1120, 960), 48),
        ((1280, 1120, 960, 880, 800), (16, 14, 12, 10), (3840, 3520, 3200, 2880, 2560, 2240, 1920), 64),
        7,
    ),
}


@pytest.mark.parametrize("name", RESNAS)
def test_vit_resnas(name: str) -> None:
    space, (*rows, blocks) = spaces.load(name), RESNAS[name]
    assert (space.patch, space.stem) == ((14,), 24)  # three 3x3 convolutions of 24, then 7x7 behind a stride of 2
    for stage, (dims, heads, hidden, head_dim) in enumerate(rows, start=1):
        found = {key: space.dimensions[f"stage{stage}.{key}"] for key in ("dim", "heads", "mlp", "head_dim", "depth")}
        assert found == {
            "dim": dims[::-1],
            "heads": heads[::-1],
            "mlp": hidden[::-1],
            "head_dim": (head_dim,),
            "depth": (blocks,),
        }
        assert space.stages[stage - 1].skips == (1, 3, 5)  # the second of each of three pairs


PIT = {  # TF-TAS, the released space: width of a head, heads of a stage
    "pit-ti": ((16, 24, 32, 40), (2, 4, 8)),
    "pit-xs": ((40, 48, 56, 64), (2, 4, 8)),
    "pit-s": ((36, 48, 60, 72), (3, 6, 12)),
}


@pytest.mark.parametrize("name", PIT)
def test_pit(name: str) -> None:
    space, (base, heads) = spaces.load(name), PIT[name]
    assert (space.patch, space.stride) == ((16,), 8)
    assert space.dimensions == {
        "patch": (16,),
        "head_dim": base,
        "mlp_ratio": (2, 4, 6, 8),
        **{f"stage{s}.depth": depth for s, depth in enumerate(((1, 2, 3), (4, 6, 8), (2, 4, 6)), start=1)},
        **{f"stage{s}.heads": heads for s in (1, 2, 3)},
    }
