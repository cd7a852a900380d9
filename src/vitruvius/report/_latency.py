"""The report's section on latency: what a search was told by its predictor, against what was measured."""

from __future__ import annotations

from typing import Any

from vitruvius.report._figures import predicted
from vitruvius.report._page import Part, Section, plot, table, text
from vitruvius.report._read import Contents, read_json

__all__ = ["latency"]

_PREDICTOR, _MEASURED = "latency.json", "measured.json"


def latency(contents: Contents) -> Section | None:
    """Of every search for which latency counted: its predictor's error, and its best networks measured."""
    parts: list[Part] = []
    for name, record in contents.records.items():
        if record.get("kind") == "search":
            parts += _search(contents, name, record)
    return Section("latency", "Latency, predicted and measured", parts) if parts else None


def _search(contents: Contents, name: str, record: dict[str, Any]) -> list[Part]:
    folder = contents.folder / name
    tried = read_json(folder / _MEASURED)["tried"] if (folder / _MEASURED).exists() else []
    predictor = read_json(folder / _PREDICTOR) if (folder / _PREDICTOR).exists() else {}
    checked = [*predictor.get("checked", ())]
    best = [(each["predicted"]["latency"], each["measured"]["latency"]) for each in tried]
    if not checked and not best:
        return []
    groups = {"networks not seen": checked, "best of the search": best}
    figure = predicted({said: [(1e3 * p, 1e3 * m) for p, m in pairs] for said, pairs in groups.items() if pairs}, "ms")
    caption = f"{name or 'The search'}: latency as predicted, and as measured side by side on this machine."
    parts = [plot(f"latency-{name or 'search'}", figure, caption)]
    if predictor:
        setting = predictor["setting"]
        size = "×".join(map(str, setting["img_size"]))
        parts += [
            text(f"On {predictor['machine']}, threads: {setting['threads']}, batch {setting['batch']}, {size} pixels."),
            text(f"The measurements themselves spread by {predictor['spread']:.1%}.", quiet=True),
            table([_accuracy(row) for row in predictor["accuracy"]]),
        ]
    if tried:
        parts.append(table([_tried(each) for each in tried]))
    return parts


def _accuracy(row: dict[str, Any]) -> dict[str, str]:
    return {
        "told by": row["by"],
        "Spearman": f"{row['spearman']:.3f}",
        "Kendall": f"{row['kendall']:.3f}",
        "median error": f"{row['median_error']:.1%}",
        "nine in ten below": f"{row['error_90']:.1%}",
    }


def _tried(each: dict[str, Any]) -> dict[str, str]:
    return {
        "network": each["id"],
        "predicted": f"{each['predicted']['latency'] * 1e3:.3g} ms",
        "measured": f"{each['measured']['latency'] * 1e3:.3g} ms",
        "within the budget": "yes" if each["inside"] else "no",
    }
