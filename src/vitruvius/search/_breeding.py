"""Children of the best: what evolution and NSGA-II have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vitruvius.arch import Arch, refuse
from vitruvius.arrays import IntArray
from vitruvius.search._domain import Domain
from vitruvius.search._pool import Pool
from vitruvius.search._trial import Trial
from vitruvius.search._variation import Rates, Variation

__all__ = ["Breeder"]

Made = tuple[Arch, str, tuple[str, ...]]


class Breeder:
    """So many children by mutation and so many by crossover."""

    def __init__(self, domain: Domain, rates: Rates, whole_blocks: bool, mutations: int, crossovers: int) -> None:
        for name, count in (("mutations", mutations), ("crossovers", crossovers)):
            if type(count) is not int or count < 0:
                refuse(f"{name} must be a number of children", count, "0, 1, 2, ...")
        if not mutations + crossovers:
            refuse("a generation needs children", (mutations, crossovers), "mutations or crossovers")
        self.rates, self.whole_blocks = rates, whole_blocks
        self.mutations, self.crossovers = mutations, crossovers
        self._variation = Variation(domain.space, rates, whole_blocks=whole_blocks)

    @property
    def children(self) -> int:
        return self.mutations + self.crossovers

    def breed(
        self,
        pool: Pool,
        rng: np.random.Generator,
        parents: Sequence[Trial],
        tournament: bool,
    ) -> list[Made]:
        """New children of parents, the best of which come first; fewer where the budget lets hardly any in."""
        vectors = np.stack([pool.vector(parent.arch) for parent in parents])

        def picked(size: int) -> IntArray:
            chosen = rng.integers(len(parents), size=(2 if tournament else 1, size))
            return np.asarray(chosen.min(axis=0))  # in a tournament the one further in front wins

        def mutants(size: int) -> tuple[IntArray, list[tuple[int, ...]]]:
            one = picked(size)
            return self._variation.mutated(rng, vectors[one]), [(i,) for i in one.tolist()]

        def crosses(size: int) -> tuple[IntArray, list[tuple[int, ...]]]:
            one, other = picked(size), picked(size)
            other = np.where(one == other, (other + 1) % len(parents), other)
            children = self._variation.crossed(rng, vectors[one], vectors[other])
            return children, list(zip(one.tolist(), other.tolist(), strict=True))

        found: list[Made] = []

        def take(made: str, make: Callable[[int], Any], count: int) -> None:
            for arch, places in pool.children(make, count):
                found.append((arch, made, tuple(parents[i].arch.id for i in places)))

        if len(parents) > 1:
            take("crossover", crosses, self.crossovers)
        take("mutation", mutants, self.mutations if self.mutations == 0 else self.children - len(found))
        return found

    def record(self) -> dict[str, Any]:
        return {
            "mutations": self.mutations,
            "crossovers": self.crossovers,
            "p_depth": self.rates.depth,
            "p_width": self.rates.width,
            "p_block": self.rates.block,
            "whole_blocks": self.whole_blocks,
        }
