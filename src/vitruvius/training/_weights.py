"""A trained network on disk, and carrying its weights to another image size or another number of classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from vitruvius.arch import Arch, refuse, require_keys
from vitruvius.files import replace_file, write_json
from vitruvius.models import Backbone, build

WEIGHTS, RECORD = "model.safetensors", "model.json"
_KEYS = ("arch", "num_classes", "img_size", "in_chans")


def record_of(model: Backbone) -> dict[str, Any]:
    return {
        "arch": model.arch.to_dict(),
        "num_classes": model.num_classes,
        "img_size": list(model.img_size),
        "in_chans": model.in_chans,
    }


def write(folder: Path, model: Backbone) -> None:
    """Weights and record, without a token head, which is for training only."""
    tensors = {
        name: tensor.detach().cpu().contiguous()
        for name, tensor in model.state_dict().items()
        if not name.startswith("token_head.")
    }
    replace_file(folder / WEIGHTS, lambda partial: save_file(tensors, partial))
    write_json(folder / RECORD, record_of(model))


def read(folder: Path) -> Backbone:
    try:
        record = require_keys(f"the record of {folder}", json.loads((folder / RECORD).read_text()), _KEYS)
        tensors = load_file(folder / WEIGHTS)
    except (OSError, json.JSONDecodeError, SafetensorError) as error:
        refuse(f"a trained network cannot be read ({error})", str(folder), "what a training run wrote")
    model = build(
        Arch.from_dict(record["arch"]),
        num_classes=record["num_classes"],
        img_size=tuple(record["img_size"]),
        in_chans=record["in_chans"],
    )
    assert isinstance(model, Backbone)
    model.load_state_dict(tensors)
    return model
