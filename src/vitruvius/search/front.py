"""What several objectives come to: dominance ranks, crowding, the front, hypervolume."""

from __future__ import annotations

from collections.abc import Sequence

import moocore  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray

from vitruvius.search._trial import Objective, Trial, values_of

__all__ = ["crowding", "front", "hypervolume", "rank_order", "ranks", "reference_point"]

Floats = NDArray[np.float64]


def ranks(values: Floats, violations: Floats | None = None) -> NDArray[np.int64]:
    """(n,): of each point, less being better, the front that it is on, 0 the best.

    Points that miss a budget come after all that do not, by how much they miss it (Deb's constrained dominance).
    """
    found = np.zeros(len(values), dtype=np.int64)
    missed = np.zeros(len(values)) if violations is None else violations
    inside = missed <= 0
    if inside.any():
        found[inside] = moocore.pareto_rank(np.ascontiguousarray(values[inside]))
    if (~inside).any():
        after = found[inside].max() + 1 if inside.any() else 0
        found[~inside] = after + np.unique(missed[~inside], return_inverse=True)[1].reshape(-1)
    return found


def crowding(values: Floats) -> Floats:
    """(n,): how far each point of a front is from its neighbours; the ends are infinitely far."""
    n = len(values)
    distance = np.zeros(n)
    for column in values.T:
        order = np.argsort(column, kind="stable")
        span = column[order[-1]] - column[order[0]]
        distance[order[[0, -1]]] = np.inf
        if span > 0 and n > 2:
            distance[order[1:-1]] += (column[order[2:]] - column[order[:-2]]) / span
    return distance


def rank_order(values: Floats, violations: Floats | None = None) -> list[int]:
    """NSGA-II's order: by front, within one the most isolated first; equals as they came."""
    rank = ranks(values, violations)
    apart = np.zeros(len(values))
    for each in np.unique(rank):
        members = np.flatnonzero(rank == each)
        apart[members] = crowding(values[members])
    return [int(i) for i in np.lexsort((-apart, rank))]


def front(trials: Sequence[Trial], objectives: Sequence[Objective]) -> list[Trial]:
    """The trials that no other one dominates; of equal ones the first."""
    complete = [trial for trial in trials if trial.complete]
    if not complete:
        return []
    values = values_of(complete, objectives)
    kept = moocore.is_nondominated(values)
    order = np.argsort(values[kept][:, 0], kind="stable")
    best = [trial for trial, keep in zip(complete, kept.tolist(), strict=True) if keep]
    return [best[i] for i in order]


def reference_point(trials: Sequence[Trial], objectives: Sequence[Objective]) -> Floats:
    """The worst of every objective among trials, a tenth of their range further out."""
    values = values_of([trial for trial in trials if trial.complete], objectives)
    worst, best = values.max(axis=0), values.min(axis=0)
    return np.asarray(worst + 0.1 * np.where(worst > best, worst - best, np.maximum(np.abs(worst), 1)))


def hypervolume(trials: Sequence[Trial], objectives: Sequence[Objective], reference: Floats) -> float:
    """What the trials dominate up to a reference point (less is better there, as in `values_of`)."""
    complete = [trial for trial in trials if trial.complete]
    if not complete:
        return 0.0
    return float(moocore.hypervolume(values_of(complete, objectives), ref=reference))
