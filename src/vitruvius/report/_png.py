"""The page's figures as files: the same plain data, drawn by matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vitruvius.files import replace_file
from vitruvius.report._figures import COLORS
from vitruvius.report._panels import panels_png

__all__ = ["figure_png"]

_SYMBOLS = {"star": "*"}
_DASHES = {"dot": ":", "dash": "--"}


def figure_png(path: Path, figure: dict[str, Any]) -> None:
    """Draws the kinds of traces that `_figures` makes: scatter, lines, boxes."""
    from matplotlib.figure import Figure

    if "grid" in figure["layout"]:
        panels_png(path, figure, _scatter)
        return
    drawn = Figure(figsize=(7.2, 4.4), dpi=150, layout="constrained")
    ax = drawn.subplots()
    boxes = [trace for trace in figure["data"] if trace["type"] == "box"]
    if boxes:
        ax.bxp([_box(trace) for trace in boxes], showmeans=True, showfliers=False)
        ax.tick_params("x", labelrotation=90 if len(boxes) > 8 else 0)
    for trace in figure["data"]:
        if trace["type"] == "scatter":
            _scatter(drawn, ax, trace)
    layout = figure["layout"]
    ax.set_xlabel(layout["xaxis"]["title"]["text"])
    ax.set_ylabel(layout["yaxis"]["title"]["text"])
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    if any(trace.get("name") for trace in figure["data"] if trace["type"] == "scatter"):
        ax.legend(fontsize=8, frameon=False)
    replace_file(path, lambda partial: drawn.savefig(partial, format="png"))


def _box(trace: dict[str, Any]) -> dict[str, Any]:
    """What matplotlib draws a box from: the figure's own quantiles, or those of its values."""
    from matplotlib.cbook import boxplot_stats

    if "y" in trace:
        return {**boxplot_stats(trace["y"])[0], "label": trace["name"]}
    names = {"whislo": "lowerfence", "q1": "q1", "med": "median", "q3": "q3", "whishi": "upperfence", "mean": "mean"}
    return {theirs: trace[ours][0] for theirs, ours in names.items()} | {"label": trace["name"]}


def _scatter(drawn: Any, ax: Any, trace: dict[str, Any]) -> None:
    x, y, marker, line = trace["x"], trace["y"], trace.get("marker", {}), trace.get("line", {})
    color = line.get("color") or marker.get("color") or COLORS[0]
    if "lines" in trace["mode"]:
        steps = "steps-post" if line.get("shape") == "hv" else "default"
        dots = "o" if "markers" in trace["mode"] else ""
        style = _DASHES.get(line.get("dash", ""), "-")
        ax.plot(x, y, style, color=color, marker=dots, markersize=4, drawstyle=steps, label=trace["name"], zorder=3)
        return
    scale = isinstance(color, list) and len(set(color)) > 1
    shown = {"c": color, "cmap": "viridis"} if scale else {"color": COLORS[0] if isinstance(color, list) else color}
    symbol = _SYMBOLS.get(marker.get("symbol", ""), "o")
    size = (180 if symbol == "*" else 4) if marker.get("size", 6) > 10 else 18
    points = ax.scatter(
        x, y, s=size, marker=symbol, label=trace["name"], alpha=marker.get("opacity", 1), zorder=4, **shown
    )
    if scale:
        drawn.colorbar(points, ax=ax, label=marker.get("colorbar", {}).get("title", {}).get("text", ""), pad=0.01)
