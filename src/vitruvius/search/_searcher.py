"""What every searcher is: it is asked for candidates, and told what became of them. No torch behind this door."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from vitruvius.arch import Arch, refuse
from vitruvius.search._breeding import Breeder
from vitruvius.search._domain import Domain
from vitruvius.search._pool import Pool
from vitruvius.search._trial import Objective, Trial, objectives_of, values_of

__all__ = ["Candidate", "Searcher", "require_number"]


def require_number(what: str, value: object) -> int:
    if type(value) is not int or value < 1:
        refuse(f"{what} must be a positive whole number", value, "1, 2, 3, ...")
    return value


@dataclass(frozen=True, slots=True)
class Candidate:
    """A proposal, and where it came from."""

    arch: Arch
    made: str
    parents: tuple[str, ...] = ()
    number: int = -1
    generation: int = 0


class Searcher(ABC):
    """Proposes architectures of a domain, inside its budget, none of them twice.

    What it proposes is decided by its seed and by what it was told, whatever the order in which the trials of one
    generation come back, and however many candidates are asked for at a time. A searcher whose next generation depends
    on the last one gives an empty list until all of that one has been told.
    """

    waits: ClassVar[bool] = True
    """Whether a generation is made of what was told of the one before."""

    def __init__(self, domain: Domain, objectives: Iterable[Objective | str] | str = "accuracy", *, seed: int = 0):
        if type(seed) is not int or seed < 0:
            refuse("a seed is a whole number", seed, "0, 1, 2, ...")
        self.domain, self.seed = domain, seed
        self.objectives = objectives_of(objectives)
        self.generation = -1
        """Of the newest candidates; -1 before the first."""
        self._pool = Pool(domain)
        self._candidates: dict[Arch, Candidate] = {}
        self._queue: deque[Arch] = deque()
        self._open: set[Arch] = set()
        self._told: dict[Arch, Trial] = {}
        self._arrived: list[Trial] = []
        self._finished = False

    # -- ask and tell ----------------------------------------------------------------------------------------------

    @final
    def ask(self, n: int | None = None) -> list[Arch]:
        """Up to n candidates (without a number, what is left of the generation).

        Fewer at the end of a generation; none where it must first be told of all the others, or where it is done.
        """
        if n is not None and (type(n) is not int or n < 1):
            refuse("how many candidates are asked for", n, "1, 2, 3, ..., or None for a generation")
        while not self._finished and len(self._queue) < (1 if n is None else n):
            if self.waits and (self._queue or self._open):
                break
            self._next_generation()
        taken = [self._queue.popleft() for _ in range(min(len(self._queue), n or len(self._queue)))]
        self._open.update(taken)
        return taken

    @final
    def tell(self, trials: Trial | Iterable[Trial]) -> None:
        """What became of candidates; of architectures that it did not propose, too."""
        for trial in [trials] if isinstance(trials, Trial) else trials:
            if trial.arch in self._told:
                refuse("a searcher is told of an architecture once", trial.arch.id, "architectures that are new to it")
            if trial.arch not in self._candidates:
                self._pool.vector(trial.arch)  # refuses what the space does not hold
            elif trial.arch not in self._open:
                self._queue.remove(trial.arch)
            self._told[trial.arch] = trial
            self._arrived.append(trial)
            self._open.discard(trial.arch)
        if not self._queue and not self._open:
            self._take_in()

    @final
    def origin(self, arch: Arch) -> Candidate:
        """When and from what a candidate was proposed."""
        if arch not in self._candidates:
            refuse("this searcher has not proposed the architecture", arch.id, "what ask gave")
        return self._candidates[arch]

    @property
    def done(self) -> bool:
        """Whether nothing more will be proposed."""
        return self._finished and not self._queue

    @property
    @abstractmethod
    def planned(self) -> int:
        """How many candidates it proposes in all, if there are so many."""

    @property
    def proposed(self) -> int:
        """How many it has proposed."""
        return len(self._candidates)

    @property
    def told(self) -> list[Trial]:
        """Every trial so far, in the order of proposal."""
        return self._ordered(self._told.values())

    def best(self) -> Trial | None:
        """The trial with the best first objective; of equal ones that with the best second, and so on."""
        complete = [trial for trial in self.told if trial.complete]
        values = values_of(complete, self.objectives).tolist()
        return complete[min(range(len(complete)), key=lambda i: values[i])] if complete else None

    def population(self) -> list[Trial]:
        """What the next generation would be made from; the best first where there is one objective."""
        return self.told

    def record(self) -> dict[str, Any]:
        """What decides its proposals, as plain data."""
        return {
            "searcher": type(self).__name__.lower(),
            "objectives": [str(objective) for objective in self.objectives],
            "seed": self.seed,
        }

    # -- what a searcher adds --------------------------------------------------------------------------------------

    @abstractmethod
    def _propose(self, rng: np.random.Generator) -> Sequence[Candidate]:
        """The candidates of generation `self.generation`, new ones all; none where the search is over."""

    def _absorb(self, trials: Sequence[Trial]) -> None:  # noqa: B027 - a searcher may learn nothing
        """What the candidates of a generation became, in the order of proposal."""

    # -- what they propose with -------------------------------------------------------------------------------------

    def _randoms(self, rng: np.random.Generator, n: int) -> list[Candidate]:
        return [Candidate(arch, "random") for arch in self._pool.random(rng, n)]

    def _bred(
        self, breeder: Breeder, rng: np.random.Generator, parents: Sequence[Trial], tournament: bool = False
    ) -> list[Candidate]:
        """A generation of children; random networks take the places of children that the budget did not let in."""
        made = [Candidate(*each) for each in breeder.breed(self._pool, rng, parents, tournament)]
        missing = breeder.children - len(made)
        return made + (self._randoms(rng, missing) if missing else [])

    def _violation(self, trial: Trial) -> float:
        return self.domain.violation({**trial.costs, **trial.scores})

    # -- generations -----------------------------------------------------------------------------------------------

    def _next_generation(self) -> None:
        if not self._open:
            self._take_in()
        self.generation += 1
        made = self._propose(np.random.default_rng([self.seed, self.generation]))
        if not made:
            self.generation -= 1
            self._finished = True
            return
        for each in made:
            assert each.arch not in self._candidates
            assert each.arch not in self._told
            number = len(self._candidates)
            self._candidates[each.arch] = Candidate(each.arch, each.made, each.parents, number, self.generation)
            self._queue.append(each.arch)

    def _take_in(self) -> None:
        arrived, self._arrived = self._ordered(self._arrived), []
        if arrived:
            self._absorb(arrived)

    def _ordered(self, trials: Iterable[Trial]) -> list[Trial]:
        """By proposal; those that were not proposed last, by id."""

        def key(trial: Trial) -> tuple[float, str]:
            candidate = self._candidates.get(trial.arch)
            return (float("inf"), trial.arch.id) if candidate is None else (candidate.number, "")

        return sorted(trials, key=key)
