"""The report's sections, in the order in which they are read: each from what a run folder holds, or nothing."""

from __future__ import annotations

import base64
import io
import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np

from vitruvius.arch import Arch
from vitruvius.report._figures import COLORS, lines, predicted, spread
from vitruvius.report._page import Part, Section, cards, drawings, picture, plot, preformatted, table, text
from vitruvius.report._read import Contents, Training
from vitruvius.report.drawing import drawing

__all__ = ["attention", "health", "latency", "provenance", "retraining", "summary"]


def percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f} %"


def summary(contents: Contents) -> Section | None:
    """What a journey found, beside what it is compared with."""
    rows = contents.result.get("rows")
    if not rows:
        return None
    found = rows[0]
    values = {
        "test accuracy of the found network": percent(found["test"]) or "",
        "MACs": f"{found['macs'] / 1e6:.4g} M",
    }
    values |= {"parameters": f"{found['params'] / 1e6:.4g} M"}
    if found.get("latency"):
        values["latency, measured"] = f"{found['latency'] * 1e3:.3g} ms"
    values["from start to end"] = _duration(sum(contents.result["seconds"].values()))
    shown = [
        {
            "network": row["name"],
            "test top-1": percent(row["test"]),
            "search-validation top-1": percent(row.get("validation")),
            "with the superformer's weights": percent(row.get("inherited")),
            "MACs": f"{row['macs'] / 1e6:.4g} M",
            "parameters": f"{row['params'] / 1e6:.4g} M",
            **({"latency": f"{row['latency'] * 1e3:.3g} ms"} if row.get("latency") else {}),
        }
        for row in rows
    ]
    keys = list(dict.fromkeys(key for row in shown for key in row))
    full = [{key: row.get(key) for key in keys} for row in shown]
    best = max(range(len(rows)), key=lambda index: rows[index]["test"])
    parts = [cards(values), table(full, best)]
    if contents.result.get("note"):
        parts.append(text(contents.result["note"], quiet=True))
    drawn = {
        row["name"]: (drawing(Arch.from_dict(row["arch"]), _size(contents)), f"{row['macs'] / 1e6:.4g} M MACs")
        for row in rows
    }
    parts += [Part("<h3>The networks, to one scale</h3>"), drawings(drawn)]
    parts.append(
        text(
            "A row is a block. Left: queries, keys and values together, in as many parts as there are heads. Right: "
            "the MLP. Behind both: the width of the stage. In the middle: heads, and the window or reduction.",
            quiet=True,
        )
    )
    return Section("summary", "What was found", parts)


def _size(contents: Contents) -> tuple[int, int]:
    height, width = contents.result["img_size"]
    return (height, width)


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {left} s"


def health(contents: Contents) -> Section | None:
    """Accuracy of a superformer's smallest, random and largest networks while it was trained, and its loss."""
    parts: list[Part] = []
    for training in contents.trainings:
        if training.kind != "superformer" or not training.measured:
            continue
        epochs = [event["epoch"] for event in training.measured]
        names = list(training.measured[0]["accuracy"])
        series = {name: (epochs, [e["accuracy"][name]["top1"] for e in training.measured]) for name in names}
        sick = [event["epoch"] for event in training.measured if not event["healthy"]]
        said = (
            f"The largest network was worse than the smallest after epoch {', '.join(map(str, sick))}."
            if sick
            else "After every validation the largest network was at least as good as the smallest."
        )
        key = f"health-{training.name or 'run'}"
        caption = f"{_named(training)}: top-1 on search-validation of four networks with shared weights. {said}"
        parts.append(plot(key, lines(series, "epoch", "top-1 (%)"), caption))
        parts.append(plot(f"{key}-loss", _loss([training]), "Training loss, the mean of an epoch."))
    return Section("superformer", "The superformer's health", parts) if parts else None


def _named(training: Training) -> str:
    return training.name or "This run"


def _loss(trainings: Sequence[Training]) -> dict[str, Any]:
    # JSON has no NaN: an epoch all of whose steps were skipped has no loss.
    series = {}
    for training in trainings:
        sound = [event for event in training.epochs if event["loss"] is not None and np.isfinite(event["loss"])]
        series[_named(training)] = ([e["epoch"] for e in sound], [e["loss"] for e in sound])
    return lines(series, "epoch", "loss")


def retraining(contents: Contents) -> Section | None:
    """Accuracy of single networks while they were trained."""
    trainings = [t for t in contents.trainings if t.kind != "superformer" and t.measured]
    if not trainings:
        return None
    series = {
        _named(training): (
            [event["epoch"] for event in training.measured],
            [event["accuracy"]["top1"] for event in training.measured],
        )
        for training in trainings
    }
    parts = [
        plot("retraining", lines(series, "epoch", "top-1 (%)"), "Top-1 on search-validation while training."),
        plot("retraining-loss", _loss(trainings), "Training loss, the mean of an epoch."),
    ]
    rows = [
        {
            "run": _named(training),
            "kind": training.kind,
            "recipe": training.record["config"].get("recipe") or "none",
            "network": training.arch.id,
            "search-validation": percent(training.result["validation"]["accuracy"]["top1"]),
            "test": percent(training.result["test"]["accuracy"]["top1"]),
        }
        for training in trainings
        if training.result
    ]
    return Section("retraining", "Training of single networks", [*parts, *([table(rows)] if rows else [])])


def attention(contents: Contents) -> Section | None:
    """Where chosen layers look, and how far (S3, Figure 4)."""
    found = contents.analysis("attention")
    if not found:
        return None
    names = [f"{layer['stage']}-{layer['block']}" for layer in found["layers"]]
    heads = {name: layer["mean_distance"] for name, layer in zip(names, found["layers"], strict=True)}
    parts = [
        plot(
            "attention-distance",
            spread(heads, "stage - block", "mean attention distance (pixels)"),
            f"How far the heads of chosen layers look, in the mean over {found['images']} images of search-validation.",
        ),
        plot(
            "attention-top",
            _quantile_boxes({f"{n}, top {k}": layer[f"top{k}"] for n, layer in zip(names, found["layers"], strict=True)
                             for k in (5, 10)}),
            "Distance from a query to its most attended keys: 5 to 95 %, quartiles, median and mean (dashed).",
        ),
    ]  # fmt: skip
    height, width = np.array(found["image"]).shape[:2]
    row, column = found["point"]
    pictures = [picture(_png(np.array(found["image"], dtype=np.uint8)), f"image, {height}×{width} pixels")]
    pictures += [
        picture(_png(_heat(np.array(layer["map"]))), f"layer {name}, {layer['mixer']}")
        for name, layer in zip(names, found["layers"], strict=True)
    ]
    caption = f"What the token at row {row:g}, column {column:g} attends to; bright is more, each map by its own scale."
    parts.append(Part(f"<h3>Attention maps</h3><p class=quiet>{caption}</p><div class=heat>{''.join(pictures)}</div>"))
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
    axes = {"xaxis": {"title": {"text": "stage - block, keys"}}, "yaxis": {"title": {"text": "distance (pixels)"}}}
    return {"data": data, "layout": axes}


def _heat(map_HW: np.ndarray) -> np.ndarray:
    """(H, W, 3): dark blue to yellow, a simple scale that grows evenly in brightness."""
    share = map_HW / max(float(map_HW.max()), 1e-12)
    stops = np.array([[12, 24, 60], [38, 96, 140], [60, 170, 130], [240, 230, 80]], dtype=np.float64)
    place = share * (len(stops) - 1)
    low = np.clip(place.astype(int), 0, len(stops) - 2)
    part = (place - low)[..., None]
    return (stops[low] * (1 - part) + stops[low + 1] * part).round().astype(np.uint8)


def _png(pixels: np.ndarray) -> str:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels).save(buffer, format="PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def latency(contents: Contents) -> Section | None:
    """Latency, predicted against measured."""
    found = contents.analysis("latency")
    if not found:
        return None
    said, measured = ([1e3 * row[key] for row in found["rows"]] for key in ("predicted", "measured"))
    figure = predicted(said, measured, [row["name"] for row in found["rows"]], "ms")
    return Section("latency", "Latency, predicted and measured", [plot("latency", figure, found["caption"])])


def provenance(contents: Contents) -> Section:
    """What was run, on what, with which versions."""
    record = contents.record
    command = record.get("command")
    parts = [preformatted(shlex.join(command))] if command else []
    versions = {"versions": ", ".join(f"{name} {version}" for name, version in record.get("versions", {}).items())}
    data = record.get("data", {})
    rows = [{"what": key, "value": value} for key, value in versions.items()]
    told = [key for key in ("source", "hash", "train", "val", "test", "classes") if key in data]
    rows += [{"what": "split hash" if key == "hash" else f"data: {key}", "value": str(data[key])} for key in told]
    config = {key: value for key, value in record["config"].items() if value not in (None, {}, [])}
    rows += [{"what": key, "value": str(value)} for key, value in config.items()]
    return Section("provenance", "Command, configuration, versions", [*parts, table(rows)])
