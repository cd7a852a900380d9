"""What a run folder holds, whatever kind of run it is: read, never computed."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vitruvius.arch import Arch, ImageSize, refuse
from vitruvius.training.run import COMMANDS, RECORD, RESULT

__all__ = ["Contents", "Training", "read_contents", "read_json", "read_lines"]

LOG = "log.jsonl"
TRAINING = ("superformer", "retrain", "finetune")


@dataclass(frozen=True)
class Training:
    """A training run: of a superformer or of one network."""

    name: str
    """Its folder within the report's; empty for that itself."""
    record: dict[str, Any]
    result: dict[str, Any]
    events: list[dict[str, Any]]

    @property
    def kind(self) -> str:
        return str(self.record["kind"])

    @property
    def said(self) -> str:
        """What it is called in texts and legends."""
        return self.name or f"This {self.kind}"

    @property
    def planned(self) -> float:
        """Epochs."""
        return float(self.record["config"]["epochs"])

    @property
    def epochs(self) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == "epoch"]

    @property
    def measured(self) -> list[dict[str, Any]]:
        """The epochs with a validation."""
        return [event for event in self.epochs if "accuracy" in event]

    @property
    def arch(self) -> Arch:
        return Arch.from_dict(self.record["job"]["arch"])

    @property
    def img_size(self) -> ImageSize:
        size = self.record["job"]["img_size"]
        return size if isinstance(size, int) else tuple(size)


@dataclass(frozen=True)
class Contents:
    folder: Path
    record: dict[str, Any]
    result: dict[str, Any]

    @property
    def kind(self) -> str:
        return str(self.record["kind"])

    @cached_property
    def records(self) -> dict[str, dict[str, Any]]:
        """Of the folder's own run and those in it, by their folders' names within it."""
        files = sorted(self.folder.rglob(RECORD), key=lambda file: (len(file.parts), file))
        return {self._name(file.parent): read_json(file) for file in files}

    def _name(self, inside: Path) -> str:
        return "" if inside == self.folder else str(inside.relative_to(self.folder))

    @cached_property
    def trainings(self) -> list[Training]:
        """The folder's own run and those in it, superformers first."""
        found = [
            Training(name, record, _result(self.folder / name), read_lines(self.folder / name / LOG))
            for name, record in self.records.items()
            if record.get("kind") in TRAINING
        ]
        return sorted(found, key=lambda training: training.kind != "superformer")

    def commands(self, name: str = "") -> list[str]:
        """The shell lines that made a run."""
        file = self.folder / name / COMMANDS
        if not file.exists():  # of a run by an earlier version
            command = self.records[name].get("command")
            return [shlex.join(command)] if command else []
        return file.read_text().splitlines()

    def analysis(self, name: str) -> Any:
        """What the run measured for its report, or None."""
        file = self.folder / "analysis" / f"{name}.json"
        return read_json(file) if file.exists() else None


def read_json(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except (OSError, json.JSONDecodeError) as error:
        refuse(f"a run's file cannot be read ({error})", str(file), "what a run wrote")
    return found


def read_lines(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    whole = (line for line in file.read_text().split("\n")[:-1] if line)  # the last one may be half written
    return [json.loads(line) for line in whole]


def _result(folder: Path) -> dict[str, Any]:
    return read_json(folder / RESULT) if (folder / RESULT).exists() else {}


def read_contents(folder: str | Path) -> Contents:
    """Of a run's folder, or of one that holds several runs' folders."""
    place = Path(folder)
    if (place / RECORD).exists():
        return Contents(place, read_json(place / RECORD), _result(place))
    several = Contents(place, {"kind": "runs", "config": {}}, {})
    if not several.records:
        refuse("a report is made of a run folder", str(folder), f"a folder with {RECORD}, or one of such folders")
    return several
