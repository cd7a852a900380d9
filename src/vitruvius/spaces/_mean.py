"""The mean cost of a space's random networks, exactly, and the identity probability that makes it meet a budget.

ViTAS v1 (Section 4.3) finds the probability of the identity with which the expected cost of a sampled path is the
budget; with identity shifting (v2) the same is asked of the number of identities. Costs are sums over independent
parts once the widths of the stages are known, so that the expectation is a sum too: nothing needs to be sampled.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from vitruvius.arch import refuse
from vitruvius.costs import Budget, short
from vitruvius.spaces._parts import CostParts, Counting

if TYPE_CHECKING:
    from vitruvius.spaces._space import Space

Floats = NDArray[np.float64]

_MOST_IDENTITY = 0.999
"""With more, hardly a block is ever drawn."""


class MeanCost:
    """The expected cost of `space.sample_vectors(identity=p)` as a function of p."""

    def __init__(self, space: Space, metric: str, counting: Counting) -> None:
        self._space, parts, stages = space, CostParts(space, counting), range(len(space.stages))
        self._shape = (len(parts.configs), *(len(states) for states in parts.states))
        self._options = [parts.blocks(s, metric).mean(axis=-1) for s in stages]
        self._occupied = [parts.occupied(s, metric) for s in stages]
        self._first, self._exit = parts.first(metric), parts.exit(metric)
        self._between = [parts.between(s, metric) for s in stages[1:]]

    def __call__(self, identity: float | None = None) -> float:
        """Sums over all chains of stages' states that may follow each other, which are equally likely."""
        configs = self._shape[0]
        chains = np.ones((configs, self._shape[1]))
        total = (self._first + self._stage(0, identity)).reshape(configs, -1)
        for s in range(1, len(self._space.stages)):
            cost, follows = self._between[s - 1]
            steps = follows.astype(np.float64)
            total = np.einsum("ca,cab->cb", total, steps) + np.einsum("ca,cab->cb", chains, steps * cost)
            chains = np.einsum("ca,cab->cb", chains, steps)
            total += chains * self._stage(s, identity).reshape(configs, -1)
        total += chains * self._exit.reshape(configs, -1)
        return float(total.sum() / chains.sum())

    def _stage(self, s: int, identity: float | None) -> Floats:
        """(rows,): the mean cost of a stage's blocks."""
        stage, options, occupied = self._space.stages[s], self._options[s], self._occupied[s]
        if stage.identity == "anywhere":
            skip = np.zeros(stage.layers)
            skip[list(stage.skips)] = self._space.skip_weight(s, identity)
            return np.asarray((1 - skip) @ options + occupied * (1 - skip.prod()))
        ways = [options[:depth].sum(axis=0) + occupied * (depth > 0) for depth in stage.depth]
        return np.asarray(self._space.depth_weights(s, identity) @ np.stack(ways))


def target_of(budget: Budget) -> tuple[str, float]:
    """The one metric of a budget, and what its mean should be: the middle of a window, or the end of an open one."""
    if len(budget.ends) != 1:
        refuse("budget-aligned sampling aligns the mean of one metric", str(budget), '"macs = 1.3G +- 1%", say')
    metric, low, high = budget.ends[0]
    if math.isinf(high):
        refuse("budget-aligned sampling needs an upper end", str(budget), '"macs = 1.3G +- 1%", "macs <= 1.3G"')
    return metric, (low + high) / 2 if low else high


def identity_for(space: Space, budget: Budget, counting: Counting) -> float:
    metric, target = target_of(budget)
    mean = MeanCost(space, metric, counting)
    most, least = mean(0.0), mean(_MOST_IDENTITY)
    if most - least <= 1e-9 * most:
        refuse("budget-aligned sampling needs layers that may be skipped", space.name, "a space with identities")
    if not least <= target <= most:
        means = f"{short(least)}..{short(most)}"
        refuse(f"no identity probability of space {space.name!r} has this mean {metric}", short(target), means)
    return float(brentq(lambda p: mean(p) - target, 0.0, _MOST_IDENTITY, xtol=1e-6))
