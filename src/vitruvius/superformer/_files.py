"""A superformer on disk: safetensors and JSON in one folder, each written beside its place and renamed into it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from vitruvius.arch import refuse, require_keys
from vitruvius.files import replace_file, write_json
from vitruvius.spaces import Space

VERSION = 1
WEIGHTS, RECORD = "superformer.safetensors", "superformer.json"
_KEYS = ("version", "space", "sharing", "private", "num_classes", "img_size", "in_chans", "token_head")


def write(folder: str | Path, tensors: dict[str, Tensor], record: dict[str, Any]) -> None:
    """The weights first: a record is only there with weights that belong to it."""
    place = Path(folder)
    kept = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    replace_file(place / WEIGHTS, lambda path: save_file(kept, path))
    write_json(place / RECORD, {"version": VERSION, **record})


def read_record(folder: str | Path) -> dict[str, Any]:
    path = Path(folder) / RECORD
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        refuse(f"a superformer's record cannot be read ({error.strerror})", str(path), "a folder that save() wrote")
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        refuse(f"a superformer's record is damaged ({error})", str(path), "a folder that save() wrote")
    record = require_keys(f"a superformer's record ({path})", data, _KEYS)
    if record["version"] != VERSION:
        refuse("unknown version of a superformer's record", record["version"], VERSION)
    return record


def read_tensors(folder: str | Path) -> dict[str, Tensor]:
    path = Path(folder) / WEIGHTS
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except FileNotFoundError:
        refuse("a superformer's weights are missing", str(path), "a folder that save() wrote")
    except (SafetensorError, OSError) as error:
        found = f"{path}, {path.stat().st_size:,} bytes"
        refuse(f"a superformer's weights are damaged or cut off ({error})", found, _whole(path))


def _whole(path: Path) -> str:
    """How many bytes a safetensors file has by its own header, if that can still be read."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, path.stat().st_size)))
        end = max(part["data_offsets"][1] for name, part in header.items() if name != "__metadata__")
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return "a whole safetensors file"
    return f"{8 + length + end:,} bytes, as its header says"


def check_records(saved: dict[str, Any], own: dict[str, Any], folder: str | Path) -> None:
    """Both must be of one space, rule and so on; the first difference is named with both sides."""
    for key in _KEYS[1:]:
        theirs, ours = json.loads(json.dumps(saved[key])), json.loads(json.dumps(own[key]))
        if theirs == ours:
            continue
        if key == "space":
            theirs, ours = _space_difference(theirs, ours)
        refuse(f"the checkpoint {str(folder)!r} is of another {key}", theirs, f"this superformer's: {ours}")


def _space_difference(theirs: Any, ours: Any) -> tuple[str, str]:
    """The names of two spaces, or, where those are equal, the first dimension or field that is not."""
    if theirs.get("name") != ours.get("name"):
        return str(theirs.get("name")), str(ours.get("name"))
    spaces = [Space.from_dict(data) for data in (theirs, ours)]
    sides = [{**space.dimensions, **data, "stages": None} for space, data in zip(spaces, (theirs, ours), strict=True)]
    key = next((key for key in {**sides[0], **sides[1]} if sides[0].get(key) != sides[1].get(key)), "stages")
    return f"{key} {sides[0].get(key)}", f"{key} {sides[1].get(key)}"


def check_shapes(saved: dict[str, Tensor], own: dict[str, Tensor], folder: str | Path) -> None:
    for name, tensor in own.items():
        if name not in saved:
            refuse(f"the checkpoint {str(folder)!r} lacks a tensor", f"{len(saved)} tensors", f"{name} among them")
        if saved[name].shape != tensor.shape:
            refuse(
                f"a tensor of the checkpoint {str(folder)!r} does not fit: {name}",
                tuple(saved[name].shape),
                f"{tuple(tensor.shape)}, this superformer's",
            )
    if extra := sorted(set(saved) - set(own)):
        refuse(f"the checkpoint {str(folder)!r} has a tensor too many", extra[0], f"this superformer's {len(own)}")


def float_dtype(tensors: dict[str, Tensor]) -> torch.dtype:
    """The precision that a checkpoint was saved in."""
    return next(tensor.dtype for tensor in tensors.values() if tensor.is_floating_point())
