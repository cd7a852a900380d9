"""Every network of the domain: for spaces such as the blocks of ViTAS v1 (Section 5.3: 4,000 networks)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, final

import numpy as np

from vitruvius.arch import Arch
from vitruvius.search._domain import Domain
from vitruvius.search._pool import enumerate_vectors
from vitruvius.search._registry import SEARCHERS
from vitruvius.search._searcher import Candidate, Searcher
from vitruvius.search._trial import Objective


@final
class Exhaustive(Searcher):
    """Each network that the budget allows, once, in the order of the space's choices."""

    waits: ClassVar[bool] = False
    _SHARE = 50

    def __init__(
        self, domain: Domain, objectives: Iterable[Objective | str] | str = "accuracy", *, seed: int = 0
    ) -> None:
        super().__init__(domain, objectives, seed=seed)
        allowed = [vectors[domain.allows(vectors)] for vectors in enumerate_vectors(domain)]
        self._vectors = np.concatenate(allowed)
        self._next = 0

    @property
    def planned(self) -> int:
        return len(self._vectors)

    def _propose(self, rng: np.random.Generator) -> Sequence[Candidate]:
        archs: list[Arch] = []
        while not archs and self._next < len(self._vectors):
            part = self._vectors[self._next : self._next + self._SHARE]
            self._next += len(part)
            archs = self._pool.new(part, len(part))[0]
        return [Candidate(arch, "enumerated") for arch in archs]


SEARCHERS.add("exhaustive", Exhaustive)
