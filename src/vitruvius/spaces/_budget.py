"""Sampling within a budget, exactly: what `sample` gives, given that the cost lies in the window.

In these spaces the cost is a sum over the network's parts, and given the widths of the stages the blocks are drawn
independently. So the distribution of the cost can be computed on a grid of bins by dynamic programming, stage by stage
and block by block, and a network be drawn backwards from it: first the binned total inside the window, then block by
block what led to it. Rounding moves a part by half a bin at most, so the binned window is widened by that much for
every part, and a drawn network is kept if its exact cost is inside. What is kept has exactly the distribution of
`sample` conditioned on the budget: the method is unbiased, and at windows of 1 % more than half of the draws are kept.

With two metrics in the budget the narrower one is sampled so, and the other checked; half a million draws without a hit
end in an error, which for a budget that only the rarest networks meet may be wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from vitruvius.arch import refuse
from vitruvius.arrays import IntArray
from vitruvius.costs import Budget, Cost, short
from vitruvius.spaces._parts import CostParts, Counting

if TYPE_CHECKING:
    from vitruvius.spaces._space import Space

Floats = NDArray[np.float64]

_BINS = 4096
_MAX_CELLS = 2**25
"""At most this many numbers (256 MiB) in the tables; with more states there are fewer bins."""
_MAX_BARREN = 2**19
"""Draws without one network in the whole budget before giving up."""
_MAX_BATCH = 4096


@lru_cache(maxsize=2)
def prepared_sampler(space: Space, budget: Budget, counting: Counting, identity: float | None) -> BudgetSampler:
    return BudgetSampler(space, budget, counting, identity)


@dataclass(frozen=True, slots=True)
class _Layer:
    """What one layer may be. Block options of equal cost (heads, say, cost nothing) are one kind."""

    bins: IntArray
    """(rows, kinds + 1): the binned cost of each kind; the last is the identity."""
    weights: Floats
    """(kinds + 1,): their probabilities."""
    options: tuple[IntArray, ...]
    """Of each kind, which block options it stands for."""


@dataclass(frozen=True, slots=True)
class _StageTable:
    """One stage, for every configuration of the network and state of the stage (one row each)."""

    after: Floats
    """(layers + 1, rows, bins): the probability of each binned cost before the first layer and after each one."""
    leaving: Floats
    """(rows, bins): and after the stage."""
    depths: Floats
    """(D,): the probability of each choice of depth (one, where layers are skipped on their own)."""
    layers: tuple[_Layer, ...]
    occupied: IntArray
    """(rows,): the binned cost of a stage that has blocks."""


class BudgetSampler:
    """Draws encoded architectures of a space within a budget."""

    def __init__(self, space: Space, budget: Budget, counting: Counting, identity: float | None) -> None:
        self.space, self.budget = space, budget
        self._counting, self._identity = counting, identity
        self._parts = CostParts(space, counting)
        self._configs, self._states = self._parts.configs, self._parts.states
        for metric, low, high in budget.ends:
            least, most = self._parts.extremes(metric)
            if high < least or low > most:
                self._refuse(metric, low, high, f"{short(least)}..{short(most)}")
        # The narrowest window, relative to its middle, is the one that is sampled.
        spread = [(high - low) / (high + low) if 0 < high < np.inf else 1.0 for _, low, high in budget.ends]
        self._metric, self._low, self._high = budget.ends[int(np.argmin(spread))]
        least, most = self._parts.extremes(self._metric)
        self._high, self._low = min(self._high, most), max(self._low, least)
        self._costs = [self._parts.blocks(s, self._metric) for s in range(len(space.stages))]
        layers = sum(stage.layers for stage in space.stages)
        rows = max(len(self._configs) * len(states) for states in self._states)
        depth = max(stage.layers for stage in space.stages) + 3
        self._bins = int(np.clip(_MAX_CELLS // (rows * depth * len(space.stages)), 256, _BINS))
        self._width = self._high / self._bins
        self._slack = self._rounding(layers)
        self._loose = self._overcounted()
        self._cells = self._bins + self._slack + self._loose + 1
        self._tables: list[_StageTable] = []
        for s in range(len(space.stages)):
            self._tables.append(self._stage_table(s))
        self._prepare_ends()

    def _refuse(self, metric: str, low: float, high: float, possible: str) -> NoReturn:
        window = f"{short(low)}..{short(high)}"
        refuse(f"no network of space {self.space.name!r} has {metric} of {window}", str(self.budget), possible)

    def _rounding(self, layers: int) -> int:
        """By how many bins the binned total may miss the exact one."""
        parts = layers + 3 * len(self.space.stages) + 2
        return parts // 2 + 1

    def _overcounted(self) -> int:
        """By how many bins a total may be too high: a stage that skips all its layers is binned as if it had some."""
        skipped = [s for s, stage in enumerate(self.space.stages) if len(stage.skips) == stage.layers > 0]
        return sum(int(self._binned(self._parts.occupied(s, self._metric)).max()) for s in skipped)

    def _binned(self, cost: Any) -> IntArray:
        return np.rint(np.asarray(cost) / self._width).astype(np.int64)

    # -- forwards: the distribution of the cost --------------------------------------------------------------------

    def _shifted(self, distribution: Floats, bins: IntArray) -> Floats:
        """(rows, cells): each row's distribution after a cost of so many bins; what leaves the window is dropped."""
        source = np.arange(self._cells)[None, :] - bins[:, None]
        moved = np.take_along_axis(distribution, np.clip(source, 0, None), axis=1)
        return np.where(source >= 0, moved, 0.0)

    def _stage_table(self, s: int) -> _StageTable:
        stage, configs = self.space.stages[s], len(self._configs)
        if s == 0:
            start = np.zeros((configs * len(self._states[0]), self._cells))
            start[:, 0] = 1.0
            entering = self._shifted(start, self._binned(self._parts.first(self._metric)))
        else:
            before = self._tables[-1].leaving.reshape(configs, -1, self._cells)
            cost, follows = self._parts.between(s, self._metric)
            bins = self._binned(cost)
            entering = np.zeros((configs, len(self._states[s]), self._cells))
            for previous, state in product(range(before.shape[1]), range(len(self._states[s]))):
                moved = self._shifted(before[:, previous], bins[:, previous, state])
                entering[:, state] += np.where(follows[:, previous, state, None], moved, 0.0)
            entering = entering.reshape(-1, self._cells)
        layers = self._layers(s)
        after = [entering]
        for layer in layers:
            after.append(self._convolve(after[-1], layer))
        occupied = self._binned(self._parts.occupied(s, self._metric))
        depths = self.space.depth_weights(s, self._identity) if stage.identity == "shifted" else np.ones(1)
        leaving = np.zeros_like(entering)
        for depth, weight in zip(stage.depth, depths, strict=True):
            leaving += weight * self._shifted(after[depth], occupied * (depth > 0))
        return _StageTable(np.stack(after), leaving, depths, layers, occupied)

    def _layers(self, s: int) -> tuple[_Layer, ...]:
        stage = self.space.stages[s]
        layers = []
        for layer, costs in enumerate(self._binned(self._costs[s])):
            kinds, kind_of = np.unique(costs, axis=1, return_inverse=True)
            kind_of = kind_of.reshape(-1)
            options = tuple(np.flatnonzero(kind_of == kind) for kind in range(kinds.shape[1]))
            skip = self.space.skip_weight(s, self._identity) if layer in (stage.skips) else 0.0
            weights = (1 - skip) * np.bincount(kind_of) / len(kind_of)
            bins = np.concatenate([kinds, np.zeros((len(kinds), 1), dtype=np.int64)], axis=1)
            layers.append(_Layer(bins, np.append(weights, skip), options))
        return tuple(layers)

    def _convolve(self, distribution: Floats, layer: _Layer) -> Floats:
        """The distribution after one layer."""
        result = np.zeros_like(distribution)
        for row, bins in enumerate(layer.bins.tolist()):
            for cost, weight in zip(bins, layer.weights.tolist(), strict=True):
                if cost < self._cells and weight:
                    result[row, cost:] += weight * distribution[row, : self._cells - cost]
        return result

    def _prepare_ends(self) -> None:
        """The probability of every (row of the last stage, binned cost at its end) that may be inside the window."""
        last = self._tables[-1].leaving
        exit_bins = self._binned(self._parts.exit(self._metric))
        total = exit_bins[:, None] + np.arange(self._cells)[None, :]
        low = int(self._low / self._width) - self._slack
        inside = np.where((total >= low) & (total <= self._bins + self._slack + self._loose), last, 0.0)
        self._ends = np.cumsum(inside.ravel())
        if not self._ends[-1] > 0:
            self._refuse(self._metric, self._low, self._high, self._nearest(last, total))

    def _nearest(self, last: Floats, total: IntArray) -> str:
        reached = np.unique(total[last > 0]) * self._width
        below = reached[reached < self._low]
        return f"nothing in between; the next below is about {short(below[-1])}" if below.size else "more"

    # -- backwards: networks from it -------------------------------------------------------------------------------

    def vectors(self, rng: np.random.Generator, n: int) -> IntArray:
        """(n, G): encoded architectures within the budget."""
        require_count(n)
        kept: list[IntArray] = []
        barren = found = 0
        size = max(64, min(2 * n, _MAX_BATCH))
        while found < n:
            drawn = self._draw(rng, size)
            cost = self._cost(drawn)
            inside = drawn[self.budget.satisfied(cost)]
            barren = 0 if len(inside) else barren + size
            if barren > _MAX_BARREN:
                self._give_up(cost)
            size = min(2 * size, _MAX_BATCH) if barren else size
            kept.append(inside[: n - found])
            found += len(kept[-1])
        return np.concatenate(kept) if kept else self.space.sample_vectors(rng, 0)

    def acceptance(self, rng: np.random.Generator, n: int = 4096) -> float:
        """The share of drawn networks whose exact cost is in the budget; `vectors` returns only those."""
        return float(self.budget.satisfied(self._cost(self._draw(rng, n))).mean())

    def _cost(self, vectors: IntArray) -> Cost:
        return self._counting.cost(self.space, vectors)

    def _give_up(self, cost: Cost) -> None:
        seen = [
            f"{metric} {short(getattr(cost, metric).min())}..{short(getattr(cost, metric).max())}"
            for metric, _, _ in self.budget.ends
        ]
        refuse(
            f"found no network of space {self.space.name!r} with every metric in the budget in {_MAX_BARREN:,} draws",
            str(self.budget),
            f"another budget; among the last draws: {', '.join(seen)}",
        )

    def _draw(self, rng: np.random.Generator, n: int) -> IntArray:
        vectors = np.zeros((n, len(self.space.layout.genes)), dtype=np.int64)
        picked = np.searchsorted(self._ends, rng.random(n) * self._ends[-1], side="right")
        row, bins = np.divmod(np.minimum(picked, len(self._ends) - 1), self._cells)
        for s in reversed(range(len(self._tables))):
            bins = self._draw_stage(rng, s, row, bins, vectors)
            _set(vectors, self._states[s], row % len(self._states[s]))
            if s:
                row, bins = self._draw_previous(rng, s, row, bins)
        _set(vectors, self._configs, row // len(self._states[0]))
        return self.space.layout.canonical(vectors)

    def _draw_stage(
        self, rng: np.random.Generator, s: int, row: IntArray, bins: IntArray, vectors: IntArray
    ) -> IntArray:
        """Fills in the stage's depth and blocks, and gives the binned cost before them."""
        stage, table, layout = self.space.stages[s], self._tables[s], self.space.layout
        depths = np.array(stage.depth)
        ends = bins[:, None] - table.occupied[row][:, None] * (depths > 0)
        chance = table.depths * self._at(table.after, depths[None, :], row[:, None], ends)
        choice = _choose(rng, chance)
        depth, bins = depths[choice], ends[np.arange(len(row)), choice]
        if (column := layout.column("depth", s)) is not None:
            vectors[:, column] = choice
        options = self.space.layout.block_options(s)
        for place in reversed(range(stage.layers)):
            layer, there = table.layers[place], depth > place
            before = bins[:, None] - layer.bins[row]
            chance = layer.weights * self._at(table.after, place, row[:, None], before)
            chance[~there] = 1.0  # not drawn: the layer is beyond the depth
            kind = _choose(rng, chance)
            bins = np.where(there, before[np.arange(len(row)), kind], bins)
            if (on := layout.column("on", s, place)) is not None:
                vectors[:, on] = kind < len(layer.options)
            option = _member(rng, layer.options, np.minimum(kind, len(layer.options) - 1))
            for parameter in options[0]:
                values = np.array([each[parameter] for each in options])
                vectors[:, layout.column(parameter, s, place)] = values[option]
        return bins

    def _draw_previous(
        self, rng: np.random.Generator, s: int, row: IntArray, bins: IntArray
    ) -> tuple[IntArray, IntArray]:
        """The row of stage s - 1 that led here, and the binned cost at its end."""
        config, state = np.divmod(row, len(self._states[s]))
        states = np.arange(len(self._states[s - 1]))
        cost, follows = self._parts.between(s, self._metric)
        before = bins[:, None] - self._binned(cost)[config, :, state]
        rows = config[:, None] * len(states) + states
        chance = self._at(self._tables[s - 1].leaving[None], 0, rows, before) * follows[config, :, state]
        choice = _choose(rng, chance)
        each = np.arange(len(row))
        return rows[each, choice], before[each, choice]

    def _at(self, table: Floats, depth: Any, row: IntArray, bins: IntArray) -> Floats:
        """table[depth, row, bins], and nothing below the first bin."""
        return np.where(bins >= 0, table[depth, row, np.maximum(bins, 0)], 0.0)


def require_count(n: object) -> None:
    if not isinstance(n, int | np.integer) or n < 0:
        refuse("how many architectures are drawn must be a whole number", n, "0, 1, 2, ...")


def _choose(rng: np.random.Generator, chance: Floats) -> IntArray:
    """(n,): one column of each row, with the row's chances. Every row has one above zero."""
    cumulative = np.cumsum(chance, axis=1)
    return np.asarray((cumulative <= rng.random(len(chance))[:, None] * cumulative[:, -1:]).sum(axis=1))


def _member(rng: np.random.Generator, groups: tuple[IntArray, ...], picked: IntArray) -> IntArray:
    """(n,): a member, evenly, of each picked group."""
    sizes = np.array([len(group) for group in groups])
    place = (rng.random(len(picked)) * sizes[picked]).astype(np.int64)
    return np.asarray(np.concatenate(groups)[(np.cumsum(sizes) - sizes)[picked] + place])


def _set(vectors: IntArray, choices: list[dict[int, int]], picked: IntArray) -> None:
    for column in choices[0]:
        vectors[:, column] = np.array([choice[column] for choice in choices])[picked]
