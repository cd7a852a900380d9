"""Evolution of one objective: S3's, ViT-ResNAS' and AutoFormer's, which differ in their settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, final

import numpy as np

from vitruvius.arch import refuse, require_choice
from vitruvius.search._breeding import Breeder
from vitruvius.search._domain import Domain
from vitruvius.search._registry import SEARCHERS
from vitruvius.search._searcher import Candidate, Searcher, require_number
from vitruvius.search._trial import Objective, Trial, values_of
from vitruvius.search._variation import Rates


@final
class Evolution(Searcher):
    """Random networks first, then in every generation children of the best ones.

    initial: networks of the first generation.
    generations: all of them, the first one too.
    parents: so many of the best have children.
    parents_from: the best of all that were evaluated, or of the newest generation.
    mutations, crossovers: children of a generation, of one parent or of two.
    p_depth, p_width, p_block: the probabilities of mutation (`Rates`).
    whole_blocks: a block changes, or is taken from a parent, as one.
    """

    def __init__(
        self,
        domain: Domain,
        objectives: Iterable[Objective | str] | str = "accuracy",
        *,
        seed: int = 0,
        initial: int = 50,
        generations: int = 20,
        parents: int = 10,
        parents_from: Literal["history", "generation"] = "history",
        mutations: int = 25,
        crossovers: int = 25,
        p_depth: float = 0.2,
        p_width: float = 0.2,
        p_block: float = 0.4,
        whole_blocks: bool = True,
    ) -> None:
        super().__init__(domain, objectives, seed=seed)
        if len(self.objectives) != 1:
            refuse("evolution has one objective", [str(each) for each in self.objectives], "one, or searcher 'nsga2'")
        require_choice("place of parents", parents_from, ("history", "generation"))
        self.initial = require_number("initial", initial)
        self.generations = require_number("generations", generations)
        self.parents = require_number("parents", parents)
        self.parents_from = parents_from
        self.breeder = Breeder(domain, Rates(p_depth, p_width, p_block), whole_blocks, mutations, crossovers)
        self._pooled: list[Trial] = []

    @property
    def planned(self) -> int:
        return self.initial + (self.generations - 1) * self.breeder.children

    def population(self) -> list[Trial]:
        """The parents of the next generation, the best first."""
        return self._pooled

    def _propose(self, rng: np.random.Generator) -> Sequence[Candidate]:
        if self.generation >= self.generations:
            return []
        if self.generation == 0 or not self._pooled:
            return self._randoms(rng, self.initial if self.generation == 0 else self.breeder.children)
        return self._bred(self.breeder, rng, self._pooled)

    def _absorb(self, trials: Sequence[Trial]) -> None:
        fresh = [trial for trial in trials if trial.complete]
        pool = [*self._pooled, *fresh] if self.parents_from == "history" else fresh or self._pooled
        if pool:
            order = np.argsort(values_of(pool, self.objectives)[:, 0], kind="stable")
            missed = np.array([self._violation(trial) for trial in pool])[order]
            order = order[np.argsort(missed, kind="stable")]
            self._pooled = [pool[i] for i in order[: self.parents]]

    def record(self) -> dict[str, Any]:
        own = ("initial", "generations", "parents", "parents_from")
        return {**super().record(), **{name: getattr(self, name) for name in own}, **self.breeder.record()}


SEARCHERS.add("evolution", Evolution)
