"""Random search: the baseline of every other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, final

import numpy as np

from vitruvius.search._domain import Domain
from vitruvius.search._registry import SEARCHERS
from vitruvius.search._searcher import Candidate, Searcher, require_number
from vitruvius.search._trial import Objective


@final
class Random(Searcher):
    """Networks of the domain, uniformly as `Space.sample` draws them, no two the same.

    evaluations: how many in all.
    """

    waits: ClassVar[bool] = False
    _SHARE = 50

    def __init__(
        self,
        domain: Domain,
        objectives: Iterable[Objective | str] | str = "accuracy",
        *,
        seed: int = 0,
        evaluations: int = 1000,
    ) -> None:
        super().__init__(domain, objectives, seed=seed)
        self.evaluations = require_number("evaluations", evaluations)

    @property
    def planned(self) -> int:
        return self.evaluations

    def _propose(self, rng: np.random.Generator) -> Sequence[Candidate]:
        share = min(self._SHARE, self.evaluations - self.proposed)
        return self._randoms(rng, share) if share else []

    def record(self) -> dict[str, Any]:
        return {**super().record(), "evaluations": self.evaluations}


SEARCHERS.add("random", Random)
