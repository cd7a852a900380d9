"""The report's section on the evolution of a space: what S3 shows of its own, and what each move was made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from vitruvius.costs import short
from vitruvius.pipeline.evolved import EvolvedSpace, open_evolution
from vitruvius.report._figures import COLORS, distributions, lines
from vitruvius.report._page import Part, Section, heading, plot, table, text
from vitruvius.report._panels import Cell, panels
from vitruvius.report._read import Contents
from vitruvius.search import Trial
from vitruvius.search.space_evolution import ETError, ETTable, Move, Subspace, dimensions_of

__all__ = ["evolution"]

_NET = "network"


def evolution(contents: Contents) -> Section | None:
    """Every evolution of the folder: spaces beside each other, the way of their choices, their errors, the moves."""
    parts: list[Part] = []
    for name, record in contents.records.items():
        if record.get("kind") == "evolve-space":
            key = f"spaces-{name.replace('/', '-')}" if name else "spaces"
            parts += _parts(key, contents.folder / name, record)
    return Section("evolution", "Evolution of the space", parts) if parts else None


def _parts(key: str, folder: Path, record: Mapping[str, Any]) -> list[Part]:
    spaces = open_evolution(folder)
    measured = [each for each in spaces if each.table]
    if not measured:
        return [text("No space has been measured yet.")]
    planned = record["config"]["iterations"] + 1
    going = "" if (folder / "result.json").exists() else f" The run has not finished: {planned} spaces at most."
    budget = record["config"].get("budget") or "none"
    parts = [
        text(
            f"{_counted(len(measured))} measured by the E-T error: the mean error of random networks, averaged with "
            f"that of the best of them, with inherited weights on search-validation. Budget: {budget}.{going}"
        ),
        _spaces(measured),
        text(
            f"Intervals: {_table(measured[0]).level:.0%}, over the networks that were drawn; images and training are "
            "those of one run. Best random and best found are top-1; costs are of the best found.",
            quiet=True,
        ),
    ]
    parts.append(plot(f"{key}-errors", _errors(measured), _ERRORS_SAID))
    parts.append(plot(f"{key}-choices", _choices(spaces), _CHOICES_SAID))
    parts += _blocks(key, measured[-1])
    for each in measured:
        parts.append(heading(f"What moved {each.space.name}" if each.moves else each.space.name))
        parts.append(table(_tendencies(_table(each), each.moves)))
    parts.append(text(_TENDENCIES_SAID, quiet=True))
    return parts


_ERRORS_SAID = "Empirical distribution of the errors of each space's random networks, each network once (S3, Figure 6)."
_CHOICES_SAID = (
    "The choices of every dimension (rows) and stage (columns) in each space (from left to right); the line is their "
    "mean (S3, Figure 2)."
)
_TENDENCIES_SAID = (
    "A subspace's E-T error stands behind its choice; in brackets the number of its networks, and after + how many of "
    "them were drawn for it alone. The choices move against the slope, which is in percent a step."
)


def _counted(spaces: int) -> str:
    return "1 space was" if spaces == 1 else f"{spaces} spaces were"


def _table(each: EvolvedSpace) -> ETTable:
    assert each.table is not None
    return each.table


def _percent(value: float) -> str:
    return f"{value:.2f} %"


def _accuracy(trial: Trial | None) -> str | None:
    return None if trial is None else _percent(trial.value("accuracy"))


def _spaces(measured: Sequence[EvolvedSpace]) -> Part:
    """Table 5, with what each space is judged by beside it."""
    rows = []
    for each in measured:
        whole = _table(each).whole
        best = each.best
        rows.append(
            {
                "space": each.space.name,
                "networks": f"{each.space.networks:.2g}",
                "E-T error": _percent(whole.error),
                "interval": f"{whole.low:.2f} to {whole.high:.2f}",
                f"mean of {whole.count}": _percent(whole.expected),
                f"best {whole.top} of them": _percent(whole.top_tier),
                "best random": _accuracy(max(each.drawn, key=lambda trial: trial.value("accuracy"))),
                "best found": _accuracy(best),
                "MACs": best and short(best.costs["macs"]),
                "parameters": best and short(best.costs["params"]),
            }
        )
    keys = list(dict.fromkeys(key for row in rows for key in row))
    found = [index for index, each in enumerate(measured) if each.best]
    winner = max(found, key=lambda index: measured[index].best.value("accuracy")) if found else None  # type: ignore[union-attr]
    return table([{key: row.get(key) for key in keys} for row in rows], winner)


def _errors(measured: Sequence[EvolvedSpace]) -> dict[str, Any]:
    samples = {each.space.name: [100 - trial.value("accuracy") for trial in each.drawn] for each in measured}
    return distributions(samples, "error (%)")


# -- choices -----------------------------------------------------------------------------------------------------------


def _choices(spaces: Sequence[EvolvedSpace]) -> dict[str, Any]:
    history = _history(spaces)
    rows = list(dict.fromkeys(name.rpartition(".")[2] for name in history))
    columns = sorted({name.rpartition(".")[0] or _NET for name in history})
    cells: dict[Cell, list[dict[str, Any]]] = {}
    for name, steps in history.items():
        where, _, parameter = name.rpartition(".")
        x = [t for t, choices in enumerate(steps) for _ in choices]
        y = [choice for choices in steps for choice in choices]
        means = [float(np.mean(choices)) for choices in steps]
        shared = {"type": "scatter", "showlegend": False, "name": name}
        line = {"color": COLORS[6], "width": 1.5}
        cells[rows.index(parameter), columns.index(where or _NET)] = [
            {**shared, "mode": "lines", "x": list(range(len(steps))), "y": means, "line": line, "hoverinfo": "skip"},
            {**shared, "mode": "markers", "x": x, "y": y, "marker": {"color": COLORS[0], "size": 7}},
        ]
    x_axis = {"dtick": 1, "range": [-0.3, len(spaces) - 0.7]}
    return panels(cells, [_spaced(column) for column in columns], rows, x_axis)


def _spaced(column: str) -> str:
    return column if column == _NET else f"stage {column[5:]}"


def _history(spaces: Sequence[EvolvedSpace]) -> dict[str, list[tuple[float, ...]]]:
    """Of every dimension that could move, its choices in each space."""
    history = {dimension.name: [dimension.choices] for dimension in dimensions_of(spaces[0].space)}
    for before, _ in pairwise(spaces):
        after = {move.dimension: move.after for move in before.moves}
        for name, steps in history.items():
            steps.append(after.get(name, steps[-1]))
    return history


# -- blocks ------------------------------------------------------------------------------------------------------------


def _blocks(key: str, last: EvolvedSpace) -> list[Part]:
    """The errors of the last space by the number of blocks in each stage."""
    depths = {t.dimension.partition(".")[0]: t for t in _table(last).tendencies if t.dimension.endswith(".depth")}
    if not depths:
        return []
    samples: dict[Cell, dict[str, list[float]]] = {}
    top: dict[str, tuple[list[float], list[float]]] = {}
    for column, (stage, tendency) in enumerate(depths.items()):
        measured = [(each.choice, each.measured.top_tier) for each in tendency.subspaces if each.measured]
        top[_spaced(stage)] = ([count for count, _ in measured], [error for _, error in measured])
        samples[0, column] = {f"{count:g} blocks": _errors_with(last, stage, count) for count, _ in measured}
    said = [f"error (%), {_spaced(stage)}" for stage in depths]
    name = last.space.name
    return [
        plot(
            f"{key}-blocks",
            panels(_coloured(samples), said, ["share of networks"], row=220),
            f"{name}: errors of random networks by the number of blocks in a stage (S3, Figure 3, left).",
        ),
        plot(
            f"{key}-top-tier",
            lines(top, "blocks in the stage", "top-tier error (%)", markers=True),
            f"{name}: mean error of the best networks by the number of blocks in a stage (S3, Figure 3, right).",
        ),
    ]


def _errors_with(space: EvolvedSpace, stage: str, blocks: float) -> list[float]:
    index = int(stage[5:]) - 1
    return [100 - trial.value("accuracy") for trial in space.drawn if len(trial.arch.stages[index].blocks) == blocks]


def _coloured(samples: Mapping[Cell, Mapping[str, Sequence[float]]]) -> dict[Cell, list[dict[str, Any]]]:
    """Distributions of one name in one colour, which the legend has once."""
    names = sorted({name for groups in samples.values() for name in groups}, key=lambda name: float(name.split()[0]))
    shown: set[str] = set()
    cells: dict[Cell, list[dict[str, Any]]] = {}
    for cell, groups in samples.items():
        sound = {name: errors for name, errors in groups.items() if errors}
        cells[cell] = distributions(sound, "")["data"]
        for name, trace in zip(sound, cells[cell], strict=True):
            rank = names.index(name)
            trace["line"]["color"] = COLORS[rank % len(COLORS)]
            trace |= {"name": name, "legendgroup": name, "legendrank": rank + 1, "showlegend": name not in shown}
            shown.add(name)
    return cells


# -- moves -------------------------------------------------------------------------------------------------------------


def _tendencies(measured: ETTable, moves: Sequence[Move]) -> list[dict[str, Any]]:
    by = {move.dimension: move for move in moves}
    rows = []
    for tendency in measured.tendencies:
        move = by.get(tendency.dimension)
        slope = interval = None
        if tendency.slope is not None:
            slope, interval = f"{tendency.slope:+.2f}", f"{tendency.low:+.2f} to {tendency.high:+.2f}"
        row: dict[str, Any] = {
            "dimension": tendency.dimension,
            "choice: E-T error (networks)": "; ".join(map(_subspace, tendency.subspaces)),
            "step": f"{tendency.step:g}",
            "slope": slope,
            "interval": interval,
        }
        if moves:
            row |= {
                "steps": f"{move.taken:+d}" if move and move.asked else None,
                "moves to": ", ".join(f"{choice:g}" for choice in move.after) if move and move.taken else None,
                "note": move.note if move else None,
            }
        rows.append(row)
    return rows


def _subspace(each: Subspace) -> str:
    found: ETError | None = each.measured
    if found is None:
        return f"{each.choice:g}: none in the budget"
    widened = f" + {each.widened}" if each.widened else ""
    return f"{each.choice:g}: {found.error:.2f} ({found.count - each.widened}{widened})"
