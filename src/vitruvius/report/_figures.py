"""Plotly figures as plain data: the page draws them in its own colours, and `_png` draws the same data into files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vitruvius.search import Objective, Trial

__all__ = [
    "COLORS",
    "axes",
    "distributions",
    "front",
    "label_of",
    "lines",
    "points",
    "predicted",
    "scatter",
    "spread",
    "summary_of",
    "trial_link",
]

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f8c9b")
_MARKED = 25
"""A curve of more points is drawn without them."""
_UNITS = {
    "params": ("parameters (millions)", 1e-6),
    "macs": ("MACs (millions)", 1e-6),
    "latency": ("latency (ms)", 1e3),
    "throughput": ("images a second", 1.0),
    "memory": ("peak memory (MB)", 1e-6),
    "accuracy": ("accuracy (%)", 1.0),
}


def label_of(name: str) -> tuple[str, float]:
    """How people call a metric, and what its value is multiplied with."""
    return _UNITS.get(name, (name, 1.0))


def summary_of(trial: Trial) -> str:
    """An architecture in one line."""
    stages = trial.arch.stages
    dims, depths = ("/".join(map(str, part)) for part in ([s.dim for s in stages], [len(s.blocks) for s in stages]))
    return f"width {dims}, blocks {depths}"


def trial_link(trial: Trial, names: Sequence[str]) -> list[str]:
    """What a click needs: the architecture, a title, a note."""
    said = [f"{label_of(name)[0]} {trial.value(name) * label_of(name)[1]:.4g}" for name in names]
    title = f"candidate {trial.number}" if trial.number >= 0 else trial.arch.id
    return [trial.arch.id, title, ", ".join([*said, summary_of(trial)])]


def axes(x: str, y: str) -> dict[str, Any]:
    """A layout that says what the axes are."""
    return {"xaxis": {"title": {"text": x}}, "yaxis": {"title": {"text": y}}}


def front(
    trials: Sequence[Trial], cost: str, objective: Objective, marked: Mapping[str, Trial], best: Sequence[Trial]
) -> dict[str, Any]:
    """Score against cost: every candidate, the Pareto front of the two, and a few by name."""
    (x_title, x_unit), (y_title, y_unit) = label_of(cost), label_of(objective.name)

    def points(chosen: Sequence[Trial]) -> dict[str, Any]:
        return {
            "x": [trial.value(cost) * x_unit for trial in chosen],
            "y": [trial.value(objective.name) * y_unit for trial in chosen],
            "customdata": [trial_link(trial, (objective.name, cost)) for trial in chosen],
            "text": [
                f"<b>{title}</b><br>{note}"
                for _, title, note in (trial_link(t, (objective.name, cost)) for t in chosen)
            ],
            "hoverinfo": "text",
        }

    generations = [trial.generation for trial in trials]
    data: list[dict[str, Any]] = [
        {
            **points(trials),
            "type": "scatter",
            "mode": "markers",
            "name": "candidates",
            "marker": {
                "size": 7,
                "opacity": 0.75,
                "color": generations,
                "colorscale": "Viridis",
                "showscale": len(set(generations)) > 1,
                "colorbar": {"title": {"text": "generation"}, "thickness": 10, "dtick": max(1, max(generations) // 5)},
            },
        },
        {
            **points(best),
            "type": "scatter",
            "mode": "lines+markers",
            "name": "Pareto front",
            "line": {"color": COLORS[1], "width": 2, "shape": "hv"},
            "marker": {"size": 8, "color": COLORS[1]},
        },
    ]
    for index, (name, trial) in enumerate(marked.items()):
        color = COLORS[(2, 3, 4)[index % 3]]
        marker = {"size": 14, "symbol": "star", "color": color, "line": {"width": 1, "color": "#fff"}}
        data.append({**points([trial]), "type": "scatter", "mode": "markers", "name": name, "marker": marker})
    return {"data": data, "layout": axes(x_title, y_title)}


def lines(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]], x_title: str, y_title: str, *, markers: bool = False
) -> dict[str, Any]:
    """Curves by name."""
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers" if markers and len(x) <= _MARKED else "lines",
            "name": name,
            "x": list(x),
            "y": list(y),
            "line": {"color": COLORS[index % len(COLORS)], "width": 2},
        }
        for index, (name, (x, y)) in enumerate(series.items())
    ]
    return {"data": data, "layout": axes(x_title, y_title)}


def distributions(samples: Mapping[str, Sequence[float]], x_title: str) -> dict[str, Any]:
    """Empirical distributions: the share of a sample that is no larger than x (S3, Figure 6)."""
    series = {
        f"{name} (n = {len(values)})": (
            np.sort(values).tolist(),
            (np.arange(1, len(values) + 1) / len(values)).tolist(),
        )
        for name, values in samples.items()
    }
    figure = lines(series, x_title, "share of architectures")
    for trace in figure["data"]:
        trace["line"]["shape"] = "hv"
    return figure


def spread(
    samples: Mapping[str, Sequence[float]], x_title: str, y_title: str, *, single: bool = False
) -> dict[str, Any]:
    """A box for each sample; the dashed line is its mean. `single`: with its points."""
    data = [
        {
            "type": "box",
            "name": name,
            "y": list(values),
            "boxmean": True,
            "boxpoints": "all" if single else False,
            **({"jitter": 0.3, "pointpos": 0} if single else {}),
            "showlegend": False,
            "marker": {"color": COLORS[0]},
        }
        for name, values in samples.items()
    ]
    return {"data": data, "layout": axes(x_title, y_title)}


def scatter(
    x: Sequence[float], y: Sequence[float], said: Sequence[str], name: str, links: Sequence[Sequence[str]] = ()
) -> dict[str, Any]:
    """A trace of points that say something each; `links` are what a click on them draws."""
    index = 1 if links else 0
    made = {"type": "scatter", "mode": "markers", "name": name, "x": list(x), "y": list(y), "text": list(said)}
    linked = {"customdata": [list(link) for link in links]} if links else {}
    return {**made, **linked, "hoverinfo": "text", "marker": {"size": 9 if links else 7, "color": COLORS[index]}}


def points(x: Sequence[float], y: Sequence[float], names: Sequence[str], name: str) -> dict[str, Any]:
    """Networks that are only named."""
    said = [f"{each}<br>{a:.4g}, {b:.4g}" for each, a, b in zip(names, x, y, strict=True)]
    return scatter(x, y, said, name)


def predicted(groups: Mapping[str, Sequence[tuple[float, float]]], unit: str) -> dict[str, Any]:
    """Predicted and measured values of groups of networks, and the line on which both are equal."""
    values = [value for pairs in groups.values() for pair in pairs for value in pair]
    ends = [min(values), max(values)]
    figure = lines({"equal": (ends, ends)}, f"predicted ({unit})", f"measured ({unit})")
    figure["data"][0]["line"] = {"color": COLORS[6], "dash": "dot"}
    for index, (name, pairs) in enumerate(groups.items()):
        said, measured = ([pair[side] for pair in pairs] for side in (0, 1))
        texts = [f"{name}<br>predicted {a:.4g}, measured {b:.4g} {unit}" for a, b in pairs]
        trace = scatter(said, measured, texts, name)
        trace["marker"]["color"] = COLORS[index]
        figure["data"].append(trace)
    return figure
