"""The report's sections on training-free scores: a search by them, and how well they rank known accuracies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vitruvius.arch import Arch
from vitruvius.correlation import kendall_matrix
from vitruvius.costs import short
from vitruvius.proxies import BASELINES, chosen_proxies
from vitruvius.report._figures import axes, label_of, points, scatter
from vitruvius.report._page import Part, Section, drawings, heading, plot, table, text
from vitruvius.report._read import Contents, read_lines
from vitruvius.report.drawing import drawing

__all__ = ["ranking", "scores"]

_LINES = "scores.jsonl"
_SIDE_BY_SIDE = 4
_MOST_PLOTS = 4


def _scores_of(contents: Contents, proxies: Sequence[str]) -> tuple[list[str], dict[str, list[float]]]:
    """Ids of what was scored so far, and each proxy's scores of them; not a number where it has none."""
    rows = sorted(read_lines(contents.folder / _LINES), key=lambda row: row["place"])
    chosen = chosen_proxies(list(proxies))
    parts = {part for proxy in chosen for part in proxy.parts}
    measured = {part: np.array([float(row["parts"].get(part, math.nan)) for row in rows]) for part in parts}
    return [row["id"] for row in rows], {proxy.name: proxy.combine(measured).tolist() for proxy in chosen}


def scores(contents: Contents) -> Section | None:
    """What `vitruvius score` found: scores against costs, the best networks, how the proxies agree."""
    if contents.kind != "score":
        return None
    asked = contents.record["config"]["proxies"]
    ids, found = _scores_of(contents, list(dict.fromkeys([*asked, *BASELINES])))
    if not ids:
        return None
    first, top = asked[0], contents.result.get("top", [])
    going = "" if contents.result else " The scoring has not finished: this is what there is so far."
    space = contents.record["config"]["space"]["name"]
    parts: list[Part] = [
        text(
            f"{len(ids):,} different networks of space {space!r} have scores; {first} ranks.{going}"
            + (f" Click one of the {len(top)} best to see it." if top else "")
        )
    ]
    size = contents.record["config"]["img_size"] or contents.record["config"]["space"].get("img_size") or 224
    size = size if isinstance(size, int) else (size[0], size[1])
    drawn = {row["id"]: drawing(Arch.from_dict(row["arch"]), size) for row in top}
    place = {name: index for index, name in enumerate(ids)}
    best = [place[row["id"]] for row in top]
    for cost in ("params", "macs"):
        title, unit = label_of(cost)
        every = points([value * unit for value in found[cost]], found[first], ids, "sampled")
        marked = scatter(
            [found[cost][at] * unit for at in best],
            [found[first][at] for at in best],
            [f"<b>rank {rank}</b><br>{ids[at]}" for rank, at in enumerate(best, start=1)],
            f"the {len(best)} best",
            [
                [ids[at], f"rank {rank} by {first}", f"{first} {found[first][at]:.4g}"]
                for rank, at in enumerate(best, 1)
            ],
        )
        figure = {"data": [every, *([marked] if best else [])], "layout": axes(title, first)}
        parts.append(plot(f"score-{cost}", figure, f"{first} against {title}.", drawn))
    if top:
        rows = [{"rank": str(rank), "network": row["id"], **_numbers(row, found)} for rank, row in enumerate(top, 1)]
        parts += [table(rows), heading("The best, side by side")]
        parts.append(
            drawings(
                {
                    f"rank {n}": (drawn[row["id"]], f"{first} {row[first]:.4g}")
                    for n, row in enumerate(top[:_SIDE_BY_SIDE], 1)
                }
            )
        )
    parts += [heading("How the scores agree (Kendall's τ)"), table(_agreement(found))]
    return Section("scores", "Scores without training", parts)


def _numbers(row: dict[str, Any], found: dict[str, list[float]]) -> dict[str, str]:
    said = {name: f"{row[name]:.4g}" for name in found if name in row and name not in ("params", "macs")}
    return said | {"MACs": short(row["macs"]), "parameters": short(row["params"])}


def _agreement(found: dict[str, list[float]]) -> list[dict[str, str]]:
    names = list(found)
    matrix = kendall_matrix([np.array(found[name]) for name in names]).tolist()
    return [
        {"": name, **{other: _signed(value) for other, value in zip(names, row, strict=True)}}
        for name, row in zip(names, matrix, strict=True)
    ]


def _signed(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:+.2f}"


def ranking(contents: Contents) -> Section | None:
    """What `vitruvius rank` found: scores against known accuracies, with their correlations."""
    if contents.kind != "rank":
        return None
    known = contents.record["config"]["networks"]
    names = contents.record["config"]["proxies"]
    ids, found = _scores_of(contents, names)
    if not ids:
        return None
    accuracy = dict(map(tuple, known))
    overall = contents.result.get("overall", {})
    parts: list[Part] = [text(f"{len(ids):,} of {len(known):,} networks with known accuracies have scores.")]
    for name in names[:_MOST_PLOTS]:
        every = points(found[name], [accuracy[each] for each in ids], ids, "networks")
        tau = overall.get(name, {}).get("kendall")
        caption = f"{name}: Kendall's τ {_interval(tau)}." if tau else f"{name}."
        parts.append(plot(f"rank-{name}", {"data": [every], "layout": axes(name, "accuracy (%)")}, caption, half=True))
    if overall:
        parts.append(heading("Over all networks, with 95 % bootstrap intervals"))
        parts.append(table([_correlations(name, each) for name, each in overall.items()]))
    for band in contents.result.get("bands", []):
        low, high = band["params"]
        parts.append(heading(f"Between {short(low)} and {short(high)} parameters"))
        parts.append(table([_correlations(name, each) for name, each in band["proxies"].items()]))
    return Section("ranking", "Scores against accuracies", parts)


def _correlations(name: str, found: dict[str, Any]) -> dict[str, str]:
    said = {key: _interval(found[key]) for key in ("kendall", "spearman", "pearson")}
    return {"score": name, "n": str(found["n"]), **said, "kendall, about equal size": _interval(found["near"])}


def _interval(estimate: dict[str, Any]) -> str:
    if estimate["value"] is None:
        return "-"
    return f"{estimate['value']:+.2f} ({_signed(estimate['low'])} to {_signed(estimate['high'])})"
