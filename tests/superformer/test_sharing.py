from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vitruvius import Space, Superformer, spaces
from vitruvius.spaces import StageSpace
from vitruvius.superformer import RULES
from vitruvius.superformer._tables import CYCLIC
from vitruvius.superformer._widths import AxisWidths
from vitruvius.superformer.cyclic import chained, free_use, influence_gap, optimal_starts, pieces, runs
from vitruvius.testing import check_rule

axes = st.lists(st.integers(1, 60), min_size=1, max_size=9, unique=True).map(lambda w: tuple(sorted(w)))


@given(axes)
@pytest.mark.parametrize("name", RULES)
def test_the_network_of_width_k_has_k_channels(name: str, widths: tuple[int, ...]) -> None:
    check_rule(RULES[name], widths)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("space", spaces.SPACES)
def test_every_axis_of_every_published_space(space: str, name: str) -> None:
    loaded = spaces.load(space)
    found = AxisWidths(loaded, loaded.img_size)
    for stage in range(len(loaded.stages)):
        for axis in ("dim", "qk", "v", "mlp", "heads"):
            widths = found.of(axis, stage)
            if name != "free" or len(widths) <= 10:
                check_rule(RULES[name], widths)


@pytest.mark.parametrize("groups", CYCLIC)
def test_the_shipped_tables_are_solved_again(groups: int) -> None:
    assert optimal_starts(groups, tuple(range(1, groups + 1))) == CYCLIC[groups]


@pytest.mark.parametrize(("groups", "gap"), [(5, 0.6), (6, 0.333), (7, 0.692), (8, 0.472), (9, 0.792)])
def test_the_optimum_of_the_papers_table_16(groups: int, gap: float) -> None:
    widths = tuple(range(1, groups + 1))
    use = runs(groups, widths, CYCLIC[groups])
    assert influence_gap(use, widths) == pytest.approx(gap, abs=5e-4)


@pytest.mark.parametrize("groups", range(2, 7))
def test_the_optimum_by_brute_force(groups: int) -> None:
    """Every choice of starts, tried."""
    widths = tuple(range(1, groups + 1))
    starts = np.stack(np.meshgrid(*[np.arange(groups)] * (groups - 1), indexing="ij"), -1).reshape(-1, groups - 1)
    starts = np.concatenate([starts, np.zeros((len(starts), 1), dtype=int)], axis=1)
    use = (np.arange(groups) - starts[..., None]) % groups < np.array(widths)[:, None]
    counts = use.sum(axis=1)
    influence = (use / np.array(widths)[:, None]).sum(axis=1)
    gaps = ((influence[:, :, None] - influence[:, None, :]) ** 2).sum(axis=(1, 2)) / groups
    fair = gaps[np.ptp(counts, axis=1) <= 1]
    assert influence_gap(runs(groups, widths, CYCLIC[groups]), widths) == pytest.approx(fair.min())


@pytest.mark.parametrize("groups", CYCLIC)
def test_counts_are_fair_and_free_is_no_worse(groups: int) -> None:
    widths = tuple(range(1, groups + 1))
    cyclic, free = runs(groups, widths, CYCLIC[groups]), free_use(groups, widths)
    for use in (cyclic, free):
        assert (use.sum(axis=1) == widths).all()
        assert np.ptp(use.sum(axis=0)) <= 1  # Eq. 12
    assert influence_gap(free, widths) <= influence_gap(cyclic, widths) + 1e-9
    assert pieces(cyclic) <= 2 * groups


@given(st.integers(2, 40), st.sets(st.integers(1, 40), min_size=1, max_size=9))
def test_chained_arcs_are_fair(groups: int, widths: set[int]) -> None:
    chosen = sorted(min(width, groups) for width in widths)
    use = runs(groups, chosen, chained(groups, chosen))
    assert np.ptp(use.sum(axis=0)) <= 1


def test_heads_stay_whole() -> None:
    for widths, unit in (((192, 256), 64), ((224, 256, 288), 32), ((640, 768, 896, 1024), 128)):
        for width in widths:
            for start, length in RULES["cyclic"].pieces(widths, width):
                assert start % unit == 0
                assert length % unit == 0


def test_rounded_ladders_use_the_solved_table() -> None:
    widths = spaces.tenths(384)
    starts = [RULES["cyclic"].pieces(widths, width)[0][0] for width in widths[:-1]]
    assert starts == [round(384 * start / 10) for start in CYCLIC[10][:-1]]


def test_rules_by_hand() -> None:
    widths = (2, 3, 5)
    assert RULES["ordinal"].channels(widths, 3) == [0, 1, 2]
    assert RULES["bilateral"].channels(widths, 3, side=0) == [0, 1, 2]
    assert RULES["bilateral"].channels(widths, 3, side=1) == [2, 3, 4]
    assert RULES["bilateral"].sides == 2


def test_errors_name_what_is_allowed() -> None:
    with pytest.raises(ValueError, match="an axis has only the widths of its space; got 4; allowed: 2, 3, 5"):
        RULES["cyclic"].pieces((2, 3, 5), 4)
    with pytest.raises(ValueError, match=r"has 1 side\(s\); got 1"):
        RULES["ordinal"].pieces((2, 3), 2, side=1)


def one_block() -> Space:
    block = {"heads": 1, "qkv": (4, 8, 12, 16, 20), "mlp": spaces.tenths(40)}  # ladders of 5 and of 10 groups
    return Space(
        name="one block of 200 kinds",
        family="vit",
        patch=4,
        class_token=True,
        pool="token",
        positions="absolute",
        img_size=8,
        stages=(StageSpace(dim=(8, 16, 24, 32), depth=1, block=block),),
    )


@pytest.mark.parametrize("rule", ["ordinal", "bilateral", "cyclic", "free"])
def test_training_counts_of_5000_sampled_steps_are_those_predicted(rule: str) -> None:
    """Counted on the slices of a real superformer: how often, and with what influence, each channel is trained."""
    space = one_block()
    superformer = Superformer(space, sharing=rule, private=(), num_classes=3, cache=2000, seed=0)
    archs = space.decode_many(space.sample_vectors(np.random.default_rng(0), 5000))
    for name, dimension, axis in (("mlp.fc1", 0, "mlp"), ("attn.v", 0, "v"), ("attn.v", 1, "dim")):
        widths = AxisWidths(space, space.img_size).of(axis, 0)
        sides, length = RULES[rule].sides, widths[-1]
        count, influence, predicted = np.zeros(length), np.zeros(length), np.zeros((2, length))
        for arch in archs:
            for side in range(sides):
                part = superformer.slices_of(arch, side=side)[f"stages.0.blocks.0.{name}.weight"]
                channels = [s + i for s, n in dict(part.cuts).get(dimension, ((0, length),)) for i in range(n)]
                count[channels] += 1
                influence[channels] += 1 / len(channels)
        for side in range(sides):
            for width in widths:
                channels = RULES[rule].channels(widths, width, side)
                predicted[0, channels] += 1 / len(widths) / sides
                predicted[1, channels] += 1 / width / len(widths) / sides
        steps = len(archs) * sides
        # a binomial's standard deviation is at most 0.5 / sqrt(steps): 0.007 of 5000
        assert np.abs(count / steps - predicted[0]).max() < 0.035
        assert np.abs(influence / steps - predicted[1]).max() < 0.035 / widths[0]
        if rule in ("cyclic", "free"):
            assert np.ptp(predicted[0]) * len(widths) < 1 + 1e-9
            assert np.ptp(count / steps) < np.ptp(predicted[0]) + 0.07


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["ordinal", "bilateral", "cyclic", "free"])
def test_5000_training_steps_train_every_channel_as_often_as_predicted(rule: str) -> None:
    """A real run, forwards, backwards and optimizer: a channel is trained when its weights have a gradient."""
    space, steps = one_block(), 5000
    superformer = Superformer(space, sharing=rule, private=(), num_classes=3, cache=2000, seed=0)
    optimizer = torch.optim.SGD(superformer.parameters(), lr=0.01)
    archs = space.decode_many(space.sample_vectors(np.random.default_rng(0), steps))
    images = torch.randn(steps, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    weight = superformer.shared["stages/0/blocks/0/mlp/fc1/weight"]
    widths = spaces.tenths(40)
    count, influence = np.zeros(40), np.zeros(40)
    for step, arch in enumerate(archs):
        for side in range(superformer.rule.sides):
            optimizer.zero_grad(set_to_none=True)
            logits = superformer(images[step : step + 1], arch, side=side)
            torch.nn.functional.cross_entropy(logits, torch.tensor([step % 3])).backward()
            assert weight.grad is not None
            trained = weight.grad.abs().sum(dim=1).numpy() > 0
            optimizer.step()
            assert trained.sum() == arch.stages[0].blocks[0].mlp
            count += trained
            influence += trained / trained.sum()
    predicted = np.zeros((2, 40))
    for width in widths:
        for side in range(superformer.rule.sides):
            channels = superformer.rule.channels(widths, width, side)
            predicted[0, channels] += 1 / len(widths)
            predicted[1, channels] += 1 / width / len(widths)
    # five standard deviations of a binomial
    assert np.abs(count / steps - predicted[0]).max() < 2.5 / np.sqrt(steps) * superformer.rule.sides
    assert np.abs(influence / steps - predicted[1]).max() < 2.5 / np.sqrt(steps) * superformer.rule.sides / widths[0]
