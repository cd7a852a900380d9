"""Checkpoints of a run: a folder each, whole or not there; the newest that is sound is the one that counts."""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from vitruvius.files import sync, write_json

__all__ = ["Checkpoint", "Checkpoints", "optimizer_tensors", "restore_optimizer"]

Tensors = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    step: int
    tensors: dict[str, Tensors]
    """By what they belong to: "model", "optimizer", "average"."""
    state: dict[str, Any]
    """Plain data."""


class Checkpoints:
    """The last two of a run."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder, self.keep = folder, keep

    def save(self, checkpoint: Checkpoint) -> None:
        """Written beside its place, made durable, renamed; older ones go only then."""
        place = self.folder / f"step-{checkpoint.step:09d}"
        partial = place.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        digests = {}
        for part, tensors in checkpoint.tensors.items():
            file = partial / f"{part}.safetensors"
            save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, file)
            sync(file)
            digests[part] = _digest(file)
        write_json(partial / "state.json", {"step": checkpoint.step, "digests": digests, "state": checkpoint.state})
        sync(partial)
        shutil.rmtree(place, ignore_errors=True)
        partial.rename(place)
        sync(self.folder)
        for old in self._places()[: -self.keep]:
            shutil.rmtree(old, ignore_errors=True)

    def newest(self) -> Checkpoint | None:
        """The newest sound checkpoint; a damaged one is passed over with a warning."""
        for place in reversed(self._places()):
            try:
                return _read(place)
            except (OSError, ValueError, KeyError) as error:
                warnings.warn(f"checkpoint {place} is damaged ({error}): the one before it is taken", stacklevel=2)
        return None

    def _places(self) -> list[Path]:
        return sorted(place for place in self.folder.glob("step-*") if place.suffix != ".partial")


def _read(place: Path) -> Checkpoint:
    record = json.loads((place / "state.json").read_text())
    tensors = {}
    for part, digest in record["digests"].items():
        file = place / f"{part}.safetensors"
        if _digest(file) != digest:
            raise ValueError(f"{file.name} is not what was written")
        tensors[part] = load_file(file)
    return Checkpoint(record["step"], tensors, record["state"])


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> Tensors:
    """An optimiser's state, all of which is tensors: "0.exp_avg" of the first parameter, and so on."""
    state = optimizer.state_dict()["state"]
    return {f"{index}.{key}": value for index, values in state.items() for key, value in values.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Tensors) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, key = name.split(".")
        state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
