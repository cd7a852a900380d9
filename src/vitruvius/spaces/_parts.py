"""The parts of the costs of a space's networks, and with them the least and the most that a network costs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vitruvius.arch import FAMILIES, grids_of, width_follows
from vitruvius.arrays import IntArray
from vitruvius.costs import Cost, FamilyCost, blocks_cost, cost
from vitruvius.spaces._layout import NET

if TYPE_CHECKING:
    from vitruvius.spaces._space import Space

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Counting:
    """At what image size, with how many classes and channels costs are counted."""

    img_size: tuple[int, int]
    num_classes: int
    in_chans: int

    def cost(self, space: Space, vectors: IntArray) -> Cost:
        options = {"num_classes": self.num_classes, "in_chans": self.in_chans}
        return cost(vectors, space=space, img_size=self.img_size, **options)


class CostParts:
    """Costs by configuration of the network (what is chosen once for it) and state of each stage (likewise).

    A "row" is one configuration and one state of a stage, configurations first.
    """

    def __init__(self, space: Space, counting: Counting) -> None:
        self.space, self.counting = space, counting
        self._family = FamilyCost(space.family, space.class_token, space.positions)
        self.configs = space.layout.combinations(NET)
        self.states = [space.layout.combinations(s) for s in range(len(space.stages))]

    def _grid(self, s: int) -> tuple[IntArray, IntArray]:
        """(rows,): the sides of a stage's token grid."""
        space = self.space
        grids = [grids_of(space.family, p, len(space.stages), self.counting.img_size)[s] for p in space.patches()]
        sides = np.array(grids, dtype=np.int64)[space.layout.index(space.layout.full_rows(s), "patch")]
        return sides[:, 0], sides[:, 1]

    def _dims(self, s: int) -> IntArray:
        return self.space.stage_arrays(self.space.layout.full_rows(s), s).dim

    def blocks(self, s: int, metric: str) -> Floats:
        """(layers, rows, K): every option of every layer."""
        layout, options = self.space.layout, self.space.layout.block_options(s)
        rows = layout.full_rows(s)
        stage = self.space.stage_arrays(np.concatenate([layout.fill(rows, s, option) for option in options]), s)
        high, wide = (np.tile(side, len(options)) for side in self._grid(s))
        costs = _pick(blocks_cost(self._family, stage, (high, wide)), metric)
        return costs.reshape(len(options), len(rows), -1).transpose(2, 1, 0)

    def first(self, metric: str) -> Floats:
        """(rows of stage 0,): from the pixels to the first stage."""
        patch = self.space.layout.index(self.space.layout.full_rows(0), "patch")
        grid, dims, in_chans = self._grid(0), self._dims(0), self.counting.in_chans
        every = [_pick(self._family.entry(p, dims, grid, in_chans), metric) for p in self.space.patches()]
        return np.asarray(np.stack(every)[patch, np.arange(len(patch))])

    def between(self, s: int, metric: str) -> tuple[Floats, NDArray[np.bool_]]:
        """(configs, states before, states of stage s): what stands between them, and whether s may follow."""
        shape = (len(self.configs), len(self.states[s - 1]), len(self.states[s]))
        before = self._dims(s - 1).reshape(shape[0], shape[1], 1)
        after = self._dims(s).reshape(shape[0], 1, shape[2])
        high, wide = (side.reshape(shape[0], 1, shape[2]) for side in self._grid(s))
        cost = np.broadcast_to(_pick(self._family.between(before, after, (high, wide)), metric), shape)
        if FAMILIES[self.space.family].widths == "any":
            return cost, np.ones(shape, dtype=bool)
        follows = np.vectorize(lambda a, b: width_follows(self.space.family, int(a), int(b)), otypes=[bool])
        return cost, np.broadcast_to(follows(before, after), shape)

    def exit(self, metric: str) -> Floats:
        """(rows of the last stage,): the last norm and the classifier."""
        return _pick(self._family.exit(self._dims(len(self.states) - 1), self.counting.num_classes), metric)

    def occupied(self, s: int, metric: str) -> Floats:
        """(rows,): what a stage costs beyond its blocks if it has any."""
        rows = len(self.configs) * len(self.states[s])
        return np.broadcast_to(_pick(self._family.occupied(self._dims(s), self._grid(s)), metric), (rows,))

    @cache  # noqa: B019 - lives as long as its sampler
    def extremes(self, metric: str) -> tuple[float, float]:
        """The least and the most that a network of the space costs, exactly."""
        blocks = [self.blocks(s, metric) for s in range(len(self.states))]
        least, most = (self._extreme(best, blocks, metric) for best in (np.minimum, np.maximum))
        return least, most

    def _extreme(self, best: np.ufunc, blocks: list[Floats], metric: str) -> float:
        worst = np.inf if best is np.minimum else -np.inf
        reached = self.first(metric)
        for s, stage in enumerate(self.space.stages):
            if s:
                cost, follows = self.between(s, metric)
                paths = np.where(follows, reached.reshape(len(self.configs), -1, 1) + cost, worst)
                reached = best.reduce(paths, axis=1).reshape(-1)
            options = best.reduce(blocks[s], axis=-1)
            occupied = self.occupied(s, metric)
            if stage.identity == "anywhere":
                skips = np.isin(np.arange(stage.layers), stage.skips)[:, None]
                filled = np.where(skips, best(options, 0), options).sum(axis=0)
                reached = reached + filled + occupied * (filled > 0)
            else:
                ways = [options[:depth].sum(axis=0) + occupied * (depth > 0) for depth in stage.depth]
                reached = reached + best.reduce(np.stack(ways), axis=0)
        return float(best.reduce(reached + self.exit(metric)))


def _pick(cost: Cost, metric: str) -> Floats:
    return np.asarray(getattr(cost, metric), dtype=np.float64)
