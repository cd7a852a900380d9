"""A run folder: what was asked for, what became of it, and how to open it again."""

from __future__ import annotations

import json
import platform
import shlex
import shutil
import sys
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from vitruvius import recipes
from vitruvius.arch import Arch, refuse, require_choice, require_keys
from vitruvius.data import Data, load
from vitruvius.files import write_json
from vitruvius.models import Backbone
from vitruvius.superformer import Superformer
from vitruvius.training import _weights
from vitruvius.training.config import KINDS, Settings, read_config

__all__ = [
    "Run",
    "arch_of_run",
    "begin_folder",
    "check_folder",
    "load_data",
    "open_run",
    "read_record",
    "start_folder",
    "versions",
]

VERSION = 1
RECORD, FINAL, RESULT = "run.json", "final", "result.json"
COMMANDS = "commands.txt"
"""The shell lines that began the run and went on with it, each once."""
_KEYS = ("version", "kind", "config", "data", "job", "versions")
_FREE = ("versions", "config.workers", "config.device")
"""What may differ between the start of a run and its resumption: nothing that changes a result."""


def load_data(config: Settings) -> Data:
    return load(
        config.data,
        val=config.val,
        split_seed=config.split_seed,
        in_chans=config.in_chans,
        root=config.root,
        train_split=config.train_split or "train",
        test_split=config.test_split,
    )


def start_folder(folder: Path, config: Settings, data: Data, job: dict[str, Any]) -> None:
    """Writes the record of a new run; an old one must be of the same configuration, data and model."""
    record = {
        "version": VERSION,
        "kind": KINDS[type(config)],
        "config": config.model_dump(mode="json"),
        "data": data.summary(),
        "job": job,
        "versions": versions(),
    }
    begin_folder(folder, record)
    _drop_partial(folder)


def versions() -> dict[str, str]:
    """Of what a run stands on."""
    found = {name: version(name) for name in ("vitruvius", "torch", "timm", "numpy")}
    return found | {"python": platform.python_version()}


def begin_folder(folder: Path, record: dict[str, Any], free: Collection[str] = _FREE) -> None:
    """Writes the record of a new run of any kind; an old one must be the same but for what is free."""
    record = json.loads(json.dumps(record))
    try:
        for unborn in folder.glob(f"{RECORD}.*.partial"):  # killed at its very start
            unborn.unlink()
        begun = check_folder(folder)
        if not begun:
            write_json(folder / RECORD, record)
    except OSError as error:
        refuse(f"a run's folder cannot be written ({error.strerror})", str(folder), "a place that can be written to")
    if begun:
        _check_same(_flat(read_record(folder), free), _flat(record, free), folder)
    _note_command(folder / COMMANDS)


def check_folder(folder: Path) -> bool:
    """Whether a run was begun here; refused is what is no place for one."""
    begun = (folder / RECORD).exists()
    if not begun and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        refuse("a run needs a folder of its own", str(folder), "a new folder, or one that this command has begun")
    return begun


def _note_command(file: Path) -> None:
    program = Path(sys.argv[0]).name
    line = shlex.join(["vitruvius" if program == "__main__.py" else program, *sys.argv[1:]])
    if not file.exists() or line not in file.read_text().splitlines():
        with file.open("a") as opened:
            opened.write(line + "\n")


def _drop_partial(folder: Path) -> None:
    """Removes what a killed run was writing when it was killed."""
    for place in folder.rglob("*.partial"):
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)


def read_record(folder: Path) -> dict[str, Any]:
    """The record of a run of any kind that this house makes, and no other's."""
    try:
        record = json.loads((folder / RECORD).read_text())
    except (OSError, json.JSONDecodeError) as error:
        refuse(f"a run's record cannot be read ({error})", str(folder), "the folder of a training run")
    return require_keys(f"the record of {folder}", record, _KEYS, ("command",))


def _flat(record: dict[str, Any], free: Collection[str]) -> dict[str, Any]:
    """Key by key: what the user said first, then what it came to."""
    flat: dict[str, Any] = {}
    for part in ("config", *record):
        value = record[part]
        flat |= {f"{part}.{key}": each for key, each in value.items()} if isinstance(value, dict) else {part: value}
    return {key: value for key, value in flat.items() if key not in free and key.partition(".")[0] not in free}


def _check_same(theirs: dict[str, Any], ours: dict[str, Any], folder: Path) -> None:
    for key in {**theirs, **ours}:
        if theirs.get(key) != ours.get(key):
            if key == "data.hash":
                rule = (
                    f"the images have changed since the run in {str(folder)!r} was begun, or are split in another way"
                )
                refuse(rule, f"split {ours[key]}", f"split {theirs[key]}, or another folder")
            refuse(
                f"the run in {str(folder)!r} was begun with another {key.rpartition('.')[2]}",
                _short(ours.get(key)),
                f"{_short(theirs.get(key))!r}, as it was begun with, or another folder",
            )


def _short(value: Any) -> Any:
    """The value, or the beginning of what would fill the screen."""
    text = json.dumps(value)
    return value if len(text) <= 160 else f"{text[:157]}..."


@dataclass(frozen=True)
class Run:
    """A finished training run."""

    folder: Path
    kind: recipes.Kind
    config: Settings
    record: dict[str, Any]

    @cached_property
    def data(self) -> Data:
        """Its images, split as they were when it ran."""
        data = load_data(self.config)
        if data.search.hash != (begun := self.record["data"]["hash"]):
            refuse(f"the images of {str(self.folder)!r} have changed", data.search.hash, f"split {begun}")
        return data

    @property
    def result(self) -> dict[str, Any]:
        """What it measured at its end."""
        found: dict[str, Any] = json.loads((self.folder / RESULT).read_text())
        return found

    def superformer(self) -> Superformer:
        """Its superformer, for evaluation."""
        self.require("superformer")
        return Superformer.load(self.folder / FINAL).eval()

    def model(self) -> Backbone:
        """Its network, for evaluation."""
        self.require("retrain", "finetune")
        return _weights.read(self.folder / FINAL).eval()

    @property
    def arch(self) -> Arch:
        self.require("retrain", "finetune")
        return Arch.from_dict(self.record["job"]["arch"])

    def require(self, *kinds: str) -> None:
        if self.kind not in kinds:
            refuse(f"the run in {str(self.folder)!r} is of another kind", self.kind, " or ".join(kinds))


def arch_of_run(folder: str | Path) -> Arch:
    """The network that a run trained, or the best one that a search found ("best" in its result)."""
    place = Path(folder)
    record = read_record(place)
    match record["kind"]:
        case "superformer":
            refuse("a superformer is many networks", str(folder), "one of them, with the run as `superformer`")
        case "retrain" | "finetune":
            return Arch.from_dict(record["job"]["arch"])
    try:
        result = json.loads((place / RESULT).read_text())
    except (OSError, json.JSONDecodeError) as error:
        refuse(f"a run's result cannot be read ({error})", str(folder), "the folder of a finished run")
    if not isinstance(best := result.get("best"), dict):
        refuse("this run found no network", str(folder), "the folder of a training or search run")
    return Arch.from_dict(best["arch"])


def open_run(folder: str | Path) -> Run:
    """The finished run in a folder."""
    place = Path(folder)
    record = read_record(place)
    if record["version"] != VERSION:
        refuse("unknown version of a run's record", record["version"], VERSION)
    require_choice("kind of run", record["kind"], KINDS.values())
    if not (place / RESULT).exists():
        refuse("a run that has not finished cannot be opened", str(place), "a finished run: start it again to go on")
    kind = next(kind for kind, name in KINDS.items() if name == record["kind"])
    return Run(place, record["kind"], read_config(kind, record["config"]), record)
