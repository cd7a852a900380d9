"""Where candidates are evaluated, and in what order they come back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, final

from vitruvius.arch import Arch, refuse
from vitruvius.evaluation._evaluator import Evaluator, Outcome

__all__ = ["Executor", "InProcess", "Task", "evaluate"]


@dataclass(frozen=True, slots=True)
class Task:
    """One measurement: of a candidate, on a rung, after what the rung before gave."""

    arch: Arch
    rung: int = 0
    before: Mapping[str, Any] | None = None


class Executor(ABC):
    """Runs an evaluator's tasks. What comes back does not depend on where they ran; its order may."""

    evaluator: Evaluator

    @abstractmethod
    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Outcome]]:
        """The place of a task and its outcome, as they finish."""

    @property
    def workers(self) -> int:
        return 1

    def close(self) -> None:  # noqa: B027 - most have nothing to give back
        """Gives back what it holds."""

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


@final
class InProcess(Executor):
    """One after the other, here."""

    def __init__(self, evaluator: Evaluator, device: str | None = None) -> None:
        self.evaluator = evaluator
        evaluator.place(device)

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Outcome]]:
        self.evaluator.ahead([task.arch for task in tasks])
        for place, task in enumerate(tasks):
            yield place, self.evaluator.outcome(task.arch, task.rung, task.before)


def evaluate(
    executor: Executor, archs: Sequence[Arch], objective: str | None = None, maximise: bool = True
) -> Iterator[tuple[int, Outcome]]:
    """The place and the outcome of every architecture, each as soon as it is final.

    On evaluators with rungs (successive halving) that is after the rung on which it is cut, or the last. The best by
    `objective` go on; of equal ones those that were given first.
    """
    evaluator = executor.evaluator
    name = evaluator.names[0] if objective is None else objective
    if evaluator.rungs > 1 and name not in evaluator.names:
        refuse("successive halving goes by a score of the evaluator", name, ", ".join(evaluator.names))
    alive, spent = list(range(len(archs))), [0.0] * len(archs)
    before: dict[int, Mapping[str, Any]] = {}
    for rung in range(evaluator.rungs):
        found: dict[int, Outcome] = {}
        last = rung == evaluator.rungs - 1
        for task, outcome in executor.run([Task(archs[place], rung, before.get(place)) for place in alive]):
            place = alive[task]
            spent[place] += outcome.seconds
            total = Outcome(
                scores=outcome.scores, seconds=spent[place], reason=outcome.reason, detail=_kept(outcome.detail)
            )
            if last or not outcome.complete:
                yield place, total
            else:
                found[place], before[place] = total, outcome.detail
        sign = -1 if maximise else 1
        order = sorted(found, key=lambda place: (sign * found[place].scores[name], place))
        alive = sorted(order[: evaluator.survivors(rung, len(order))]) if order else []
        for place in order:
            if place not in alive:
                yield place, found[place]


def _kept(detail: Mapping[str, Any]) -> dict[str, Any]:
    """What is for the next rung only is no part of the record."""
    return {name: value for name, value in detail.items() if name not in ("kept", "right", "loss_sum")}
