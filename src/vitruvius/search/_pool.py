"""Candidates that are new: inside the budget, proposed never before."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from vitruvius.arch import Arch, refuse
from vitruvius.arrays import IntArray
from vitruvius.search._domain import Domain
from vitruvius.search._variation import Variation

__all__ = ["Pool", "enumerate_vectors"]

_TRIES = 40
"""Batches of children, or of random networks, before giving up on finding one more that is new."""
_BATCH = 4096
_ENUMERABLE = 10**7
"""Spaces of no more vectors are walked through where chance finds nothing new, or where a search is exhaustive."""

_EXHAUSTED, _SOME = 256, 0.05
"""So many children, so large a part of them inside the budget, and none of them new: there are no others."""

Maker = Callable[[int], tuple[IntArray, Sequence[tuple[int, ...]]]]
"""From a number to so many encoded children, and of each the places of its parents."""


class Pool:
    """New networks of a domain, and the vectors of all that are known."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self._variation = Variation(domain.space)
        self._vectors: dict[Arch, IntArray] = {}
        self._known: set[bytes] = set()

    def vector(self, arch: Arch) -> IntArray:
        """The packed vector of a network, which is known from now on."""
        if arch not in self._vectors:
            self._add(arch, self.domain.space.encode(arch))
        return self._vectors[arch]

    def _add(self, arch: Arch, vector: IntArray) -> None:
        self._vectors[arch] = vector
        self._known.add(vector.tobytes())

    def new(self, packed: IntArray, most: int) -> tuple[list[Arch], list[int]]:
        """Up to `most` networks, inside the budget and not known until now, and the rows that they are."""
        rows = np.flatnonzero(self.domain.allows(packed))
        fresh = {packed[row].tobytes(): row for row in rows[::-1].tolist()}  # of equal ones the first
        places = sorted(row for key, row in fresh.items() if key not in self._known)
        archs: list[Arch] = []
        taken: list[int] = []
        while places and len(archs) < most:
            part, places = places[: most - len(archs)], places[most - len(archs) :]
            decoded = self.domain.space.decode_many(packed[part])
            for arch, row, keep in zip(decoded, part, self.domain.meets(decoded), strict=True):
                if keep:
                    self._add(arch, packed[row])
                    archs.append(arch)
                    taken.append(row)
        return archs, taken

    def children(self, make: Maker, n: int) -> Iterator[tuple[Arch, tuple[int, ...]]]:
        """Up to n new children with the places of their parents.

        Fewer where the budget lets hardly any in, or where parents are so alike that there is no new child of theirs.
        """
        found, size = 0, 2 * n
        for _ in range(_TRIES):
            if found >= n:
                return
            vectors, parents = make(size)
            archs, rows = self.new(vectors, n - found)
            yield from ((arch, parents[row]) for arch, row in zip(archs, rows, strict=True))
            found += len(archs)
            if not archs and size >= _EXHAUSTED and self.domain.allows(vectors).mean() > _SOME:
                return
            size = min(2 * size, _BATCH)

    def random(self, rng: np.random.Generator, n: int) -> list[Arch]:
        """Up to n new random networks; fewer only where no more are left, or none that chance can find."""
        archs: list[Arch] = []
        size = n
        for _ in range(_TRIES):
            if len(archs) == n:
                return archs
            vectors = self._variation.packed(self.domain.draw(rng, size))
            archs += self.new(vectors, n - len(archs))[0]
            size = min(2 * size, _BATCH)
        if len(archs) < n and self._enumerable():
            for vectors in enumerate_vectors(self.domain):
                archs += self.new(vectors, n - len(archs))[0]
                if len(archs) == n:
                    break
        return archs

    def _enumerable(self) -> bool:
        return bool(math.prod(self.domain.space.layout.counts.tolist()) <= _ENUMERABLE)


def enumerate_vectors(domain: Domain, size: int = 8192) -> Iterator[IntArray]:
    """Every network of a space once, as vectors, some thousands at a time, always in the same order."""
    counts = domain.space.layout.counts.tolist()
    total, variation = math.prod(counts), Variation(domain.space)
    if total > _ENUMERABLE:
        refuse(f"space {domain.space.name!r} is too large to be walked through", f"{total:.3g} vectors", "10,000,000")
    for first in range(0, total, size):
        index = np.arange(first, min(first + size, total))
        vectors = np.stack(np.unravel_index(index, counts), axis=1) if counts else np.zeros((1, 0))
        vectors = vectors.astype(np.int64)
        yield vectors[(variation.packed(vectors) == vectors).all(axis=1)]
