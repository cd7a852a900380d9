"""The record: every trial at once and whole, Optuna's own, refused for another search, whole after a kill."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from vitruvius import spaces
from vitruvius.evaluation import FunctionEvaluator, InProcess
from vitruvius.pipeline._drive import drive
from vitruvius.search import NSGA2, Domain, Evolution, Trial, front, objectives_of
from vitruvius.search.study import Study

NANO, S3 = spaces.load("vitas-nano"), spaces.load("s3-nano")
BOTH = objectives_of("accuracy,macs")
RECORD = {"space": NANO.to_dict(), "seed": 0, "split": "abc"}


def trials(count: int = 12) -> list[Trial]:
    archs = NANO.decode_many(np.unique(NANO.sample_vectors(np.random.default_rng(0), 4 * count), axis=0))[:count]
    found = []
    for number, arch in enumerate(archs):
        common: dict[str, Any] = {"arch": arch, "costs": {"macs": 1e6 + number}, "number": number, "split": "abc"}
        if number % 5 == 4:
            found.append(Trial(**common, state="failed", reason="RuntimeError: boom"))
        else:
            scores = {"accuracy": 100 * math.sin(number) ** 2, "loss": 1 / 3}
            more: dict[str, Any] = {"parents": ("x", "y"), "made": "crossover", "generation": 1, "seconds": 0.125}
            found.append(Trial(**common, scores=scores, detail={"images": 143}, **more))
    return found


def url(tmp_path: Path, kind: str) -> str | Path:
    return tmp_path / "study.log" if kind == "journal" else f"sqlite:///{tmp_path / 'study.db'}"


@pytest.mark.parametrize("kind", ["journal", "sqlite"])
def test_what_is_written_is_read_again(tmp_path: Path, kind: str) -> None:
    """To the bit, by another object that knows no more than where it is."""
    study = Study(url(tmp_path, kind), "s", space=NANO, objectives=BOTH, record=RECORD)
    for trial in (written := trials())[::-1]:
        study.add(trial)
    again = Study(url(tmp_path, kind), "s", space=NANO, objectives=BOTH)
    assert again.trials() == written


@pytest.mark.parametrize("kind", ["journal", "sqlite"])
def test_optuna_reads_it_as_its_own(tmp_path: Path, kind: str) -> None:
    study = Study(url(tmp_path, kind), "s", space=NANO, objectives=BOTH, record=RECORD)
    for trial in (written := trials()):
        study.add(trial)
    storage = study.optuna()._storage if kind == "journal" else url(tmp_path, kind)
    theirs = optuna.load_study(study_name="s", storage=storage)
    assert [way.name for way in theirs.directions] == ["MAXIMIZE", "MINIMIZE"]
    assert theirs.metric_names == ["accuracy", "macs"]
    states = [each.state.name for each in theirs.trials]
    assert states == ["FAIL" if trial.state == "failed" else "COMPLETE" for trial in written]
    ours = {(trial.value("accuracy"), trial.value("macs")) for trial in front(written, BOTH)}
    assert {tuple(each.values) for each in theirs.best_trials} == ours
    for each in theirs.trials:
        assert set(each.params) <= {gene.name for gene in NANO.layout.genes}
        assert each.params.keys() == each.distributions.keys()
    assert NANO.layout.genes[0].name in theirs.trials[0].params


def test_optunas_plots_work_on_it(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    study = Study(tmp_path / "study.log", "s", space=NANO, objectives=BOTH, record=RECORD)
    one = Study(tmp_path / "study.log", "one", space=NANO, objectives=BOTH[:1], record=RECORD)
    for trial in trials(30):
        study.add(trial)
        one.add(trial)
    pareto = optuna.visualization.plot_pareto_front(study.optuna())
    assert sum(len(trace.x) for trace in pareto.data) == 24
    history = optuna.visualization.plot_optimization_history(one.optuna())
    assert 24 in [sum(y is not None for y in trace.y) for trace in history.data if trace.y is not None]
    assert optuna.visualization.plot_slice(one.optuna()).data
    assert optuna.visualization.plot_parallel_coordinate(one.optuna()).data
    assert optuna.visualization.plot_param_importances(one.optuna()).data


def refused(**given: Any) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is returned
        Study(**{"name": "s", "space": NANO, "objectives": BOTH, **given})
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["journal", "sqlite"])
def test_another_searchs_study_is_refused(tmp_path: Path, kind: str) -> None:
    storage = url(tmp_path, kind)
    Study(storage, "s", space=NANO, objectives=BOTH, record=RECORD)
    for change, said in (
        ({"space": S3.to_dict()}, "begun with another space"),
        ({"split": "abd"}, "study 's' was begun with another split; got 'abd'; allowed: abc, as it was begun with"),
        ({"seed": 1}, "begun with another seed"),
        ({"more": 1}, "begun with another more"),
    ):
        assert said in refused(storage=storage, record={**RECORD, **change})
    assert "no study of this name; got 'other'; allowed: s" in refused(storage=storage, name="other")
    Study(storage, "other", space=S3, objectives=BOTH, record={**RECORD, "seed": 1})  # two in one storage
    Study(storage, "s", space=NANO, objectives=BOTH, record=RECORD)


def test_an_optuna_study_of_something_else_is_refused(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'a.db'}"
    theirs = optuna.create_study(study_name="s", storage=storage)
    theirs.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    assert "not of a search" in refused(storage=storage, record=RECORD)
    assert "cannot be opened" in refused(storage="nonsense://x", record=RECORD)


def test_the_journal_survives_a_kill_at_any_byte(tmp_path: Path) -> None:
    """Cut anywhere, it has every trial whose line is whole, and takes the others again."""
    path = tmp_path / "study.log"
    study = Study(path, "s", space=NANO, objectives=BOTH, record=RECORD)
    sizes = [path.stat().st_size]
    for trial in (written := trials(5)):
        study.add(trial)
        sizes.append(path.stat().st_size)
    whole = path.read_bytes()
    cuts = [*range(sizes[0], len(whole), 997), *(size - 1 for size in sizes[1:]), *sizes]
    for place, cut in enumerate(cuts):
        path.write_bytes(whole[:cut])
        if place % 9 == 0:
            (tmp_path / "study.log.lock").symlink_to(path)  # as a killed writer leaves it
        again = Study(path, "s", space=NANO, objectives=BOTH, record=RECORD)
        there = again.trials()
        assert there == written[: sum(size <= cut for size in sizes[1:])]
        for trial in written[len(there) :]:
            again.add(trial)
        assert Study(path, "s", space=NANO, objectives=BOTH).trials() == written


def test_begun_but_killed_before_it_had_a_record(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'a.db'}"
    optuna.create_study(study_name="s", storage=storage, directions=["maximize", "minimize"])
    Study(storage, "s", space=NANO, objectives=BOTH, record=RECORD).add(trials()[0])
    assert len(Study(storage, "s", space=NANO, objectives=BOTH, record=RECORD).trials()) == 1


# -- the loop ----------------------------------------------------------------------------------------------------------


class Stopped(Exception):
    pass


def searched(path: Path, stop_after: int | None = None) -> tuple[list[dict[str, Any]], list[str]]:
    """A search whose fifth candidates fail, from where the record stops; stopped after so many new trials."""
    searcher = NSGA2(Domain(NANO, num_classes=10), "accuracy,macs", population=10, generations=5)
    study = Study(path, "s", space=NANO, objectives=searcher.objectives, record=searcher.record())

    def score(arch: Any) -> float:
        value = int(arch.id[-4:], 16)
        if value % 5 == 0:
            raise RuntimeError("boom")
        return float("nan") if value % 7 == 0 else value / 1000

    new = 0

    def on_trial(trial: Trial, fresh: bool) -> None:
        nonlocal new
        new += fresh
        if new == stop_after:
            raise Stopped

    try:
        drive(searcher, InProcess(FunctionEvaluator(score, "accuracy")), study, on_trial)
    except Stopped:
        return [], []
    kept = [{**trial.to_dict(), "seconds": 0} for trial in study.trials()]
    return kept, [trial.arch.id for trial in searcher.population()]


def test_stopped_after_every_trial_it_comes_to_the_same(tmp_path: Path) -> None:
    whole = searched(tmp_path / "whole.log")
    assert len(whole[0]) == 50
    reasons = {each.get("reason", "").partition(":")[0] for each in whole[0]}
    assert reasons == {"", "RuntimeError", "accuracy is nan"}
    path = tmp_path / "stopped.log"
    for _ in range(100):
        if (found := searched(path, stop_after=1))[0]:
            break
    assert found == whole
    assert searched(path) == whole  # and once more, with nothing left to do


def test_a_record_of_another_search_is_refused(tmp_path: Path) -> None:
    domain = Domain(NANO, num_classes=10)
    study = Study(tmp_path / "s.log", "s", space=NANO, objectives=objectives_of("accuracy"), record={})
    drive(Evolution(domain, initial=5, generations=1), InProcess(FunctionEvaluator(lambda a: 1.0, "accuracy")), study)
    other = Evolution(domain, initial=5, generations=1, seed=1)
    with pytest.raises(ValueError, match=r"never proposed|of another search"):
        drive(other, InProcess(FunctionEvaluator(lambda arch: 1.0, "accuracy")), study)
