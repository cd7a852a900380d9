"""Sampling within a budget, exactly: what `sample` gives, given that the cost lies in the window.

In these spaces the cost is a sum over the network's parts, and given the widths of the stages the blocks are drawn
independently. So the distribution of the cost can be computed on a grid of bins by dynamic programming, stage by stage
and block by block, and a network be drawn backwards from it: first the binned total inside the window, then block by
block what led to it. Rounding moves a part by half a bin at most, so the binned window is widened by that much for
every part, and a drawn network is kept if its exact cost is inside. What is kept has exactly the distribution of
`sample` conditioned on the budget: the method is unbiased, and at windows of 1 % more than half of the draws are kept.

With two metrics in the budget the narrower one is sampled so, and the other checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from vitruvius.arch import FAMILIES, ImageSize, grids_of, refuse, width_follows
from vitruvius.arrays import IntArray
from vitruvius.costs._budget import Budget, short
from vitruvius.costs._closed_form import Cost, FamilyCost, blocks_cost, cost_of_arrays
from vitruvius.spaces._layout import NET

if TYPE_CHECKING:
    from vitruvius.spaces._space import Space

Floats = NDArray[np.float64]

_BINS = 4096
_MAX_CELLS = 2**26
"""At most this many numbers (512 MiB) in the tables; with more states there are fewer bins."""
_MAX_BARREN = 200
"""Batches without one network in the budget before giving up."""


@lru_cache(maxsize=8)
def prepared_sampler(
    space: Space,
    budget: Budget,
    img_size: ImageSize | None = None,
    num_classes: int = 1000,
    in_chans: int = 3,
    identity: float | None = None,
) -> BudgetSampler:
    img_size = space.img_size if img_size is None else img_size
    return BudgetSampler(space, budget, _Counting(img_size, num_classes, in_chans), identity)


@dataclass(frozen=True, slots=True)
class _Counting:
    img_size: ImageSize
    num_classes: int
    in_chans: int


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

    def __init__(self, space: Space, budget: Budget, counting: _Counting, identity: float | None) -> None:
        self.space, self.budget = space, budget
        self._counting, self._identity = counting, identity
        self._family = FamilyCost(space.family, space.class_token, space.positions)
        self._configs = space.layout.combinations(NET)
        self._states = [space.layout.combinations(s) for s in range(len(space.stages))]
        widths = [(high - low) / (high + low) if high < np.inf else 1.0 for _, low, high in budget.ends]
        self._metric, self._low, self._high = budget.ends[int(np.argmin(widths))]
        self._costs = [self._block_costs(s) for s in range(len(space.stages))]
        least, most = self._extremes()
        if self._high < least or self._low > most:
            self._refuse_empty(f"{short(least)}..{short(most)}")
        self._high, self._low = min(self._high, most), max(self._low, least)
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

    def _refuse_empty(self, possible: str) -> NoReturn:
        window = f"{short(self._low)}..{short(self._high)}"
        refuse(f"no network of space {self.space.name!r} has {self._metric} of {window}", str(self.budget), possible)

    # -- the parts of the cost -------------------------------------------------------------------------------------

    def _rounding(self, layers: int) -> int:
        """By how many bins the binned total may miss the exact one."""
        parts = layers + 3 * len(self.space.stages) + 2
        return parts // 2 + 1

    def _overcounted(self) -> int:
        """By how many bins a total may be too high: a stage that skips all its layers is binned as if it had some."""
        skipped = [s for s, stage in enumerate(self.space.stages) if len(stage.skippable or ()) == stage.layers > 0]
        return sum(int(self._binned(self._occupied_cost(s)).max()) for s in skipped)

    def _pick(self, cost: Cost) -> NDArray[np.float64]:
        return np.asarray(getattr(cost, self._metric), dtype=np.float64)

    def _binned(self, cost: Any) -> IntArray:
        return np.rint(np.asarray(cost) / self._width).astype(np.int64)

    def _rows(self, s: int) -> IntArray:
        return self.space.layout.full_rows(s)

    def _grid(self, s: int) -> tuple[IntArray, IntArray]:
        """(rows,): the sides of a stage's token grid."""
        patches = self.space.patches()
        grids = [grids_of(self.space.family, p, len(self.space.stages), self._counting.img_size)[s] for p in patches]
        patch = self.space.layout.index(self._rows(s), "patch")
        sides = np.array(grids, dtype=np.int64)[patch]
        return sides[:, 0], sides[:, 1]

    def _dims(self, s: int) -> IntArray:
        return self.space.stage_arrays(self._rows(s), s).dim

    def _block_costs(self, s: int) -> Floats:
        """(layers, rows, K): the exact cost of every option of every layer, without the identity."""
        rows = self._rows(s)
        costs = []
        for option in self.space.layout.block_options(s):
            stage = self.space.stage_arrays(self.space.layout.fill(rows, s, option), s)
            costs.append(self._pick(blocks_cost(self._family, stage, self._grid(s))).T)
        return np.stack(costs, axis=-1)

    def _first_cost(self) -> Floats:
        """(rows of stage 0,): from the pixels to the first stage."""
        patch = self.space.layout.index(self._rows(0), "patch")
        grid, dims = self._grid(0), self._dims(0)
        every = [self._pick(self._family.entry(p, dims, grid, self._counting.in_chans)) for p in self.space.patches()]
        return np.asarray(np.stack(every)[patch, np.arange(len(patch))])

    def _between_cost(self, s: int) -> tuple[Floats, NDArray[np.bool_]]:
        """(configs, states before, states of stage s): what stands between them, and whether s may follow."""
        shape = (len(self._configs), len(self._states[s - 1]), len(self._states[s]))
        before = self._dims(s - 1).reshape(shape[0], shape[1], 1)
        after = self._dims(s).reshape(shape[0], 1, shape[2])
        high, wide = (side.reshape(shape[0], 1, shape[2]) for side in self._grid(s))
        cost = np.broadcast_to(self._pick(self._family.between(before, after, (high, wide))), shape)
        if FAMILIES[self.space.family].widths == "any":
            return cost, np.ones(shape, dtype=bool)
        follows = np.vectorize(lambda a, b: width_follows(self.space.family, int(a), int(b)), otypes=[bool])
        return cost, np.broadcast_to(follows(before, after), shape)

    def _exit_cost(self) -> Floats:
        return np.asarray(self._pick(self._family.exit(self._dims(len(self._states) - 1), self._counting.num_classes)))

    def _occupied_cost(self, s: int) -> Floats:
        rows = len(self._configs) * len(self._states[s])
        return np.broadcast_to(self._pick(self._family.occupied(self._dims(s), self._grid(s))), (rows,))

    def _extremes(self) -> tuple[float, float]:
        """The least and the most that a network of the space costs, exactly."""
        ends = []
        for best in (np.minimum, np.maximum):
            for s, stage in enumerate(self.space.stages):
                options = best.reduce(self._costs[s], axis=-1) if stage.layers else np.zeros((0, 1))
                skipped = np.isin(np.arange(stage.layers), stage.skippable or ())
                if stage.identity == "anywhere":
                    filled = np.where(skipped[:, None], best(options, 0), options).sum(axis=0)
                    ways = [filled + self._occupied_cost(s) * (filled > 0)]
                else:
                    ways = [options[:d].sum(axis=0) + self._occupied_cost(s) * (d > 0) for d in stage.depth]
                here = best.reduce(np.stack(ways), axis=0)
                if s == 0:
                    reached = self._first_cost()
                else:
                    cost, follows = self._between_cost(s)
                    worst = np.inf if best is np.minimum else -np.inf
                    paths = np.where(follows, reached.reshape(len(self._configs), -1, 1) + cost, worst)
                    reached = best.reduce(paths, axis=1).reshape(-1)
                reached = reached + here
            ends.append(float(best.reduce(reached + self._exit_cost())))
        return ends[0], ends[1]

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
            entering = self._shifted(start, self._binned(self._first_cost()))
        else:
            before = self._tables[-1].leaving.reshape(configs, -1, self._cells)
            cost, follows = self._between_cost(s)
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
        occupied = self._binned(self._occupied_cost(s))
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
            skip = self.space.skip_weight(s, self._identity) if layer in (stage.skippable or ()) else 0.0
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
        exit_bins = self._binned(self._exit_cost())
        total = exit_bins[:, None] + np.arange(self._cells)[None, :]
        low = int(self._low / self._width) - self._slack
        inside = np.where((total >= low) & (total <= self._bins + self._slack + self._loose), last, 0.0)
        self._ends = np.cumsum(inside.ravel())
        if not self._ends[-1] > 0:
            self._refuse_empty(self._nearest(last, total))

    def _nearest(self, last: Floats, total: IntArray) -> str:
        reached = np.unique(total[last > 0]) * self._width
        below = reached[reached < self._low]
        return f"below, about {short(below[-1])}" if below.size else f"above {short(self._high)}"

    # -- backwards: networks from it -------------------------------------------------------------------------------

    def vectors(self, rng: np.random.Generator, n: int) -> IntArray:
        """(n, G): encoded architectures within the budget."""
        kept: list[IntArray] = []
        barren = found = 0
        size = max(64, min(2 * n, 4096))
        while found < n:
            drawn = self._draw(rng, size)
            cost = self._cost(drawn)
            inside = drawn[self.budget.satisfied(cost)]
            barren = 0 if len(inside) else barren + 1
            if barren == _MAX_BARREN:
                self._give_up(cost)
            kept.append(inside[: n - found])
            found += len(kept[-1])
        return np.concatenate(kept) if kept else self.space.sample_vectors(rng, 0)

    def acceptance(self, rng: np.random.Generator, n: int = 4096) -> float:
        """The share of drawn networks whose exact cost is in the budget; `vectors` returns only those."""
        return float(self.budget.satisfied(self._cost(self._draw(rng, n))).mean())

    def _cost(self, vectors: IntArray) -> Cost:
        counting = self._counting
        arrays = self.space.arrays(vectors)
        return cost_of_arrays(arrays, counting.img_size, counting.num_classes, counting.in_chans)

    def _give_up(self, cost: Cost) -> None:
        seen = [
            f"{metric} {short(getattr(cost, metric).min())}..{short(getattr(cost, metric).max())}"
            for metric, _, _ in self.budget.ends
        ]
        refuse(
            f"found no network of space {self.space.name!r} with every metric in the budget",
            str(self.budget),
            f"where {self._metric} fits: {', '.join(seen)}",
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
        cost, follows = self._between_cost(s)
        before = bins[:, None] - self._binned(cost)[config, :, state]
        rows = config[:, None] * len(states) + states
        chance = self._at(self._tables[s - 1].leaving[None], 0, rows, before) * follows[config, :, state]
        choice = _choose(rng, chance)
        each = np.arange(len(row))
        return rows[each, choice], before[each, choice]

    def _at(self, table: Floats, depth: Any, row: IntArray, bins: IntArray) -> Floats:
        """table[depth, row, bins], and nothing below the first bin."""
        return np.where(bins >= 0, table[depth, row, np.maximum(bins, 0)], 0.0)


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
