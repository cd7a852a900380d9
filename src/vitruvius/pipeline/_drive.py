"""Ask, evaluate, record, tell: the loop of every search."""

from __future__ import annotations

from collections.abc import Callable

from vitruvius.arch import Arch, refuse
from vitruvius.evaluation import Executor, Outcome, evaluate
from vitruvius.search import Searcher, Trial
from vitruvius.search.study import Study

__all__ = ["drive"]


def drive(
    searcher: Searcher,
    executor: Executor,
    study: Study,
    on_trial: Callable[[Trial, bool], object] = lambda trial, new: None,
) -> None:
    """Searches to the end, from where the study stops.

    What is recorded is not evaluated again: the searcher proposes what it proposed then, and is told what the record
    says. So a search that was killed at any moment comes to the same result.
    """
    recorded = {trial.arch: trial for trial in study.trials()}
    objective = searcher.objectives[0]
    halving = objective.name if executor.evaluator.rungs > 1 else None
    while archs := searcher.ask():
        costs = {name: values.tolist() for name, values in searcher.domain.costs(archs).items()}
        told: dict[int, Trial] = {}
        for place, arch in enumerate(archs):
            if arch in recorded:
                told[place] = _same(recorded.pop(arch), searcher, arch)
                on_trial(told[place], False)
        # A candidate's fate on a rung depends on its whole generation, which is measured again if one is missing.
        missing = [place for place in range(len(archs)) if place not in told]
        asked = missing if halving is None or not missing else list(range(len(archs)))

        def made(
            place: int, outcome: Outcome, archs: list[Arch] = archs, costs: dict[str, list[float]] = costs
        ) -> Trial:
            origin = searcher.origin(archs[place])
            return Trial(
                arch=archs[place],
                scores=outcome.scores,
                costs={name: values[place] for name, values in costs.items()},
                number=origin.number,
                generation=origin.generation,
                parents=origin.parents,
                made=origin.made,
                seed=searcher.seed,
                split=executor.evaluator.split,
                seconds=outcome.seconds,
                state="complete" if outcome.complete else "failed",
                reason=outcome.reason,
                detail=outcome.detail,
            )

        todo = [archs[place] for place in asked]
        for index, outcome in evaluate(executor, todo, halving, objective.maximise) if todo else ():
            if (place := asked[index]) not in told:
                told[place] = made(place, outcome)
                study.add(told[place])
                on_trial(told[place], True)
        searcher.tell(told[place] for place in sorted(told))
    if recorded:
        stray = next(iter(recorded.values()))
        refuse("the record has trials that this search never proposed", stray.arch.id, "the search that wrote it")


def _same(trial: Trial, searcher: Searcher, arch: Arch) -> Trial:
    if trial.number != (expected := searcher.origin(arch).number):
        refuse("the record's trials are of another search", f"trial {trial.number}: {arch.id}", f"number {expected}")
    return trial
