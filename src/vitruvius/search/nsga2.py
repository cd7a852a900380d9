"""NSGA-II (Deb et al., 2002): one, two or three objectives at once, with constraints. ViTAS' searcher."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, final

import numpy as np

from vitruvius.search._breeding import Breeder
from vitruvius.search._domain import Domain
from vitruvius.search._registry import SEARCHERS
from vitruvius.search._searcher import Candidate, Searcher, require_number
from vitruvius.search._trial import Objective, Trial, values_of
from vitruvius.search._variation import Rates
from vitruvius.search.front import rank_order


@final
class NSGA2(Searcher):
    """The population and its children compete by dominance rank and crowding; the better half goes on.

    population: networks of every generation.
    generations: all of them, the first one too.
    parents: so many of the best have children (ViTAS: 20); without, parents are the winners of tournaments of two.
    mutations: so many children have one parent, the others two; half of them unless said otherwise.
    p_depth, p_width, p_block, whole_blocks: as of `Evolution`.
    """

    def __init__(
        self,
        domain: Domain,
        objectives: Iterable[Objective | str] | str = "accuracy,macs",
        *,
        seed: int = 0,
        population: int = 50,
        generations: int = 40,
        parents: int | None = None,
        mutations: int | None = None,
        p_depth: float = 0.1,
        p_width: float = 0.1,
        p_block: float = 0.1,
        whole_blocks: bool = False,
    ) -> None:
        super().__init__(domain, objectives, seed=seed)
        self.size = require_number("population", population)
        self.generations = require_number("generations", generations)
        self.parents = None if parents is None else require_number("parents", parents)
        single = self.size // 2 if mutations is None else mutations
        self.breeder = Breeder(domain, Rates(p_depth, p_width, p_block), whole_blocks, single, self.size - single)
        self._kept: list[Trial] = []

    @property
    def planned(self) -> int:
        return self.size * self.generations

    def population(self) -> list[Trial]:
        """What the next generation competes with, in NSGA-II's order."""
        return self._kept

    def _propose(self, rng: np.random.Generator) -> Sequence[Candidate]:
        if self.generation >= self.generations:
            return []
        if self.generation == 0 or not self._kept:
            return self._randoms(rng, self.size)
        return self._bred(self.breeder, rng, self._kept[: self.parents], tournament=self.parents is None)

    def _absorb(self, trials: Sequence[Trial]) -> None:
        pool = [*self._kept, *(trial for trial in trials if trial.complete)]
        if pool:
            missed = np.array([self._violation(trial) for trial in pool])
            order = rank_order(values_of(pool, self.objectives), missed)
            self._kept = [pool[i] for i in order[: self.size]]

    def record(self) -> dict[str, Any]:
        own = {"population": self.size, "generations": self.generations, "parents": self.parents}
        return {**super().record(), **own, **self.breeder.record()}


SEARCHERS.add("nsga2", NSGA2)
