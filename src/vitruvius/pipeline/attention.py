"""What a report says of a network's attention: how far chosen layers look, and at what (S3, Figure 4)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitruvius.arch import Arch
from vitruvius.data import SearchData, eval_batches
from vitruvius.files import write_json
from vitruvius.models import Backbone
from vitruvius.models.attention_maps import AttentionMap, attention_maps
from vitruvius.training.run import RESULT, open_run, read_record

__all__ = ["add_attention", "attention_summary", "chosen_layers"]

_IMAGES = 32
_MOST_LAYERS = 6
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def add_attention(folder: str | Path) -> None:
    """What a report says of attention, into a finished run of one network that lacks it; nothing for other runs."""
    place = Path(folder)
    file = place / "analysis" / "attention.json"
    if not file.exists() and (place / RESULT).exists() and read_record(place)["kind"] in ("retrain", "finetune"):
        run = open_run(place)
        write_json(file, attention_summary(run.model(), run.data.search))


def chosen_layers(arch: Arch, most: int = _MOST_LAYERS) -> list[tuple[int, int]]:
    """Layers (stage, block) that are spread evenly over the network, the first and the last among them."""
    blocks = [(s, b) for s, stage in enumerate(arch.stages) for b in range(len(stage.blocks))]
    if len(blocks) <= most:
        return blocks
    return [blocks[place] for place in np.linspace(0, len(blocks) - 1, most).round().astype(int).tolist()]


def attention_summary(model: Backbone, data: SearchData, images: int = _IMAGES) -> dict[str, Any]:
    """Plain data, from the first images of search-validation."""
    indices = range(min(images, len(data.val)))
    options = {"img_size": model.img_size, "mean": data.mean, "std": data.std, "indices": indices}
    ((x, _),) = eval_batches(data.val, len(indices), **options)
    reference = next(model.parameters())
    layers = set(chosen_layers(model.arch))
    maps = [
        found
        for found in attention_maps(model, x.to(device=reference.device, dtype=reference.dtype))
        if (found.stage, found.block) in layers
    ]
    point = (model.img_size[0] / 4, model.img_size[1] / 4)
    return {
        "images": len(indices),
        "point": list(point),
        "image": _picture(x[0], data.mean, data.std),
        "layers": [_layer(found, point) for found in maps],
    }


def _layer(found: AttentionMap, point: tuple[float, float]) -> dict[str, Any]:
    return {
        "stage": found.stage + 1,
        "block": found.block + 1,
        "mixer": found.mixer,
        "mean_distance": [round(value, 4) for value in found.mean_distance()],
        "top5": _quantiles(found.top_distances(5)),
        "top10": _quantiles(found.top_distances(10)),
        "map": np.round(found.seen_from(0, point), 6).tolist(),
    }


def _quantiles(values: Sequence[float]) -> dict[str, Any]:
    quantiles = np.quantile(values, _QUANTILES).round(4).tolist()
    return {"quantiles": quantiles, "mean": round(float(np.mean(values)), 4)}


def _picture(x_CHW: Tensor, mean: Sequence[float], std: Sequence[float]) -> list[Any]:
    """(H, W, C): the pixels as they were before they were normalised, 0 to 255."""
    pixels = x_CHW.cpu() * torch.tensor(std)[:, None, None] + torch.tensor(mean)[:, None, None]
    whole = (pixels * 255).round().clamp(0, 255).to(torch.uint8)
    found: list[Any] = whole.permute(1, 2, 0).tolist()
    return found
