"""The report's section on attention: where chosen layers look, and how far (S3, Figure 4)."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from vitruvius.report._figures import COLORS, axes, spread
from vitruvius.report._page import Section, heading, pictures, plot, text
from vitruvius.report._read import Contents

__all__ = ["attention"]

_SMALLEST = 160
"""Pictures in files and on the page have at least so many pixels a side, by repeating pixels."""


def attention(contents: Contents) -> Section | None:
    found = contents.analysis("attention")
    if not found:
        return None
    names = [f"{layer['stage']}-{layer['block']}" for layer in found["layers"]]
    heads = {name: layer["mean_distance"] for name, layer in zip(names, found["layers"], strict=True)}
    nearest = {
        f"{name}, top {k}": layer[f"top{k}"]
        for name, layer in zip(names, found["layers"], strict=True)
        for k in (5, 10)
    }
    pixels = np.array(found["image"], dtype=np.uint8)
    row, column = found["point"]
    shown = {"attention-image": (_png(pixels), f"image, {pixels.shape[0]}×{pixels.shape[1]} pixels")}
    for name, layer in zip(names, found["layers"], strict=True):
        picture = _png(_heat(np.array(layer["map"])))
        shown[f"attention-map-{name}"] = (picture, f"layer {name}, {layer['mixer']}")
    parts = [
        plot(
            "attention-distance",
            spread(heads, "stage-block", "mean attention distance (pixels)", single=True),
            f"How far the heads of chosen layers look, in the mean over {found['images']} images of search-validation. "
            "A point is a head.",
            half=True,
        ),
        plot(
            "attention-top",
            _quantile_boxes(nearest),
            "Distance from a query to its most attended keys: 5 to 95 %, quartiles, median and mean (dashed).",
            half=True,
        ),
        heading("Attention maps"),
        text(
            f"What the token at row {row:g}, column {column:g} attends to; bright is more, each map by its own scale.",
            quiet=True,
        ),
        pictures(shown),
    ]
    return Section("attention", "Attention", parts)


def _quantile_boxes(boxes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Boxes from quantiles that were kept instead of all values."""
    data = []
    for index, (name, box) in enumerate(boxes.items()):
        low, first, median, third, high = box["quantiles"]
        data.append(
            {
                "type": "box",
                "name": name,
                "x": [name],
                "lowerfence": [low],
                "q1": [first],
                "median": [median],
                "q3": [third],
                "upperfence": [high],
                "mean": [box["mean"]],
                "boxmean": True,
                "showlegend": False,
                "marker": {"color": COLORS[index % 2]},
            }
        )
    return {"data": data, "layout": axes("stage-block, keys", "distance (pixels)")}


def _heat(map_HW: np.ndarray) -> np.ndarray:
    """(H, W, 3): dark blue to yellow, a simple scale that grows evenly in brightness."""
    share = map_HW / max(float(map_HW.max()), 1e-12)
    stops = np.array([[12, 24, 60], [38, 96, 140], [60, 170, 130], [240, 230, 80]], dtype=np.float64)
    place = share * (len(stops) - 1)
    low = np.clip(place.astype(int), 0, len(stops) - 2)
    part = (place - low)[..., None]
    return (stops[low] * (1 - part) + stops[low + 1] * part).round().astype(np.uint8)


def _png(pixels: np.ndarray) -> bytes:
    from PIL import Image

    image = Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels)
    times = -(-_SMALLEST // min(image.size))
    buffer = io.BytesIO()
    image.resize((image.width * times, image.height * times), Image.Resampling.NEAREST).save(buffer, format="PNG")
    return buffer.getvalue()
