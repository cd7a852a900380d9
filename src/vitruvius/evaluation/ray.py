"""Candidates on Ray's actors: a local cluster of processes, or one of many machines that is there already."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any, final

from vitruvius.arch import refuse
from vitruvius.evaluation._evaluator import Evaluator, Outcome
from vitruvius.evaluation.executors import Executor, Task

__all__ = ["RayExecutor"]

_MOST_DEATHS = 3
"""A candidate on which so many workers died is a failed one."""


class _Worker:
    """One a device. It holds the evaluator."""

    def __init__(self, evaluator: Evaluator, device: str, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self._evaluator = evaluator
        evaluator.place(device)

    def outcome(self, task: Task) -> Outcome:
        return self._evaluator.outcome(task.arch, task.rung, task.before)

    def pid(self) -> int:
        return os.getpid()


@final
class RayExecutor(Executor):
    """One actor a device: it is sent the evaluator once, and then a candidate whenever it is free.

    When an actor is lost, with its machine say, its candidate is given out again and another actor takes its place.

    workers: how many actors; one a GPU of the cluster, or one a CPU where it has none.
    address: of an existing cluster ("auto", "ray://HOST:10001"); without, one is started here, and ended in the end.
    threads: CPU threads of each actor.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        *,
        workers: int | None = None,
        address: str | None = None,
        threads: int = 1,
    ) -> None:
        for what, value in (("workers", workers), ("threads", threads)):
            if value is not None and (type(value) is not int or value < 1):
                refuse(f"{what} of Ray's executor", value, "1, 2, 3, ...")
        self._ray = _import_ray()
        self.evaluator, self._threads = evaluator, threads
        self._actors: list[Any] = []
        self._started = not self._ray.is_initialized()
        if self._started:
            self._start(address, workers)
        resources = self._ray.cluster_resources()
        self._gpu = resources.get("GPU", 0) >= 1
        fits = int(resources["GPU"]) if self._gpu else int(resources.get("CPU", 1) // threads)
        self._most = workers or max(1, fits)
        if self._most > max(1, fits):
            kind = "GPUs" if self._gpu else f"CPUs of {threads} threads a worker"
            self.close()
            refuse("the cluster has fewer devices than workers are asked for", workers, f"up to {fits} ({kind})")
        self._shared = self._ray.put(evaluator)
        self._actors = [self._new_actor() for _ in range(self._most)]
        self._starting = {actor.pid.remote(): slot for slot, actor in enumerate(self._actors)}
        self._free: list[int] = []
        self._failed_starts = 0

    def _start(self, address: str | None, workers: int | None) -> None:
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        where: dict[str, Any] = {"address": address}
        if address is None:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            cpus = None if workers is None else max(workers * self._threads, 1)
            where = {"address": "local", "num_cpus": cpus, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        for last in (False, False, True):  # on a busy machine Ray's own patience with its processes may end
            try:
                self._ray.init(**where, log_to_driver=False, logging_level="ERROR", ignore_reinit_error=True)
                return
            except Exception as error:
                self._ray.shutdown()
                if last or address is not None:
                    refuse(f"Ray does not start ({_line(error)})", where["address"], "see Ray's own logs")

    def _new_actor(self) -> Any:
        options = {"num_gpus": 1} if self._gpu else {"num_cpus": self._threads}
        made = self._ray.remote(max_restarts=0, **options)(_Worker)
        return made.remote(self._shared, "cuda" if self._gpu else "cpu", self._threads)

    @property
    def workers(self) -> int:
        return self._most

    def pids(self) -> list[int]:
        """Of the actors' processes."""
        found: list[int] = self._ray.get([actor.pid.remote() for actor in self._actors])
        return found

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Outcome]]:
        waiting = deque(range(len(tasks)))
        deaths: Counter[int] = Counter()
        running: dict[Any, tuple[int, int]] = {}  # a future: which task, on which actor
        while waiting or running:
            while waiting and self._free:
                place, slot = waiting.popleft(), self._free.pop(0)
                running[self._actors[slot].outcome.remote(tasks[place])] = (place, slot)
            (future,), _ = self._ray.wait([*running, *self._starting], num_returns=1)
            if future in self._starting:
                self._started_or_again(future)
                continue
            place, slot = running.pop(future)
            try:
                outcome = self._ray.get(future)
                self._free.append(slot)
            except self._ray.exceptions.RayActorError as error:
                deaths[place] += 1
                self._replace(slot)
                if deaths[place] < _MOST_DEATHS:
                    waiting.appendleft(place)
                    continue
                outcome = Outcome(reason=f"{deaths[place]} workers died while they evaluated it: {_line(error)}")
            except self._ray.exceptions.RayError as error:
                self._free.append(slot)
                outcome = Outcome(reason=f"{type(error).__name__}: {_line(error)}")
            yield place, outcome

    def _replace(self, slot: int) -> None:
        """A new actor in the place of one that died. Until it has started, which may wait for a machine, the others
        do its work."""
        self._actors[slot] = self._new_actor()
        self._starting[self._actors[slot].pid.remote()] = slot

    def _started_or_again(self, future: Any) -> None:
        slot = self._starting.pop(future)
        try:
            self._ray.get(future)
        except self._ray.exceptions.RayError as error:
            self._failed_starts += 1
            if self._failed_starts >= _MOST_DEATHS * self._most:
                refuse(f"Ray's workers do not start ({_line(error)})", self._failed_starts, "see Ray's own logs")
            self._replace(slot)
            return
        self._failed_starts = 0
        self._free.append(slot)

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        if self._started:
            self._ray.shutdown()


def _line(error: Exception) -> str:
    """What an error says, short. Ray puts a remote error's own words last."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if "Traceback" in str(error) and lines else lines[0] if lines else type(error).__name__)[:400]


def _import_ray() -> Any:
    try:
        import ray
    except ImportError:
        refuse("executor 'ray' needs Ray", "not installed", "pip install 'vitruvius[distributed]', or executor 'local'")
    return ray
