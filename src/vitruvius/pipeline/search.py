"""A search in a run folder: what was asked (`run.json`), every trial (`study.log`), what was found (`result.json`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vitruvius.arch import Arch, refuse
from vitruvius.costs import written
from vitruvius.evaluation import Executor, InProcess, RayExecutor
from vitruvius.files import alone_in, write_json
from vitruvius.pipeline._drive import drive
from vitruvius.pipeline._search_config import SearchConfig, read_search_config
from vitruvius.pipeline._search_plan import (
    PREDICTOR,
    SearchPlan,
    check_reachable,
    make_predictor,
    make_search_plan,
    with_predictor,
)
from vitruvius.pipeline._search_watch import SearchWatch, shown
from vitruvius.search import Objective, Trial, front, hypervolume, objectives_of, reference_point, values_of
from vitruvius.search.study import Study
from vitruvius.spaces import Space
from vitruvius.training.run import RESULT, begin_folder, read_record, versions

__all__ = ["SearchConfig", "SearchRun", "make_search_plan", "open_search", "read_search_config", "search", "shown"]

VERSION = 1
JOURNAL, MEASURED = "study.log", "measured.json"
_FREE = (
    *("versions", "config.executor", "config.workers", "config.address", "config.threads", "config.device"),
    "config.superformer",
)
"""What may differ between the start of a search and its resumption: where candidates are evaluated, and by what path
the superformer is found. The digest of its weights stands in the record's job."""
_VERIFIED = 20
"""So many of the best are measured, at most, until one meets a budget that a predictor said they all meet."""


def search(config: SearchConfig, out: str | Path, *, quiet: bool = False) -> SearchRun:
    """Searches as the configuration says in a folder, from where an earlier call was cut off."""
    folder = Path(out)
    if (folder / RESULT).exists():
        begun = read_search_config(read_record(folder)["config"])
        if _deciding(begun) == _deciding(config):
            return open_search(folder)
    with alone_in(folder):
        plan = make_search_plan(config)
        own, predictor = plan.needs_predictor and plan.predictor is None, folder / PREDICTOR
        if own and not predictor.exists():
            check_reachable(plan)
        begin_folder(folder, _record(plan), _FREE)
        if own:
            make_predictor(plan, predictor, quiet)
            plan = with_predictor(plan, predictor)
        study = _study(plan, folder)
        watch = SearchWatch(plan.searcher, quiet)
        with _threads(plan.config), _executor(plan) as executor, watch:
            drive(plan.searcher, executor, study, watch.trial)
        measured = None if plan.predictor is None else _measured(plan)
        if measured is not None:
            write_json(folder / MEASURED, measured)
        write_json(folder / RESULT, _result(plan, measured))
    return open_search(folder)


def _deciding(config: SearchConfig) -> dict[str, Any]:
    free = {key.removeprefix("config.") for key in _FREE}
    return {key: value for key, value in config.model_dump(mode="json").items() if key not in free}


def _record(plan: SearchPlan) -> dict[str, Any]:
    config = plan.config.model_dump(mode="json")
    return {
        "version": VERSION,
        "kind": "search",
        "config": config,
        "data": plan.data,
        "job": plan.record(),
        "versions": versions(),
    }


def _study(plan: SearchPlan, folder: Path) -> Study:
    storage = folder / JOURNAL if plan.config.storage is None else plan.config.storage
    return Study(
        storage,
        plan.config.study,
        space=plan.domain.space,
        objectives=plan.searcher.objectives,
        record=plan.record(),
    )


def _executor(plan: SearchPlan) -> Executor:
    config = plan.config
    if config.executor == "ray":
        threads = config.threads or 1
        return RayExecutor(plan.evaluator, workers=config.workers, address=config.address, threads=threads)
    return InProcess(plan.evaluator, config.device)


@contextmanager
def _threads(config: SearchConfig) -> Iterator[None]:
    """As many as the search asks for, while it scores; what comes after it has its own."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(config.threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _result(plan: SearchPlan, measured: dict[str, Any] | None) -> dict[str, Any]:
    """Nothing in it depends on the clock, but for which is the best within a budget that is measured."""
    searcher, objectives = plan.searcher, plan.searcher.objectives
    trials, best = searcher.told, searcher.best()
    if measured is not None and (winner := measured["winner"]) is not None:
        best = next(trial for trial in trials if trial.arch.id == winner)
    on_front = front(trials, objectives)
    found: dict[str, Any] = {
        "trials": len(trials),
        "failed": sum(not trial.complete for trial in trials),
        "best": None if best is None else _plain(best),
        "front": [_plain(trial) for trial in on_front],
        "population": [trial.arch.id for trial in searcher.population()],
    }
    if len(objectives) > 1 and on_front:
        first = [trial for trial in trials if trial.generation == 0 and trial.complete] or on_front
        reference = reference_point(first, objectives)
        volume = hypervolume(on_front, objectives, reference)
        found |= {"reference": reference.tolist(), "hypervolume": volume}
    return found


def _plain(trial: Trial) -> dict[str, Any]:
    kept = ("number", "id", "scores", "costs", "generation", "arch")
    return {key: value for key, value in trial.to_dict().items() if key in kept}


def _measured(plan: SearchPlan) -> dict[str, Any]:
    """The winner's latency, measured: the best trial that meets the budget for real, of the few best."""
    complete = [trial for trial in plan.searcher.told if trial.complete]
    ranked = sorted(complete, key=lambda trial: values_of([trial], plan.searcher.objectives).tolist())
    budget = plan.domain.budget
    limits = None if budget is None else budget.measured
    tried: list[dict[str, Any]] = []
    for trial in ranked[:_VERIFIED]:
        try:
            found = plan.predictor.verify(trial.arch)[0]
        except ValueError as error:  # another machine than the predictor's
            return {"winner": None, "tried": tried, "why": str(error)}
        costs = found.measured.costs()
        inside = limits is None or bool(limits.satisfied(costs))
        tried.append({"id": trial.arch.id, "predicted": found.predicted, "measured": costs, "inside": inside})
        if inside:
            return {"winner": trial.arch.id, "tried": tried}
    return {"winner": None, "tried": tried, "why": f"none of the {len(tried)} best is within the budget when measured"}


@dataclass(frozen=True)
class SearchRun:
    """A search in its folder, finished or not."""

    folder: Path
    config: SearchConfig
    record: dict[str, Any]

    @property
    def finished(self) -> bool:
        return (self.folder / RESULT).exists()

    @property
    def objectives(self) -> tuple[Objective, ...]:
        return objectives_of(self.config.objectives)

    @property
    def space(self) -> Space:
        return Space.from_dict(self.record["job"]["space"])

    @property
    def study(self) -> Study:
        storage = self.folder / JOURNAL if self.config.storage is None else self.config.storage
        return Study(storage, self.config.study, space=self.space, objectives=self.objectives)

    @cached_property
    def trials(self) -> list[Trial]:
        """In the order in which they were proposed."""
        return self.study.trials()

    def front(self) -> list[Trial]:
        return front(self.trials, self.objectives)

    @property
    def result(self) -> dict[str, Any]:
        """What it found."""
        if not self.finished:
            refuse("the search has not finished", str(self.folder), "the same command again, which goes on with it")
        found: dict[str, Any] = json.loads((self.folder / RESULT).read_text())
        return found

    @property
    def measured(self) -> dict[str, Any] | None:
        """The winner's latency as measured, where latency counted."""
        path = self.folder / MEASURED
        found: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
        return found

    def best(self) -> Arch:
        """The best network; where latency counts, the best of those that were measured and met the budget, or the best
        as predicted where none did (`missed`)."""
        best = self.result["best"]
        if best is None:
            refuse("no candidate of the search could be evaluated", str(self.folder), "see `vitruvius trials`")
        return Arch.from_dict(best["arch"])

    def lines(self) -> list[str]:
        """What came out, for people."""
        result = self.result
        if result["best"] is None:
            return [f"none of {result['trials']:,} candidates could be evaluated"]
        best = result["best"]
        numbers = {**best["scores"], **best["costs"]}
        text = "  ".join(f"{name} {shown(name, value)}" for name, value in numbers.items())
        found = [f"best of {result['trials']:,} ({result['failed']:,} failed): {best['id']}  {text}"]
        if len(self.objectives) > 1:
            found.append(f"front of {len(result['front'])}, hypervolume {result['hypervolume']:.5g}")
        for each in (self.measured or {}).get("tried", ()):
            said, real = each["predicted"]["latency"], each["measured"]["latency"]
            inside = "" if each["inside"] else ": outside the budget"
            times = f"latency {written('latency', real)} ({written('latency', said)} predicted)"
            found.append(f"measured {each['id']}: {times}{inside}")
        return [*found, self.missed] if self.missed else found

    @property
    def missed(self) -> str:
        """Why the best network is not known to meet a budget that is measured; empty where it is."""
        why: str = (self.measured or {}).get("why", "")
        return why


def open_search(folder: str | Path) -> SearchRun:
    """The search in a folder."""
    place = Path(folder)
    record = read_record(place)
    if record["kind"] != "search":
        refuse(f"the run in {str(place)!r} is of another kind", record["kind"], "search")
    if record["version"] != VERSION:
        refuse("unknown version of a search's record", record["version"], VERSION)
    return SearchRun(place, read_search_config(record["config"]), record)
