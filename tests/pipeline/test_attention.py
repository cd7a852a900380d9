"""What the report says of attention, of every family on digits."""

from __future__ import annotations

import json

import numpy as np
import pytest

from vitruvius import data, spaces, zoo
from vitruvius.models import build
from vitruvius.pipeline.attention import attention_summary, chosen_layers


@pytest.mark.parametrize("name", [name for name in spaces.SPACES if name.endswith("-nano")])
def test_the_summary_is_plain_and_whole(name: str) -> None:
    images = data.load("digits").search
    space = spaces.load(name, img_size=8, patch=2)
    model = build(space.largest, num_classes=10, img_size=8, in_chans=1, seed=0)
    summary = attention_summary(model, images, images=4)
    assert json.loads(json.dumps(summary)) == summary
    assert len(summary["layers"]) == min(6, space.largest.depth)
    picture = np.array(summary["image"])
    np.testing.assert_array_equal(picture, images.val.pixels([0])[0])
    for layer in summary["layers"]:
        stage = space.largest.stages[layer["stage"] - 1]
        assert len(layer["mean_distance"]) == stage.blocks[layer["block"] - 1].heads
        assert layer["top5"]["quantiles"] == sorted(layer["top5"]["quantiles"])
        assert np.min(layer["map"]) >= 0


def test_layers_are_spread_over_the_network() -> None:
    arch = zoo.load("s3-small")
    layers = chosen_layers(arch)
    assert layers[0] == (0, 0)
    assert layers[-1] == (3, len(arch.stages[3].blocks) - 1)
    assert len(set(layers)) == 6
