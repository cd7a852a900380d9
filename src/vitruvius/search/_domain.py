"""Where a search may go: a space, a budget, and how costs are counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vitruvius.arch import Arch, ImageSize, image_shape, refuse
from vitruvius.arrays import IntArray
from vitruvius.costs import Budget, check_counting, cost, written
from vitruvius.spaces import Space

__all__ = ["Domain", "Measured"]

Measured: TypeAlias = Callable[[Sequence[Arch]], Mapping[str, Any]]
"""From architectures to arrays of what was measured (or predicted) of each: {"latency": (n,)}, say."""
_PROBE = 256
"""So many networks are measured to see whether a budget of measured metrics can be met."""


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
        self._counted = None if self.budget is None else self.budget.counted
        self._limits = None if self.budget is None else self.budget.measured
        if self._counted is not None:
            self.draw(np.random.default_rng(0), 1)  # refuses what no network can meet
        if self._limits is not None:
            self._check_limits(self._limits)

    @cached_property
    def _sampler(self) -> Any:
        assert self._counted is not None
        return self.space.budget_sampler(self._counted, identity=self.identity, **self.counting)

    def _check_limits(self, limits: Budget) -> None:
        """Whether some network meets the measured metrics, as far as a sample can tell."""
        archs = self.space.decode_many(self.draw(np.random.default_rng(0), _PROBE))
        archs += [end for end in (self.space.smallest, self.space.largest) if self._counts(end)]
        found = self.costs(archs)
        for metric, _, _ in limits.ends:
            if metric not in found:
                known = ", ".join(found)
                refuse(f"nothing measures the {metric} that the budget names", str(self.budget), f"{known}, or measure")
        if not limits.satisfied(found).any():
            seen = (
                f"{metric} {written(metric, found[metric].min())}..{written(metric, found[metric].max())}"
                for metric, _, _ in limits.ends
            )
            rule = f"no network of {len(archs)} tried of space {self.space.name!r} meets the budget"
            refuse(rule, str(self.budget), f"within {', '.join(seen)}")

    def _counts(self, arch: Arch) -> bool:
        """Whether the parameters and MACs of a network are in the budget."""
        return self._counted is None or bool(self._counted.satisfied(cost([arch], **self.counting))[0])

    def draw(self, rng: np.random.Generator, n: int) -> IntArray:
        """(n, G): random networks whose parameters and MACs are in the budget."""
        if self._counted is None:
            return self.space.sample_vectors(rng, n, self.identity)
        vectors: IntArray = self._sampler.vectors(rng, n)
        return vectors

    def allows(self, vectors: IntArray) -> NDArray[np.bool_]:
        """(n,): whether parameters and MACs of encoded networks are in the budget, and their stages can follow."""
        inside = self.space.valid(vectors)
        if self._counted is not None and inside.any():
            rows = np.flatnonzero(inside)
            inside[rows] = self._counted.satisfied(cost(vectors[rows], space=self.space, **self.counting))
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
        if self._limits is None or not archs:
            return np.ones(len(archs), dtype=bool)
        return self._limits.satisfied(self.costs(archs))

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
