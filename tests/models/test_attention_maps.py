"""Attention maps: what the models compute, and distances against sums by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vitruvius import spaces
from vitruvius.models import build
from vitruvius.models.attention_maps import attention_maps

NANO = sorted(name for name in spaces.SPACES if name.endswith("-nano"))


def model_of(name: str):
    space = spaces.load(name)
    return build(space.largest, num_classes=3, img_size=space.img_size, seed=0).double()


@pytest.mark.parametrize("name", NANO)
def test_every_block_is_seen_and_attends_to_something(name: str) -> None:
    model = model_of(name).train()
    images = torch.randn(2, 3, *model.img_size, dtype=torch.float64)
    maps = attention_maps(model, images)
    assert model.training
    assert [(m.stage, m.block) for m in maps] == [
        (s, b) for s, stage in enumerate(model.arch.stages) for b in range(len(stage.blocks))
    ]
    for found in maps:
        torch.testing.assert_close(found.weights_BWHNM.sum(-1), torch.ones_like(found.weights_BWHNM[..., 0]))
        windows, queries, keys = found.distances_WNM().shape
        heads = model.arch.stages[found.stage].blocks[found.block].heads
        assert found.weights_BWHNM.shape == (2, windows, heads, queries, keys)


@pytest.mark.parametrize("name", NANO)
def test_even_attention_has_the_mean_distance_of_all_pairs(name: str) -> None:
    model = model_of(name)
    for parameter_name, parameter in model.named_parameters():
        if any(word in parameter_name for word in ("attn.q.", "table")):
            torch.nn.init.zeros_(parameter)
    for found in attention_maps(model, torch.randn(1, 3, *model.img_size, dtype=torch.float64)):
        distances, weights = found.distances_WNM().numpy(), found.weights_BWHNM[0, :, 0].numpy()
        # Shifted windows keep apart what only the roll brought together.
        by_hand = [
            np.average(row, weights=w)
            for row, w in zip(
                distances.reshape(-1, distances.shape[2]), weights.reshape(-1, weights.shape[2]), strict=True
            )
            for row, w in [(row[~np.isnan(row)], w[~np.isnan(row)])]
            if len(row)
        ]
        np.testing.assert_allclose(found.mean_distance(), np.mean(by_hand))
        if found.mixer != "shifted":
            assert np.ptp(weights[weights > 0]) < 1e-9


def test_windows_hold_every_token_once() -> None:
    for name in ("s3-nano", "vitas-twins-nano"):
        model = model_of(name)
        for found in attention_maps(model, torch.randn(1, 3, *model.img_size, dtype=torch.float64)):
            places = found.queries_WN2[~np.isnan(found.queries_WN2[..., 0])]
            assert len(np.unique(places, axis=0)) == len(places) == found.grid[0] * found.grid[1]


def test_shifted_windows_hold_neighbours() -> None:
    """No query of a shifted window attends across the seam of the rolled map."""
    model = model_of("s3-nano")
    shifted = [
        m
        for m in attention_maps(model, torch.randn(1, 3, *model.img_size, dtype=torch.float64))
        if m.mixer == "shifted"
    ]
    assert shifted
    for found in shifted:
        block = model.arch.stages[found.stage].blocks[found.block]
        reach = np.hypot(*(block.window * side / n for side, n in zip(model.img_size, found.grid, strict=True)))
        attended = found.weights_BWHNM[0].amax(1) > 0
        assert (found.distances_WNM()[attended] < reach).all()


def test_top_distances_are_those_of_the_most_attended_keys() -> None:
    model = model_of("autoformer-nano")
    found = attention_maps(model, torch.randn(2, 3, *model.img_size, dtype=torch.float64))[1]
    distances, by_hand = found.distances_WNM().numpy()[0], []
    for image in found.weights_BWHNM.numpy():
        for head in image[0]:
            for query in range(1, distances.shape[0]):
                best = 1 + np.argsort(-head[query, 1:])[:3]
                by_hand.append(distances[query, best].mean())
    np.testing.assert_allclose(found.top_distances(3), by_hand)


@pytest.mark.parametrize("name", NANO)
def test_what_is_seen_from_a_place(name: str) -> None:
    model = model_of(name)
    images = torch.randn(2, 3, *model.img_size, dtype=torch.float64)
    for found in attention_maps(model, images):
        point = tuple(side * 0.6 for side in model.img_size)
        seen = found.seen_from(1, point)
        assert seen.shape == found.grid
        distances = np.linalg.norm(found.queries_WN2 - np.array(point), axis=-1)
        window, query = np.unravel_index(np.nanargmin(distances), distances.shape)
        weights = found.weights_BWHNM[1, window, :, query].mean(0).numpy()
        placed = ~np.isnan(found.keys_WM2[window][:, 0])
        tokens = found.reach**2
        np.testing.assert_allclose(seen.sum(), weights[placed].sum() * tokens)
        rows, columns = (found.keys_WM2[window][placed] / np.array(found.cell)).astype(int).T
        np.testing.assert_allclose(seen[rows, columns], weights[placed])
