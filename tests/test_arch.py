from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import ALL_SPACES
from vitruvius import Arch, Block, Patch, Stage, costs, spaces, zoo
from vitruvius.arch import token_grids

seeds = st.integers(0, 2**32 - 1)
space_names = st.sampled_from(ALL_SPACES)


def deit(**changes: object) -> Arch:
    block = Block(heads=3, qk=192, v=192, mlp=768)
    fields = {
        "family": "vit",
        "patch": Patch(size=16),
        "stages": (Stage(dim=192, blocks=(block,) * 2),),
        "positions": "absolute",
        "class_token": True,
        "pool": "token",
    }
    return Arch(**{**fields, **changes})


@given(space_names, seeds)
def test_json_round_trip(name: str, seed: int) -> None:
    arch = spaces.load(name).sample(np.random.default_rng(seed))
    again = Arch.from_json(arch.to_json())
    assert again == arch
    assert again.id == arch.id
    assert hash(again) == hash(arch)
    assert Arch.from_json(arch.to_json(indent=2)) == arch


@given(space_names, seeds, seeds)
def test_ids_agree_exactly_when_networks_do(name: str, seed: int, other: int) -> None:
    space = spaces.load(name)
    a = space.sample(np.random.default_rng(seed))
    rng = np.random.default_rng(other)
    for b in (a, space.sample(rng), space.mutate(a, rng, 0.02)):
        assert (a.id == b.id) == (a == b) == (a.to_json() == b.to_json())


def test_id_does_not_change_between_versions() -> None:
    """Run folders and records name networks by id: a change of these is a change of the format's version."""
    assert deit().id == "vit-05032f38cae99821"


def test_an_embed_scale_that_is_the_head_scale_is_one_network() -> None:
    assert deit(attn_scale="embed") == deit()
    assert deit(attn_scale="embed").id == deit().id
    wide = deit(stages=(Stage(dim=192, blocks=(Block(heads=3, qk=96, v=96, mlp=768),)),))
    assert replace(wide, attn_scale="embed") != wide


def test_records_are_frozen_and_hashable() -> None:
    arch = deit()
    with pytest.raises(AttributeError):
        arch.family = "swin"  # type: ignore[misc]
    assert {arch, deit()} == {arch}


def test_widths_of_queries_and_values_are_apart() -> None:
    arch = deit(stages=(Stage(dim=100, blocks=(Block(heads=4, qk=64, v=48, mlp=123),)),))
    assert Arch.from_json(arch.to_json()).stages[0].blocks[0].v == 48
    assert costs.params(arch) > 0


@pytest.mark.parametrize(
    ("family", "img_size", "grids"),
    [
        ("s3-tiny", 224, [(56, 56), (28, 28), (14, 14), (7, 7)]),
        ("s3-tiny", (192, 260), [(48, 65), (24, 33), (12, 17), (6, 9)]),
        ("twins-svt-small", 224, [(56, 56), (28, 28), (14, 14), (7, 7)]),
        ("vit-res-tiny", 280, [(20, 20), (10, 10), (5, 5)]),
        ("pit-ti", 224, [(27, 27), (14, 14), (7, 7)]),
        ("deit-tiny", 384, [(24, 24)]),
    ],
)
def test_token_grids(family: str, img_size: int, grids: list[tuple[int, int]]) -> None:
    assert token_grids(zoo.load(family), img_size) == grids


def test_json_is_plain_and_versioned() -> None:
    data = json.loads(deit().to_json())
    assert data["family"] == "vit"
    assert data["version"] == 1
    assert "window" not in data["stages"][0]["blocks"][0]


def test_the_record_holds_networks_that_no_space_contains() -> None:
    arch = zoo.load("autoformer-tiny")  # its MLP ratio of 3.0 is outside the released space
    assert not any(spaces.load(name).contains(arch) for name in ALL_SPACES)
