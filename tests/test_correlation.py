"""Correlations against scipy and against counting every pair; their intervals against drawing resamples."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vitruvius import correlation
from vitruvius.correlation import Band, correlate, kendall, kendall_matrix, size_bands


def some(n: int, seed: int = 0, ties: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.normal(size=n)
    x = y + rng.normal(size=n)
    return (np.round(x, 1), np.round(y, 1), rng.uniform(5, 8, n)) if ties else (x, y, rng.uniform(5, 8, n))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n", [2, 3, 20, 300])
def test_values_are_scipys(n: int, ties: bool) -> None:
    x, y, params = some(n, ties=ties)
    found = correlate(x, y, params, resamples=2)
    assert found.kendall.value == pytest.approx(stats.kendalltau(x, y).statistic, nan_ok=True)
    assert found.spearman.value == pytest.approx(stats.spearmanr(x, y).statistic, nan_ok=True)
    assert found.pearson.value == pytest.approx(stats.pearsonr(x, y).statistic, nan_ok=True)


def test_resamples_are_scipys_of_the_drawn_networks() -> None:
    x, y, params = some(30)
    drawn = np.random.default_rng(0).multinomial(30, np.full(30, 1 / 30), size=50).astype(float)
    ranks = [correlation._ranks(values, drawn) for values in (x, y)]
    found = {
        "kendalltau": kendall(x, y, drawn),
        "spearmanr": correlation._pearson(*ranks, drawn),
        "pearsonr": correlation._pearson(x, y, drawn),
    }
    for name, values in found.items():
        for weights, value in zip(drawn, values, strict=True):
            places = np.repeat(np.arange(30), weights.astype(int))
            assert value == pytest.approx(getattr(stats, name)(x[places], y[places]).statistic), name
    low, high = np.quantile(found["kendalltau"], [0.025, 0.975])
    estimate = correlate(x, y, params, resamples=50, seed=0).kendall
    assert (estimate.low, estimate.high) == pytest.approx((low, high))


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 12), st.integers(0, 10**6), st.sampled_from([0.0, 0.05, 0.1, 0.5]))
def test_near_pairs_by_counting_them(n: int, seed: int, within: float) -> None:
    x, y, params = some(n, seed)
    agree = tied_x = tied_y = pairs = 0
    for i, j in combinations(range(n), 2):
        if abs(params[i] - params[j]) <= within * max(params[i], params[j]):
            pairs += 1
            sx, sy = np.sign(x[i] - x[j]), np.sign(y[i] - y[j])
            agree, tied_x, tied_y = agree + sx * sy, tied_x + (sx == 0), tied_y + (sy == 0)
    found = correlate(x, y, params, within=within, resamples=2)
    assert found.near_pairs == pairs
    scale = math.sqrt((pairs - tied_x) * (pairs - tied_y))
    assert found.near.value == pytest.approx(agree / scale if scale else math.nan, nan_ok=True)


def test_many_networks_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, params = some(50)
    whole = correlate(x, y, params, resamples=20)
    monkeypatch.setattr(correlation, "_ROWS", 7)
    assert correlate(x, y, params, resamples=20) == whole


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    truth = 2 / math.pi * math.asin(1 / math.sqrt(2))  # Kendall's tau of a binormal with correlation 1 / root 2
    inside = 0
    for seed in range(200):
        x, y, params = some(60, seed, ties=False)
        estimate = correlate(x, y, params, resamples=200).kendall
        inside += estimate.low <= truth <= estimate.high
    assert 0.88 <= inside / 200 <= 0.99


def test_no_score_is_left_out_and_counted() -> None:
    x, y, params = some(20)
    holes = x.copy()
    holes[[3, 7]] = math.nan, math.inf
    keep = np.isfinite(holes)
    found, expected = correlate(holes, y, params), correlate(x[keep], y[keep], params[keep])
    assert (found.n, found.left_out) == (18, 2)
    assert found.kendall == expected.kendall
    empty = correlate(np.full(20, math.nan), y, params)
    assert (empty.n, empty.left_out) == (0, 20)
    assert str(empty.kendall) == "-"
    assert empty.to_dict()["kendall"]["value"] is None


def test_equal_scores_have_no_correlation() -> None:
    _, y, params = some(20)
    found = correlate(np.ones(20), y, params, resamples=5)
    assert all(math.isnan(e.value) for e in (found.kendall, found.spearman, found.pearson))


def test_perfect_order() -> None:
    y = np.arange(10.0)
    found = correlate(np.exp(y), y, np.full(10, 5.0), resamples=50)
    assert (found.kendall.value, found.spearman.value, found.near.value) == (1, pytest.approx(1), 1)
    assert found.near_pairs == 45
    assert correlate(-y, y, y, resamples=5).kendall.value == -1


def test_bands() -> None:
    assert size_bands([1, 2, 3, 4, 5, 6], 3) == [Band(1, 2), Band(3, 4), Band(5, 6)]
    assert size_bands([1, 1, 1, 1, 5, 6], 3) == [Band(1, 1), Band(5, 6)]
    assert size_bands([3], 3) == [Band(3, 3)]
    assert Band(1, 2).holds([0.9, 1, 2, 2.1]).tolist() == [False, True, True, False]


def test_matrix() -> None:
    x, y, z = some(40)
    x[3] = math.nan
    keep = np.isfinite(x)
    matrix = kendall_matrix([x, y, z])
    assert matrix[0, 1] == matrix[1, 0] == pytest.approx(stats.kendalltau(x[keep], y[keep]).statistic)
    assert matrix[1, 2] == pytest.approx(stats.kendalltau(y, z).statistic)
    assert np.diag(matrix) == pytest.approx(1)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: correlate([1, 2], [1, 2, 3], [1, 2]), "same networks"),
        (lambda: correlate([1, 2], [1, math.nan], [1, 2]), "finite"),
        (lambda: correlate([1, 2], [1, 2], [1, 2], resamples=0), "resamples"),
    ],
)
def test_bad_input(call, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call()
