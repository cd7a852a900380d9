"""Where a search may go: a space, a budget, and how costs are counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vitruvius.arch import Arch, ImageSize, image_shape, refuse
from vitruvius.arrays import IntArray
from vitruvius.costs import Budget, check_counting, cost
from vitruvius.spaces import Space

__all__ = ["Domain", "Measured"]

Measured: TypeAlias = Callable[[Sequence[Arch]], Mapping[str, Any]]
"""From architectures to arrays of what was measured (or predicted) of each: {"latency": (n,)}, say."""
_CLOSED = ("params", "macs")


class Domain:
    """The networks of a space within a budget.

    measured: callables whose metrics the budget may name beside params and MACs, and whose numbers go into the record.
    identity: see `Space.sample_vectors`; it shapes what is drawn at random, not what is allowed.
    """

    def __init__(
        self,
        space: Space,
        budget: Budget | str | Mapping[str, Any] | None = None,
        *,
        measured: Sequence[Measured] = (),
        img_size: ImageSize | None = None,
        num_classes: int = 1000,
        in_chans: int = 3,
        identity: float | None = None,
    ) -> None:
        if not isinstance(space, Space):
            refuse("a search needs a Space", type(space).__name__, "Space, say vitruvius.spaces.load('vitas-v1')")
        check_counting(num_classes, in_chans)
        self.space = space
        self.budget = None if budget is None else Budget.of(budget)
        self.measured = tuple(measured)
        self.counting: dict[str, Any] = {
            "img_size": image_shape(space.img_size if img_size is None else img_size),
            "num_classes": num_classes,
            "in_chans": in_chans,
        }
        self.identity = identity
        ends = () if self.budget is None else self.budget.ends
        self._closed = tuple(end for end in ends if end[0] in _CLOSED)
        self._measured = tuple(end for end in ends if end[0] not in _CLOSED)
        if self._closed:
            _ = self._sampler  # refuses what no network can meet

    @cached_property
    def _sampler(self) -> Any:
        return self.space.budget_sampler(Budget(self._closed), identity=self.identity, **self.counting)

    def draw(self, rng: np.random.Generator, n: int) -> IntArray:
        """(n, G): random networks whose parameters and MACs are in the budget."""
        if not self._closed:
            return self.space.sample_vectors(rng, n, self.identity)
        vectors: IntArray = self._sampler.vectors(rng, n)
        return vectors

    def allows(self, vectors: IntArray) -> NDArray[np.bool_]:
        """(n,): whether parameters and MACs of encoded networks are in the budget, and their stages can follow."""
        inside = self.space.valid(vectors)
        if self._closed and inside.any():
            rows = np.flatnonzero(inside)
            inside[rows] = Budget(self._closed).satisfied(cost(vectors[rows], space=self.space, **self.counting))
        return inside

    def costs(self, archs: Sequence[Arch]) -> dict[str, NDArray[np.float64]]:
        """Every metric that is known, by name: (n,) each."""
        if not archs:
            return {}
        total = cost(archs, **self.counting)
        found: dict[str, Any] = {"params": total.params, "macs": total.macs}
        for measure in self.measured:
            found |= measure(archs)
        return {name: np.asarray(values, dtype=np.float64) for name, values in found.items()}

    def meets(self, archs: Sequence[Arch]) -> NDArray[np.bool_]:
        """(n,): whether what is measured of networks is in the budget."""
        inside = np.ones(len(archs), dtype=bool)
        if self._measured and archs:
            found = self.costs(archs)
            for metric, low, high in self._measured:
                inside &= (found[metric] >= low) & (found[metric] <= high)
        return inside

    def violation(self, costs: Mapping[str, float]) -> float:
        """By how much of each end a network of these costs misses the budget, summed; 0 inside."""
        missed = 0.0
        for metric, low, high in () if self.budget is None else self.budget.ends:
            if metric in costs:
                missed += max(low - costs[metric], 0) / max(low, 1e-12)
                missed += max(costs[metric] - high, 0) / max(high, 1e-12) if np.isfinite(high) else 0.0
        return missed

    def record(self) -> dict[str, Any]:
        """What decides where a search may go, as plain data."""
        return {
            "space": self.space.to_dict(),
            "budget": None if self.budget is None else [list(end) for end in self.budget.ends],
            "identity": self.identity,
            **{key: list(value) if isinstance(value, tuple) else value for key, value in self.counting.items()},
        }
