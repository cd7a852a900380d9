"""Times of parts that were not measured, from those that were.

A part's time is modelled as a sum, with coefficients of at least zero, of what its kernels do: multiply-accumulates of
its linear layers and of attention's two products, softmax entries, channels of tokens that are read and written, and a
constant for being called. Each group of parts that run the same kernels on the same token grid (a mixer, a window) has
coefficients of its own, fitted to relative errors. What the sum leaves is smoothed: a part not measured is corrected
by the mean log error of the measured parts nearest to it in the logarithms of its widths.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from vitruvius.arrays import IntArray
from vitruvius.costs.latency._parts import FIELDS, Rows

Floats = NDArray[np.float64]

_GROUPED_BY = {
    "entry": ("size", "stride", "stem"),
    "attention": ("high", "wide", "mixer", "window", "reduction"),
}
_NEIGHBOURS = 4
_LEAST = 12
"""Measured parts of a group: below that a fit of six coefficients says nothing."""


def features(kind: str, rows: IntArray) -> Floats:
    """(m, K): what the fit has coefficients for. Constants of a group (its grid, its window) are left to the fit."""
    value = {name: rows[:, i].astype(np.float64) for i, name in enumerate(FIELDS[kind])}
    one = np.ones(len(rows))
    if kind == "attention":
        dim, heads, qk, v = (value[name] for name in ("dim", "heads", "qk", "v"))
        linear = dim * (qk + v)
        return np.stack([one, dim, qk + v, linear, heads, heads * (qk + v), dim * dim], axis=1)
    if kind == "mlp":
        return np.stack([one, value["dim"], value["mlp"], value["dim"] * value["mlp"]], axis=1)
    if kind == "between":
        before, after = value["before"], value["after"]
        return np.stack([one, before, after, before * after], axis=1)
    return np.stack([one, value["dim"]], axis=1)


def _groups(kind: str, rows: IntArray) -> list[IntArray]:
    """The places of the parts that share their coefficients."""
    names = _GROUPED_BY.get(kind, ("high", "wide"))
    columns = rows[:, [FIELDS[kind].index(name) for name in names]]
    _, group = np.unique(columns, axis=0, return_inverse=True)
    group = group.reshape(-1)
    return [np.flatnonzero(group == g) for g in range(int(group.max(initial=-1)) + 1)]


def designed(parts: Rows, most: int) -> dict[str, NDArray[np.bool_]]:
    """Which parts to measure, at most about `most`: all of them, or of every group a share that spans its widths."""
    total = sum(map(len, parts.values()))
    chosen = {}
    for kind, rows in parts.items():
        mask = np.zeros(len(rows), dtype=bool)
        for group in _groups(kind, rows):
            share = len(group) if total <= most else max(_LEAST, len(group) * most // total)
            mask[group[_spanning(rows[group], share)]] = True
        chosen[kind] = mask
    return chosen


def _coordinates(rows: IntArray) -> Floats:
    """(m, F): logarithms of the widths that vary, each from 0 to 1."""
    log = np.log(np.maximum(rows, 1))
    span = np.ptp(log, axis=0)
    return np.asarray((log - log.min(axis=0))[:, span > 0] / span[span > 0])


def _spanning(rows: IntArray, count: int) -> IntArray:
    """Places of `count` rows that lie far from each other: each is the farthest from those before it."""
    if count >= len(rows):
        return np.arange(len(rows))
    points = _coordinates(rows)
    picked = [0]
    distance = np.linalg.norm(points - points[0], axis=1)
    while len(picked) < count:
        picked.append(int(distance.argmax()))
        distance = np.minimum(distance, np.linalg.norm(points - points[picked[-1]], axis=1))
    return np.array(sorted(picked), dtype=np.int64)


def interpolated(kind: str, rows: IntArray, measured: NDArray[np.bool_], values: Floats) -> Floats:
    """(m,): `values` where measured, the model's elsewhere."""
    filled = values.copy()
    for group in _groups(kind, rows):
        known, unknown = group[measured[group]], group[~measured[group]]
        if not len(unknown):
            continue
        table = features(kind, rows)
        weights, _ = nnls(table[known] / values[known][:, None], np.ones(len(known)))
        fit = table @ weights
        points = dict(zip(group.tolist(), _coordinates(rows[group]), strict=True))
        left = np.log(values[known] / fit[known])
        near = np.array([points[place] for place in known.tolist()])
        for place in unknown.tolist():
            distance = np.linalg.norm(near - points[place], axis=1)
            closest = np.argsort(distance, kind="stable")[:_NEIGHBOURS]
            weight = 1 / np.maximum(distance[closest], 1e-9)
            filled[place] = fit[place] * np.exp(weight @ left[closest] / weight.sum())
    return filled
