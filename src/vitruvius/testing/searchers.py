"""What a searcher must do: its laws, and problems whose answers are known because every network can be looked at.

from vitruvius.testing.searchers import PROBLEMS, check_searcher, solve

check_searcher(lambda domain, seed: MySearcher(domain, "score", seed=seed), domain)
solve(MySearcher(PROBLEMS["monotone"].domain(), "score"), PROBLEMS["monotone"]).reached
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import moocore  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray

from vitruvius.arch import Arch
from vitruvius.arrays import IntArray, StageArrays, arrays_of
from vitruvius.costs import cost
from vitruvius.search import Domain, Objective, Searcher, Trial, enumerate_vectors, front, objectives_of, values_of
from vitruvius.spaces import Space, StageSpace

__all__ = ["PROBLEMS", "Problem", "Solved", "check_searcher", "solve", "tell_all"]

Floats = NDArray[np.float64]
_LAYERS = 5
_WEIGHTS = np.array([3, 1, 2, 1, 2])
_CLASSES = 10


def _space() -> Space:
    """Few enough networks to look at every one: 199,017."""
    block = {"heads": (2, 3, 4), "head_dim": (16,), "mlp_ratio": (2, 3, 4)}
    stage = StageSpace(dim=(48, 64, 80), depth=(3, 4, _LAYERS), block=block)
    return Space(
        name="enumerable",
        source="Vitruvius: a space for tests of searchers",
        family="vit",
        patch=(4,),
        class_token=True,
        pool="mean",
        positions="absolute",
        img_size=32,
        stages=(stage,),
    )


def _monotone(stage: StageArrays) -> Floats:
    """More is better, of everything; each block has a weight of its own."""
    ratio = stage.mlp // stage.dim[:, None]
    return _weighted(stage, stage.heads + ratio)


def _coupled(stage: StageArrays) -> Floats:
    """Each block should have as many heads as the MLP before it has times its width: a pair is good, or is not."""
    ratio, before = _ratios(stage)
    return _weighted(stage, 2 * ratio - 3 * np.abs(stage.heads - before))


def _rugged(stage: StageArrays) -> Floats:
    """Nearly noise: what a pair of blocks is worth has no slope that would lead anywhere."""
    ratio, before = _ratios(stage)
    return _weighted(stage, (stage.heads * before + 2 * ratio) % 7)


def _weighted(stage: StageArrays, worth: IntArray) -> Floats:
    weights = _WEIGHTS[: worth.shape[1]]
    return np.asarray((worth * weights * stage.active).sum(axis=1) + stage.dim / 16)


def _ratios(stage: StageArrays) -> tuple[IntArray, IntArray]:
    """Every block's MLP ratio and that of the one before (2 where there is none)."""
    ratio = stage.mlp // stage.dim[:, None]
    return ratio, np.concatenate([np.full((len(ratio), 1), 2), ratio[:, :-1]], axis=1)


def _slow(stage: StageArrays) -> Floats:
    """Seconds, as a device might say: a price for every block beside what it computes."""
    return np.asarray(1e-3 * (2 * stage.active.sum(axis=1) + (stage.heads * stage.active).sum(axis=1) / 4))


def _measured(archs: Sequence[Arch]) -> Mapping[str, Floats]:
    return {"latency": _slow(arrays_of(archs).stages[0])}


@dataclass(frozen=True)
class Problem:
    """A score in closed form, on a space that can be enumerated, within a budget."""

    name: str
    score: Callable[[StageArrays], Floats]
    objectives: str = "score"
    budget: str | None = None

    @cached_property
    def space(self) -> Space:
        return _space()

    def domain(self) -> Domain:
        measured = [_measured] if "latency" in self.objectives else []
        return Domain(self.space, self.budget, measured=measured, num_classes=_CLASSES)

    def scores(self, archs: Sequence[Arch]) -> list[float]:
        found: list[float] = self.score(arrays_of(archs).stages[0]).tolist()
        return found

    @cached_property
    def answer(self) -> Floats:
        """(k, objectives): the values of all networks that no other one dominates, less being better."""
        domain, kept = self.domain(), []
        for vectors in enumerate_vectors(domain):
            vectors = vectors[domain.allows(vectors)]
            counted = cost(vectors, space=self.space, num_classes=_CLASSES)
            stage = self.space.arrays(vectors).stages[0]
            known = {
                "macs": counted.macs,
                "params": counted.params,
                "latency": _slow(stage),
                "score": self.score(stage),
            }
            signs = [(-1.0 if each.maximise else 1.0, each.name) for each in objectives_of(self.objectives)]
            kept.append(np.stack([sign * known[name] for sign, name in signs], axis=1).astype(np.float64))
        values = np.concatenate(kept)
        return np.unique(values[moocore.is_nondominated(values)], axis=0)

    def volume(self, values: Floats) -> float:
        """Of what the true front dominates, up to a tenth beyond its worst, the part that these values dominate."""
        best, worst = self.answer.min(axis=0), self.answer.max(axis=0)
        reference = worst + 0.1 * np.maximum(worst - best, 1e-9)
        ours, all_of_it = (moocore.hypervolume(each, ref=reference) for each in (values, self.answer))
        return float(ours / all_of_it)


PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem("monotone", _monotone, budget="macs <= 14M"),
        Problem("coupled", _coupled, budget="macs <= 14M"),
        Problem("rugged", _rugged, budget="macs <= 14M"),
        Problem("monotone, macs", _monotone, "score,macs"),
        Problem("coupled, macs", _coupled, "score,macs", budget="params <= 200k"),
        Problem("monotone, macs, latency", _monotone, "score,macs,latency"),
    )
}


@dataclass(frozen=True)
class Solved:
    """What a searcher made of a problem."""

    trials: tuple[Trial, ...]
    problem: Problem

    @cached_property
    def values(self) -> Floats:
        """(k, objectives): of the front that was found, less being better."""
        objectives = objectives_of(self.problem.objectives)
        return np.unique(values_of(front(self.trials, objectives), objectives), axis=0)

    @property
    def reached(self) -> bool:
        """Whether it found the optimum, or every point of the true front."""
        return bool(np.array_equal(self.values, self.problem.answer))

    @property
    def volume(self) -> float:
        return self.problem.volume(self.values)

    @property
    def best(self) -> float:
        """The first objective's best value, less being better."""
        return float(self.values[:, 0].min())


def solve(searcher: Searcher, problem: Problem, evaluations: int | None = None) -> Solved:
    """Searches, at most so many evaluations."""
    trials: list[Trial] = []
    while archs := searcher.ask():
        if evaluations is not None:
            archs = archs[: evaluations - len(trials)]
        trials += (told := tell_all(searcher, archs, problem.scores(archs)))
        if evaluations is not None and len(trials) >= evaluations:
            break
        assert told
    return Solved(tuple(trials), problem)


def tell_all(searcher: Searcher, archs: Sequence[Arch], scores: Sequence[float], name: str = "score") -> list[Trial]:
    """Tells a searcher what candidates scored; what is not a number has failed."""
    costs = searcher.domain.costs(archs)
    trials = []
    for place, (arch, score) in enumerate(zip(archs, scores, strict=True)):
        origin = searcher.origin(arch)
        fine = bool(np.isfinite(score))
        trials.append(
            Trial(
                arch=arch,
                scores={name: score} if fine else {},
                costs={metric: float(values[place]) for metric, values in costs.items()},
                number=origin.number,
                generation=origin.generation,
                state="complete" if fine else "failed",
                reason="" if fine else f"{name} is {score}",
            )
        )
    searcher.tell(trials)
    return trials


# -- laws --------------------------------------------------------------------------------------------------------------


def check_searcher(make: Callable[[Domain, int], Searcher], domain: Domain, most: int = 300) -> None:
    """The laws of every searcher, on its first candidates.

    All are of the space and inside the budget, none comes twice, and they say where they came from. One seed proposes
    one sequence, whatever order a generation's trials come back in and however many are asked for at a time. Failures
    do not stop it, and what it was told once it is not told again.
    """
    searcher, expected = _proposals(make(domain, 0), most)
    assert len(set(expected)) == len(expected) > 0, "a candidate came twice"
    vectors = np.stack([domain.space.encode(arch) for arch in expected])
    assert domain.allows(vectors).all(), "a candidate is outside the budget"
    assert domain.meets(expected).all(), "a candidate is outside what the budget says of measured costs"
    for place, arch in enumerate(expected):
        origin = searcher.origin(arch)
        assert (origin.number, origin.arch) == (place, arch), f"candidate {place} does not know its place"
        known = {each.id for each in expected[:place]}
        assert set(origin.parents) <= known, f"candidate {place} has parents that came after it"
        assert origin.made, f"candidate {place} does not say how it was made"
    assert _proposals(make(domain, 0), most)[1] == expected, "one seed proposed two sequences"
    assert _proposals(make(domain, 0), most, backwards=True)[1] == expected, "the order of telling mattered"
    one_by_one = _proposals(make(domain, 0), most, asked=1)[1]
    assert one_by_one == expected, "asking for one at a time gave other candidates"
    some = _proposals(make(domain, 0), most, asked=7)[1]
    assert some == expected, "asking for a few at a time gave other candidates"
    _check_failures(make(domain, 0), most)
    searcher = make(domain, 0)
    arch = searcher.ask()[0]
    tell_all(searcher, [arch], [1.0])
    try:
        tell_all(searcher, [arch], [2.0])
    except ValueError:
        return
    raise AssertionError("an architecture was told of twice")


def _score(arch: Arch) -> float:
    """Some order of networks, which has nothing to do with what they cost."""
    return int(arch.id[-6:], 16) / 16**6


def _proposals(
    searcher: Searcher, most: int, asked: int | None = None, backwards: bool = False
) -> tuple[Searcher, list[Arch]]:
    """The first candidates, by ways that must not matter."""
    found: list[Arch] = []
    waiting: list[Arch] = []
    while len(found) < most and not searcher.done:
        archs = searcher.ask(asked)
        found += archs
        waiting += archs
        if archs and asked is not None and len(found) < most:
            continue  # everything of a generation is asked for before anything is told
        if not waiting:
            break
        told = waiting[::-1] if backwards else waiting
        for arch in told:
            tell_all(searcher, [arch], [_score(arch)], _name(searcher))
        waiting = []
    return searcher, found[:most]


def _name(searcher: Searcher) -> str:
    first: Objective = searcher.objectives[0]
    return first.name


def _check_failures(searcher: Searcher, most: int) -> None:
    """A generation of failures, and half of the next ones."""
    seen = 0
    while seen < most and (archs := searcher.ask()):
        whole = searcher.generation == 0
        scores = [float("nan") if whole or place % 2 else _score(arch) for place, arch in enumerate(archs)]
        tell_all(searcher, archs, scores, _name(searcher))
        seen += len(archs)
    assert seen >= min(most, searcher.planned), "failures ended the search"
