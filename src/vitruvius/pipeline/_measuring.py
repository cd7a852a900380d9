"""Many candidates measured by proxies, resumably: one line of JSON each, in the order in which they come back."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from vitruvius.arch import Arch, require_choice
from vitruvius.evaluation import Evaluator, Executor, InProcess, RayExecutor, Task
from vitruvius.files import alone_in, replace_file
from vitruvius.proxies import Batch, Floats, Measured, Setting, chosen_proxies, measure, setting_of

__all__ = ["EXECUTORS", "Scores", "measured_scores"]

EXECUTORS = ("local", "ray")
LINES = "scores.jsonl"


class ProxyParts(Evaluator):
    """What proxies measure of candidates, all parts of it: set-independent, so that it can be kept and joined.

    A task's architecture stands for the candidates that `before` names.
    """

    names = ()

    def __init__(self, proxies: Sequence[str], options: Mapping[str, Any]) -> None:
        self._proxies, self._options = tuple(proxies), dict(options)
        self._setting: Any = None

    def place(self, device: str | None) -> None:
        if device is not None:
            self._options["device"] = device

    def scores(self, arch: Arch, rung: int = 0, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
        if self._setting is None:  # made where it is used: images are not sent to workers
            self._setting = setting_of(**self._options)
        candidates = [arch] if before is None else [Arch.from_dict(each) for each in before["archs"]]
        found = measure(chosen_proxies(self._proxies), Batch(candidates), self._setting)
        return {"parts": {part: values.tolist() for part, values in found.items()}}


@dataclass(frozen=True)
class Scores:
    """Of candidates in the order given: what each proxy says, and why some have nothing to say."""

    scores: dict[str, Floats]
    reasons: dict[int, str]
    """Of candidates that could not be scored at all, by their place."""

    def reason(self, place: int, name: str) -> str:
        """Why a candidate has no rank by a proxy; empty where it has one."""
        value = self.scores[name][place]
        return self.reasons.get(place, "" if math.isfinite(value) else f"{name} is {value}")


@dataclass
class _Lines:
    """The lines of a run folder, or of memory without one."""

    path: Path | None
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)

    def read(self, ids: Sequence[str]) -> None:
        if self.path is None or not self.path.exists():
            return
        text = self.path.read_text()
        for line in text.splitlines()[: None if text.endswith("\n") else -1]:  # a torn line is measured again
            row = json.loads(line)
            if row["place"] < len(ids) and row["id"] == ids[row["place"]]:
                self.rows[row["place"]] = row
        if text and not text.endswith("\n"):
            kept = text[: text.rfind("\n") + 1]
            replace_file(self.path, lambda partial: partial.write_text(kept))

    def write(self, rows: Sequence[dict[str, Any]]) -> None:
        self.rows |= {row["place"]: row for row in rows}
        if self.path is not None:
            with self.path.open("a") as file:
                file.write("".join(json.dumps(row) + "\n" for row in rows))


def measured_scores(
    archs: Sequence[Arch],
    proxies: Sequence[str],
    options: Mapping[str, Any],
    setting: Setting,
    *,
    folder: Path | None = None,
    executor: str = "local",
    workers: int | None = None,
    address: str | None = None,
    quiet: bool = False,
) -> Scores:
    """Scores of every candidate; with a folder, what is in it already is not measured again.

    options: of `vitruvius.proxies.score`, plain data.
    setting: what they make.
    """
    require_choice("executor", executor, EXECUTORS)
    chosen = chosen_proxies(proxies)
    ids = [arch.id for arch in archs]
    lines = _Lines(None if folder is None else folder / LINES)
    with nullcontext() if folder is None else alone_in(folder):
        lines.read(ids)
        missing = [place for place in range(len(archs)) if place not in lines.rows]
        if missing:
            evaluator = ProxyParts(proxies, options)
            with _executor(executor, evaluator, workers, address) as runner, _bar(len(archs), quiet) as tick:
                tick(len(archs) - len(missing))
                chunk = min(proxy.together(archs[missing[0]], setting) for proxy in chosen)
                chunk = min(chunk, -(-len(missing) // runner.workers))
                parts = [missing[first : first + chunk] for first in range(0, len(missing), chunk)]
                failed = _run(runner, archs, ids, parts, lines, tick)
                # One candidate can fail a chunk; then each is measured on its own, and has its own reason.
                _run(runner, archs, ids, [[place] for part in failed for place in part], lines, tick)
    measured: Measured = {
        part: np.array([_number(lines.rows[place]["parts"].get(part)) for place in range(len(archs))])
        for proxy in chosen
        for part in proxy.parts
    }
    reasons = {place: row["reason"] for place, row in sorted(lines.rows.items()) if row.get("reason")}
    return Scores({proxy.name: np.asarray(proxy.combine(measured)) for proxy in chosen}, reasons)


def _run(
    runner: Executor,
    archs: Sequence[Arch],
    ids: Sequence[str],
    parts: Sequence[Sequence[int]],
    lines: _Lines,
    tick: Callable[[int], None],
) -> list[Sequence[int]]:
    """Measures some candidates together, and gives back those groups of several that failed."""
    failed: list[Sequence[int]] = []
    tasks = [Task(archs[part[0]], 0, {"archs": [archs[place].to_dict() for place in part]}) for part in parts]
    for task, outcome in runner.run(tasks):
        part = parts[task]
        if not outcome.complete and len(part) > 1:
            failed.append(part)
            continue
        found = outcome.detail.get("parts", {})
        rows = [
            {
                "place": place,
                "id": ids[place],
                "parts": {name: _written(values[i]) for name, values in found.items()},
                **({"reason": outcome.reason} if outcome.reason else {}),
            }
            for i, place in enumerate(part)
        ]
        lines.write(rows)
        tick(len(part))
    return failed


def _executor(name: str, evaluator: Evaluator, workers: int | None, address: str | None) -> Executor:
    if name == "local":
        return InProcess(evaluator)
    return RayExecutor(evaluator, workers=workers, address=address)


def _written(value: float) -> float | str:
    """JSON has no word for what is not finite."""
    return value if math.isfinite(value) else str(value)


def _number(value: float | str | None) -> float:
    return math.nan if value is None else float(value)


class _bar:
    """How far it is, on stderr and only for people."""

    def __init__(self, total: int, quiet: bool) -> None:
        console = Console(stderr=True)
        columns = (TextColumn("scoring"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=console, disable=quiet or not console.is_terminal)
        self._task = self._bar.add_task("scoring", total=total)

    def __enter__(self) -> Callable[[int], None]:
        self._bar.start()
        return lambda done: self._bar.advance(self._task, done)

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
