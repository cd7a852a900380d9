"""What a proxy is: one signature for all, on every family, with what it needs and what it costs declared.

A proxy measures architectures, each on its own: what it says of one depends neither on the others nor on their order,
nor on how many threads there are. Then it combines what it measured into scores, higher is better. Only a proxy that
says `of_the_set` lets a score depend on the other candidates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vitruvius.arch import Arch
from vitruvius.arrays import IntArray
from vitruvius.proxies._candidate import Candidate, Record, steady
from vitruvius.proxies._setting import Setting
from vitruvius.registry import Registry
from vitruvius.spaces import Space

__all__ = ["PROXIES", "Batch", "Floats", "Measured", "Needs", "OneByOne", "Proxy"]

Floats: TypeAlias = NDArray[np.float64]
Measured: TypeAlias = dict[str, Floats]
"""(n,) of each part of a proxy, by the part's name; not a number or infinite where a candidate has no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    images: Literal["none", "ones", "batch"] = "none"
    """"batch": random normal images, or real ones where data are given."""
    labels: bool = False
    gradients: int = 0
    """How often the network is differentiated."""
    init: Literal["none", "default", "positive", "normal"] = "none"
    """Which weights: as `build` makes them, their absolute values, or standard normal ones."""
    records: frozenset[Record] = frozenset()
    """What the shared pass has to write down."""


@dataclass(frozen=True)
class Batch:
    """Candidates, as records or as vectors of a space; each is made of the other when it is first asked for."""

    given: Sequence[Arch] | IntArray
    space: Space | None = None

    def __len__(self) -> int:
        return len(self.given)

    @cached_property
    def archs(self) -> Sequence[Arch]:
        if isinstance(self.given, np.ndarray):
            assert self.space is not None
            return self.space.decode_many(self.given)
        return self.given

    @property
    def vectors(self) -> IntArray | None:
        """(n, G), if it was vectors that were given."""
        return self.given if isinstance(self.given, np.ndarray) else None


class Proxy(ABC):
    """A training-free score. Stateless: one instance serves everybody."""

    name: ClassVar[str]
    source: ClassVar[str]
    """Who proposed it."""
    needs: ClassVar[Needs]
    passes: ClassVar[float]
    """What it costs, in forward passes of the images that it sees (a backward pass counts as two), those that it shares
    with other proxies included."""
    of_the_set: ClassVar[bool] = False
    """Whether a score depends on the set of candidates."""

    def together(self, arch: Arch, setting: Setting) -> int:
        """How many candidates like this one are measured at once; more are not much faster, and are lost together
        where a run is killed."""
        return 1000

    @property
    def parts(self) -> tuple[str, ...]:
        """What is measured of each candidate: the proxy's name, or names that begin with it ("az_nas.trainability")."""
        return (self.name,)

    @abstractmethod
    def measure(self, batch: Batch, setting: Setting) -> Measured:
        """Each part of each candidate."""

    def combine(self, measured: Mapping[str, Floats]) -> Floats:
        """(n,): the scores; of one part, the part itself."""
        return measured[self.name]


class OneByOne(Proxy):
    """A proxy that runs each candidate; several of them share its network and the passes."""

    def together(self, arch: Arch, setting: Setting) -> int:
        return 1

    def measure(self, batch: Batch, setting: Setting) -> Measured:
        with steady():
            rows = [self.of(Candidate(arch, setting, self.needs.records, self.needs.gradients)) for arch in batch.archs]
        return {part: np.array([row[part] for row in rows], dtype=np.float64) for part in self.parts}

    @abstractmethod
    def of(self, candidate: Candidate) -> dict[str, float]:
        """Each part of one candidate."""


PROXIES: Registry[Proxy] = Registry("proxy")
