"""Ray: the same set as in-process, also where workers die. A local cluster of two workers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vitruvius import Arch, spaces
from vitruvius.evaluation import FunctionEvaluator, InProcess, RayExecutor, Task, evaluate
from vitruvius.evaluation.executors import Executor
from vitruvius.pipeline._drive import drive
from vitruvius.search import Domain, Evolution, objectives_of
from vitruvius.search.study import Study

ray = pytest.importorskip("ray")
NANO = spaces.load("vitas-nano")


def seen_by(arch: Arch) -> float:
    return 10.0 * arch.depth + sum(block.mlp for block in arch.stages[0].blocks) / 1000


def slow(arch: Arch) -> float:
    time.sleep(0.02)
    return seen_by(arch)


class Deadly:
    """The process of whoever evaluates a certain network dies, the first so many times."""

    def __init__(self, folder: Path, arch: Arch, times: int) -> None:
        self.folder, self.victim, self.times = folder, arch.id, times

    def __call__(self, arch: Arch) -> float:
        if arch.id == self.victim and len(list(self.folder.iterdir())) < self.times:
            (self.folder / f"{os.getpid()}-{time.time_ns()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if arch.depth == 2:
            raise ArithmeticError("two blocks are too few")
        return slow(arch)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """One cluster for all tests; workers find this module by its folder."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray.cloudpickle.register_pickle_by_value(__import__("sys").modules[__name__])
    ray.init(
        address="local", num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False,
        logging_level="ERROR", object_store_memory=10**8,
    )  # fmt: skip
    yield
    ray.shutdown()


def archs(count: int) -> list[Arch]:
    return Evolution(Domain(NANO), initial=count).ask()


def scored(executor: Executor, given: list[Arch]) -> dict[int, Any]:
    return {place: (outcome.scores, outcome.reason) for place, outcome in evaluate(executor, given)}


def test_the_same_set_as_in_process_with_workers_killed(tmp_path: Path) -> None:
    """One worker dies by what it evaluates; another is killed from outside in the middle."""
    given = archs(60)
    expected = scored(InProcess(FunctionEvaluator(Deadly(tmp_path, given[0], 0))), given)
    assert sum(bool(reason) for _, reason in expected.values()) > 0
    with RayExecutor(FunctionEvaluator(Deadly(tmp_path, given[20], 1)), workers=2) as executor:
        before = set(executor.pids())
        found = {}
        for place, outcome in evaluate(executor, given):
            found[place] = (outcome.scores, outcome.reason)
            if place == 20:  # when nobody else is dying
                os.kill(executor.pids()[0], signal.SIGKILL)
        after = set(executor.pids())
    assert found == expected
    assert len(list(tmp_path.iterdir())) == 1
    assert len(before | after) >= 3  # others took the places of those that died


def test_what_kills_every_worker_is_a_failed_candidate(tmp_path: Path) -> None:
    given = [arch for arch in archs(30) if arch.depth > 2][:8]
    with RayExecutor(FunctionEvaluator(Deadly(tmp_path, given[3], 99)), workers=2) as executor:
        found = scored(executor, given)
    assert sorted(found) == list(range(8))
    assert "3 workers died while they evaluated it" in found[3][1]
    assert [place for place, (_, reason) in found.items() if reason] == [3]


def test_a_search_on_ray_is_the_search_in_process(tmp_path: Path) -> None:
    def searched(executor: Executor, path: Path) -> tuple[list[Any], list[str]]:
        searcher = Evolution(Domain(NANO), "score", initial=12, generations=3, parents=4, mutations=4, crossovers=4)
        study = Study(path, "s", space=NANO, objectives=objectives_of("score"), record=searcher.record())
        drive(searcher, executor, study)
        kept = [{**trial.to_dict(), "seconds": 0} for trial in study.trials()]
        return kept, [trial.arch.id for trial in searcher.population()]

    evaluator = FunctionEvaluator(slow)
    here = searched(InProcess(evaluator), tmp_path / "here.log")
    with RayExecutor(evaluator, workers=2) as executor:
        assert searched(executor, tmp_path / "there.log") == here
    assert len(here[0]) == 28


def test_workers_that_never_start_are_said() -> None:
    class Broken:
        def __reduce__(self) -> Any:
            return (int, ("not a number",))

        def __call__(self, arch: Arch) -> float:
            return 0.0

    with (
        RayExecutor(FunctionEvaluator(Broken()), workers=1) as executor,
        pytest.raises(ValueError, match="Ray's workers do not start") as refused,
    ):
        list(executor.run([Task(NANO.smallest)]))
    assert "\n" not in str(refused.value)


def test_a_cluster_that_does_not_start_is_tried_again_and_then_said(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def init(**options: Any) -> None:
        tried.append(options["address"])
        raise RuntimeError("the raylet is late\nlong story")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    for address, times in ((None, 3), ("ray://nowhere:10001", 1)):
        tried.clear()
        with pytest.raises(ValueError, match=r"Ray does not start \(the raylet is late\)"):
            RayExecutor(FunctionEvaluator(seen_by), address=address)
        assert len(tried) == times


def test_more_workers_than_devices_are_refused() -> None:
    with pytest.raises(ValueError, match=r"fewer devices than workers.*got 3; allowed: up to 2 \(CPUs"):
        RayExecutor(FunctionEvaluator(seen_by), workers=3)
    with pytest.raises(ValueError, match="workers of Ray's executor"):
        RayExecutor(FunctionEvaluator(seen_by), workers=0)
