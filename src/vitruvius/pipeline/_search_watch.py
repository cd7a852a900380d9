"""What people see while a search goes on."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from vitruvius.costs import METRICS, written
from vitruvius.search import Objective, Searcher, Trial, front, hypervolume, reference_point, values_of

__all__ = ["SearchWatch", "shown"]


def shown(name: str, value: float) -> str:
    """A score or a cost as people write it."""
    if name in METRICS:
        return written(name, value)
    return f"{value:.2f} %" if name == "accuracy" else f"{value:.5g}"


class _Lines(Progress):
    """What is known so far on a line of its own, above the bar, so that neither pushes the other out of a terminal."""

    text = "searching"

    def get_renderables(self) -> Iterable[RenderableType]:
        yield Text(self.text)
        yield self.make_tasks_table(self.tasks)


class SearchWatch:
    """Generation, best so far, hypervolume, candidates a minute, time left; a line a generation where no one looks."""

    def __init__(self, searcher: Searcher, quiet: bool = False) -> None:
        self._searcher, self._objectives = searcher, searcher.objectives
        self._console = Console(quiet=quiet, stderr=True)
        self._live = not quiet and self._console.is_terminal
        self._bar = _Lines(
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._live,
        )
        self._task = self._bar.add_task("searching", total=searcher.planned, rate="")
        self._front: list[Trial] = []
        self._best: Trial | None = None
        self._first: list[Trial] = []
        self._reference: Any = None
        self._generation = 0
        self._done = self._new = self._failed = 0
        self._since = time.perf_counter()

    def __enter__(self) -> SearchWatch:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._done:
            self._end_of_generation()
        self._bar.stop()

    def trial(self, trial: Trial, new: bool) -> None:
        """A candidate is done; `new` if it was not in the record already."""
        if trial.generation != self._generation:
            self._end_of_generation()
            self._generation = trial.generation
        self._done += 1
        if new:
            self._new += 1
        else:
            self._since = time.perf_counter()  # what was recorded took no time now
        self._failed += not trial.complete
        if trial.complete:
            self._take(trial)
        rate = f"{self.per_minute:,.0f} a minute" if self._new else ""
        self._bar.text = self._text()
        self._bar.update(self._task, completed=self._done, rate=rate)

    @property
    def per_minute(self) -> float:
        """New candidates."""
        return 60 * self._new / max(time.perf_counter() - self._since, 1e-9)

    def _take(self, trial: Trial) -> None:
        values = [] if self._best is None else values_of([self._best, trial], self._objectives).tolist()
        if not values or values[1] < values[0]:
            self._best = trial
        if len(self._objectives) > 1:
            self._front = front([*self._front, trial], self._objectives)
            if trial.generation == 0:
                self._first.append(trial)
            elif self._reference is None:
                self._reference = reference_point(self._first or self._front, self._objectives)

    @property
    def hypervolume(self) -> float | None:
        """Of the front so far, up to the worst of the first generation."""
        if self._reference is None:
            return None
        return hypervolume(self._front, self._objectives, np.asarray(self._reference))

    def _text(self) -> str:
        parts = [f"generation {self._generation + 1}"]
        if self._best is not None:
            name = self._objectives[0].name
            parts.append(f"best {name} {shown(name, self._best.value(name))}")
            parts += [self._cost_text(objective) for objective in self._objectives[1:]]
        if (volume := self.hypervolume) is not None:
            parts.append(f"front of {len(self._front)}, hypervolume {volume:.4g}")
        if self._failed:
            parts.append(f"{self._failed} failed")
        return "  ".join(parts)

    def _cost_text(self, objective: Objective) -> str:
        assert self._best is not None
        return f"at {objective.name} {shown(objective.name, self._best.value(objective.name))}"

    def _end_of_generation(self) -> None:
        if self._live or not self._new:
            return
        self._console.print(f"{self._text()}  {self.per_minute:,.0f} candidates a minute", highlight=False)

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)
