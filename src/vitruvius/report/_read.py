"""What a run folder holds, whatever kind of run it is: read, never computed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vitruvius.arch import Arch, ImageSize, refuse

__all__ = ["Contents", "Training", "read_contents"]

RECORD, RESULT, LOG = "run.json", "result.json", "log.jsonl"
TRAINING = ("superformer", "retrain", "finetune")


@dataclass(frozen=True)
class Training:
    """A training run: of a superformer or of one network."""

    name: str
    record: dict[str, Any]
    result: dict[str, Any]
    events: list[dict[str, Any]]

    @property
    def kind(self) -> str:
        return str(self.record["kind"])

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
    def trainings(self) -> list[Training]:
        """The folder's own run and those in it, superformers first."""
        found = []
        for file in sorted(self.folder.rglob(RECORD)):
            record = read_json(file)
            if record.get("kind") in TRAINING:
                inside = file.parent
                name = "" if inside == self.folder else str(inside.relative_to(self.folder))
                result = read_json(inside / RESULT) if (inside / RESULT).exists() else {}
                found.append(Training(name, record, result, _lines(inside / LOG)))
        return sorted(found, key=lambda training: training.kind != "superformer")

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


def _lines(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    whole = (line for line in file.read_text().split("\n")[:-1] if line)  # the last one may be half written
    return [json.loads(line) for line in whole]


def read_contents(folder: str | Path) -> Contents:
    place = Path(folder)
    if not (place / RECORD).exists():
        refuse("a report is made of a run folder", str(folder), f"a folder with {RECORD}")
    result = read_json(place / RESULT) if (place / RESULT).exists() else {}
    return Contents(place, read_json(place / RECORD), result)
