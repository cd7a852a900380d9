"""How well scores order networks as their accuracies do: rank correlations with bootstrap intervals. No torch.

A resample of the bootstrap is a weight for every network (how often it was drawn), so that thousands of resamples are
matrix products: of pairs, for Kendall's tau; of weighted ranks and values, for Spearman and Pearson.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vitruvius.arch import refuse

__all__ = ["Band", "Correlation", "Estimate", "correlate", "kendall", "kendall_matrix", "near_pairs", "size_bands"]

Floats: TypeAlias = NDArray[np.float64]

RESAMPLES = 1000
_LEVEL = 0.95
_ROWS = 1024
"""So many rows of a matrix of pairs are held at once."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A correlation, and the ends of its 95 % interval; not a number where there is none (all values equal, say)."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "-"
        return f"{self.value:+.3f} [{self.low:+.2f}, {self.high:+.2f}]"


@dataclass(frozen=True, slots=True)
class Correlation:
    """Of scores with accuracies, over `n` networks; `left_out` had no finite score."""

    n: int
    left_out: int
    kendall: Estimate
    spearman: Estimate
    pearson: Estimate
    near: Estimate
    """Kendall's tau over the pairs of about equal parameters only."""
    near_pairs: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data; None where there is no number."""

        def plain(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: plain(part) for key, part in value.items()}
            return None if isinstance(value, float) and math.isnan(value) else value

        return dict(plain(asdict(self)))


@dataclass(frozen=True, slots=True)
class Band:
    """Networks of a range of parameters, both ends included."""

    low: float
    high: float

    def holds(self, params: ArrayLike) -> NDArray[np.bool_]:
        values = np.asarray(params, dtype=np.float64)
        return (values >= self.low) & (values <= self.high)


def size_bands(params: ArrayLike, count: int) -> list[Band]:
    """So many bands of about equally many networks each, which meet nowhere."""
    ordered = np.sort(np.asarray(params, dtype=np.float64))
    parts = [part for part in np.array_split(ordered, count) if len(part)]
    bands: list[Band] = []
    for part in parts:
        low, high = float(part[0]), float(part[-1])
        if bands and low <= bands[-1].high:  # equal sizes stay together
            bands[-1] = Band(bands[-1].low, max(high, bands[-1].high))
        else:
            bands.append(Band(low, high))
    return bands


def near_pairs(params: Floats, within: float, rows: slice) -> NDArray[np.bool_]:
    """(rows, n): whether the smaller of two networks has no more than `within` fewer parameters than the larger."""
    some = params[rows, None]
    return np.asarray(np.abs(some - params) <= within * np.maximum(some, params) * (1 + 1e-12))


def kendall(x: Floats, y: Floats, weights: Floats, params: Floats | None = None, within: float = math.inf) -> Floats:
    """(R,): Kendall's tau-b under weights (R, n), over all pairs or over those of about equal `params`."""
    concordant, untied_x, untied_y = (np.zeros(len(weights)) for _ in range(3))
    for first in range(0, len(x), _ROWS):
        rows = slice(first, first + _ROWS)
        signs_x = np.sign(x[rows, None] - x).astype(np.float32)
        signs_y = np.sign(y[rows, None] - y).astype(np.float32)
        if params is not None:
            near = near_pairs(params, within, rows)
            signs_x, signs_y = signs_x * near, signs_y * near
        for total, table in (
            (concordant, signs_x * signs_y),
            (untied_x, np.abs(signs_x)),
            (untied_y, np.abs(signs_y)),
        ):
            total += np.einsum("rn,rn->r", weights[:, rows] @ table.astype(np.float64), weights)
    # A pair that is tied in one of them counts as untied in the other.
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(concordant / np.sqrt(untied_x * untied_y))


def _ranks(values: Floats, weights: Floats) -> Floats:
    """(R, n): mean ranks in a resample in which value i is there weights[:, i] times."""
    _, place = np.unique(values, return_inverse=True)
    groups = np.zeros((len(weights), int(place.max()) + 1))
    for group in range(groups.shape[1]):
        groups[:, group] = weights[:, place == group].sum(axis=1)
    last = np.cumsum(groups, axis=1)
    return np.asarray((last - groups + (groups + 1) / 2)[:, place])


def _pearson(x: Floats, y: Floats, weights: Floats) -> Floats:
    """(R,): of values (n,) or (R, n), weighted."""
    total = weights.sum(axis=1, keepdims=True)
    x = x - (weights * x).sum(axis=1, keepdims=True) / total
    y = y - (weights * y).sum(axis=1, keepdims=True) / total
    with np.errstate(invalid="ignore", divide="ignore"):
        products = (weights * x * y).sum(axis=1)
        scale = np.sqrt((weights * x * x).sum(axis=1) * (weights * y * y).sum(axis=1))
        return np.asarray(np.where(scale > 0, products / scale, np.nan))


def _estimate(values: Floats) -> Estimate:
    """The first value is that of the networks as they are, the others of resamples."""
    found = values[1:][np.isfinite(values[1:])]
    if math.isnan(values[0]) or not len(found):
        return Estimate(float(values[0]), math.nan, math.nan)
    low, high = np.quantile(found, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return Estimate(float(values[0]), float(low), float(high))


def correlate(
    scores: ArrayLike,
    accuracies: ArrayLike,
    params: ArrayLike,
    *,
    within: float = 0.1,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Correlation:
    """Kendall, Spearman and Pearson between scores and accuracies, with percentile intervals of the bootstrap.

    Networks without a finite score are left out and counted. The same seed draws the same networks for every score, so
    that intervals of several scores over the same networks can be compared.
    """
    x, y, size = (np.asarray(values, dtype=np.float64) for values in (scores, accuracies, params))
    if not x.shape == y.shape == size.shape or x.ndim != 1:
        refuse("scores, accuracies and params are of the same networks", (x.shape, y.shape, size.shape), "(n,) each")
    if not (np.isfinite(y).all() and np.isfinite(size).all()):
        refuse("accuracies and params are finite", "nan or inf", "numbers")
    if type(resamples) is not int or resamples < 1:
        refuse("resamples of the bootstrap", resamples, "1 or more; 1000, say")
    kept = np.isfinite(x)
    x, y, size = x[kept], y[kept], size[kept]
    n = len(x)
    pairs = 0
    for first in range(0, n, _ROWS):
        rows = slice(first, first + _ROWS)
        pairs += int(near_pairs(size, within, rows).sum())
    pairs = (pairs - n) // 2
    if n < 2:
        none = Estimate(math.nan, math.nan, math.nan)
        return Correlation(n, int((~kept).sum()), none, none, none, none, max(pairs, 0))
    drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=resamples).astype(np.float64)
    weights = np.concatenate([np.ones((1, n)), drawn])
    return Correlation(
        n=n,
        left_out=int((~kept).sum()),
        kendall=_estimate(kendall(x, y, weights)),
        spearman=_estimate(_pearson(_ranks(x, weights), _ranks(y, weights), weights)),
        pearson=_estimate(_pearson(x, y, weights)),
        near=_estimate(kendall(x, y, weights, size, within)),
        near_pairs=pairs,
    )


def kendall_matrix(columns: Sequence[ArrayLike]) -> Floats:
    """(k, k): Kendall's tau of every two columns, each over the networks that have a finite value in both."""
    from scipy.stats import kendalltau

    table = [np.asarray(column, dtype=np.float64) for column in columns]
    matrix = np.full((len(table), len(table)), np.nan)
    for i, a in enumerate(table):
        for j, b in enumerate(table):
            both = np.isfinite(a) & np.isfinite(b)
            if both.sum() > 1:
                matrix[i, j] = kendalltau(a[both], b[both]).statistic
    return matrix
