"""The hand-made rival: DeiT itself at DeiT's costs, and equal costs everywhere else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vitruvius import costs, zoo
from vitruvius.pipeline.handmade import hand_made, patch_for


@pytest.mark.parametrize("name", ["deit-tiny", "deit-small", "deit-base"])
def test_at_the_cost_of_deit_it_is_deit(name: str) -> None:
    deit = zoo.load(name)
    made = hand_made(costs.macs(deit), patch=16, img_size=224, num_classes=1000)
    assert made == deit


@settings(max_examples=40, deadline=None)
@given(share=st.floats(0, 1), nano=st.booleans(), classes=st.integers(2, 1000))
def test_costs_are_equal(share: float, nano: bool, classes: int) -> None:
    size, patch, least, most = (32, 4, 5e5, 1e8) if nano else (224, 16, 2e7, 2e10)
    macs = least * (most / least) ** share
    made = hand_made(macs, patch=patch, img_size=size, num_classes=classes)
    found = costs.macs(made, img_size=size, num_classes=classes)
    (stage,) = made.stages
    channel = 2 * stage.dim * len(stage.blocks) * (1 + (size // patch) ** 2)
    assert macs - channel < found <= macs
    assert len(stage.blocks) <= 12
    assert stage.blocks[0].mlp >= 4 * stage.dim


def test_the_patch_of_a_pyramid_gives_deits_grid() -> None:
    assert patch_for(zoo.load("vitas-a"), 224) == zoo.load("vitas-a").patch.size
    assert patch_for(zoo.load("s3-tiny"), 224) == 16
    assert patch_for(zoo.load("s3-tiny"), 28) == 4
    assert patch_for(zoo.load("s3-tiny"), 8) == 2


def test_what_is_too_small_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"no network of DeiT's shape is so small; got '1,000 MACs'; allowed: [0-9,]+ MACs"
    ):
        hand_made(1e3, patch=16, img_size=224, num_classes=10)
