"""Figures of many small plots in rows and columns, as plain data, and the same drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vitruvius.files import replace_file

__all__ = ["Cell", "panels", "panels_png"]

Cell = tuple[int, int]
"""Row and column, from 0."""
_FRAME = 110
"""Pixels above and below all rows."""


def panels(
    cells: Mapping[Cell, Sequence[Mapping[str, Any]]],
    columns: Sequence[str],
    rows: Sequence[str],
    x_axis: Mapping[str, Any] | None = None,
    row: int = 150,
) -> dict[str, Any]:
    """Traces by their cell, in rows of so many pixels.

    The names of columns stand below their last plot, those of rows left of the first column. A row has one y axis.
    """
    layout: dict[str, Any] = {
        "grid": {"rows": len(rows), "columns": len(columns), "pattern": "independent", "ygap": 0.3, "xgap": 0.2},
        "height": row * len(rows) + _FRAME,
    }
    data = []
    for r, row_name in enumerate(rows):
        for c, column_name in enumerate(columns):
            number = r * len(columns) + c + 1
            end = _name("", number)
            last = max((row for row, column in cells if column == c), default=-1)
            shown = {} if (r, c) in cells else {"visible": False}
            together = {"matches": _name("y", r * len(columns) + 1)} if c else {}
            layout[f"xaxis{end}"] = {"title": {"text": column_name if r == last else ""}, **(x_axis or {}), **shown}
            layout[f"yaxis{end}"] = {"title": {"text": "" if c else row_name}, **together, **shown}
            data += [{**trace, "xaxis": f"x{end}", "yaxis": f"y{end}"} for trace in cells.get((r, c), ())]
    return {"data": data, "layout": layout}


def _name(letter: str, number: int) -> str:
    """Of an axis: x, x2, x3, ..."""
    return letter + ("" if number == 1 else str(number))


def panels_png(path: Path, figure: Mapping[str, Any], draw: Callable[[Any, Any, dict[str, Any]], None]) -> None:
    """Draws what `panels` makes; `draw` draws a trace, given the whole figure and the plot that it goes into."""
    from matplotlib.figure import Figure

    layout = figure["layout"]
    rows, columns = layout["grid"]["rows"], layout["grid"]["columns"]
    size = (max(6.0, 2.4 * columns), layout["height"] / 96)
    drawn = Figure(figsize=size, dpi=150, layout="constrained")
    axes = drawn.subplots(rows, columns, squeeze=False, sharey="row").flat
    named: dict[str, Any] = {}
    for number, ax in enumerate(axes, start=1):
        end = _name("", number)
        inside = [trace for trace in figure["data"] if trace["xaxis"] == f"x{end}"]
        if not inside:
            ax.axis("off")
        for trace in inside:
            draw(drawn, ax, trace)
        x_axis, y_axis = layout[f"xaxis{end}"], layout[f"yaxis{end}"]
        ax.set_xlabel(x_axis["title"]["text"], fontsize=8)
        ax.set_ylabel(y_axis["title"]["text"], fontsize=8)
        if "dtick" in x_axis:
            ax.xaxis.get_major_locator().set_params(integer=True)
        if "range" in x_axis:
            ax.set_xlim(*x_axis["range"])
        ax.tick_params(labelsize=7)
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
        named |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    order = {trace["name"]: trace.get("legendrank", 0) for trace in figure["data"] if trace.get("showlegend", True)}
    if names := sorted(order, key=lambda name: order[name]):
        handles = [named[name] for name in names]
        drawn.legend(handles, names, loc="outside upper center", ncols=6, fontsize=7, frameon=False)
    replace_file(path, lambda partial: drawn.savefig(partial, format="png"))
