"""Scores on disk: a line a trial, so that nothing is scored twice, however often the run was killed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from vitruvius.arch import Arch
from vitruvius.files import replace_file
from vitruvius.search import Trial

__all__ = ["Scores", "read_trials"]


def read_trials(path: Path) -> list[Trial]:
    """The trials of a file, but for a last line that was cut off; none where there is no file."""
    return [Trial.from_dict(json.loads(line)) for line in _whole_lines(path).splitlines()]


def _whole_lines(path: Path) -> str:
    text = path.read_text() if path.exists() else ""
    return text[: text.rfind("\n") + 1]


class Scores:
    """The trials of one file, by architecture. A last line that was cut off is removed."""

    def __init__(self, path: Path, known: Iterable[Trial] = ()) -> None:
        self._path = path
        self._known = {trial.arch: trial for trial in known}
        self.own: list[Trial] = []
        if (whole := _whole_lines(path)) != (path.read_text() if path.exists() else ""):
            replace_file(path, lambda partial: partial.write_text(whole))
        for trial in read_trials(path):
            self._keep(trial)
        path.parent.mkdir(parents=True, exist_ok=True)

    def _keep(self, trial: Trial) -> None:
        self._known[trial.arch] = trial
        self.own.append(trial)

    def __contains__(self, arch: Arch) -> bool:
        return arch in self._known

    def __getitem__(self, arch: Arch) -> Trial:
        return self._known[arch]

    def __iter__(self) -> Iterator[Trial]:
        return iter(self._known.values())

    def add(self, trial: Trial) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(trial.to_dict()) + "\n")
        self._keep(trial)
