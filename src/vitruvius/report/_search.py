"""The report's sections on searches: fronts, progress, distributions, ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitruvius.arch import Arch, ImageSize
from vitruvius.pipeline.search import SearchRun, open_search
from vitruvius.report._figures import distributions, front, label_of, lines, spread
from vitruvius.report._page import Part, Section, plot, table, text
from vitruvius.report._read import RECORD, Contents, read_json
from vitruvius.report.drawing import drawing
from vitruvius.search import Objective, Trial, hypervolume, reference_point
from vitruvius.search import front as pareto

__all__ = ["inherited", "searches"]


def searches(contents: Contents) -> Section | None:
    """Every search of the folder: accuracy against cost, progress, errors."""
    parts: list[Part] = []
    for run in _runs(contents):
        complete = [trial for trial in run.trials if trial.complete]
        if not complete:
            continue
        key = "search" if run.folder == contents.folder else f"search-{run.folder.name}"
        failed = len(run.trials) - len(complete)
        going = "" if run.finished else " The search has not finished."
        parts.append(
            text(
                f"{len(complete):,} networks of space {run.space.name!r} were evaluated"
                f"{f', {failed} could not be' if failed else ''}.{going} Click a point to see its network."
            )
        )
        parts += _fronts(key, run, complete, contents)
        parts += _progress(key, run, complete)
        parts += _errors(key, complete)
    return Section("search", "Search", parts) if parts else None


def _runs(contents: Contents) -> list[SearchRun]:
    records = sorted(contents.folder.rglob(RECORD))
    return [open_search(file.parent) for file in records if read_json(file).get("kind") == "search"]


def _fronts(key: str, run: SearchRun, complete: Sequence[Trial], contents: Contents) -> list[Part]:
    """One plot a cost: MACs, and what else the search counted beside parameters."""
    objective = run.objectives[0]
    counted = [name for name in complete[0].costs if name == "macs"]
    counted += [name for name in ("latency", "memory", "throughput") if name in complete[0].costs]
    archs = {trial.arch.id: drawing(trial.arch, _size(run)) for trial in complete}
    found: list[Part] = []
    for cost in counted:
        way = Objective.of(cost)
        best = sorted(pareto(complete, (objective, way)), key=lambda trial: trial.value(cost))
        caption = (
            f"Every evaluated network: {label_of(objective.name)[0]} against {label_of(cost)[0]}. "
            f"{len(best)} of {len(complete):,} are on the front of the two."
        )
        figure = front(complete, cost, objective, _marked(contents, complete), best)
        found.append(plot(f"{key}-{cost}", figure, caption, archs))
    return found


def _size(run: SearchRun) -> ImageSize:
    height, width = run.record["job"]["img_size"]
    return (height, width)


def _marked(contents: Contents, complete: Sequence[Trial]) -> dict[str, Trial]:
    """The networks of a journey that the search has seen."""
    by_arch = {trial.arch: trial for trial in complete}
    rows = {row["name"]: Arch.from_dict(row["arch"]) for row in contents.result.get("rows", ())}
    return {name: by_arch[arch] for name, arch in rows.items() if arch in by_arch}


def _progress(key: str, run: SearchRun, complete: Sequence[Trial]) -> list[Part]:
    objective = run.objectives[0]
    unit = label_of(objective.name)[1]
    sign = 1.0 if objective.maximise else -1.0
    values = np.array([trial.value(objective.name) * unit for trial in complete])
    best = sign * np.maximum.accumulate(sign * values)
    numbers = [float(trial.number) for trial in complete]
    series = {"best so far": (numbers, best.tolist())}
    random = [trial for trial in complete if trial.made == "random"]
    if 0 < len(random) < len(complete):
        drawn = np.array([trial.value(objective.name) * unit for trial in random])
        ends = ([0.0, numbers[-1]], [float(sign * (sign * drawn).max())] * 2)
        series[f"best of the {len(random)} random ones"] = ends
    title = label_of(objective.name)[0]
    figure = lines(series, "candidates evaluated", title)
    figure["data"][0]["line"]["shape"] = "hv"
    parts = [plot(f"{key}-progress", figure, "The best so far, in the order in which candidates were proposed.")]
    generations = sorted({trial.generation for trial in complete})
    if len(generations) > 1:
        by_generation = {
            str(g): [v for v, trial in zip(values.tolist(), complete, strict=True) if trial.generation == g]
            for g in generations
        }
        boxes = spread(by_generation, "generation", title)
        parts.append(plot(f"{key}-generations", boxes, "The new networks of each generation."))
        parts.append(_volumes(key, run, complete, generations))
    return parts


def _volumes(key: str, run: SearchRun, complete: Sequence[Trial], generations: Sequence[int]) -> Part:
    """Hypervolume after each generation; with one objective, of it and MACs."""
    objectives = run.objectives if len(run.objectives) > 1 else (run.objectives[0], Objective.of("macs"))
    first = [trial for trial in complete if trial.generation == generations[0]]
    reference = reference_point(first, objectives)
    volumes = [hypervolume([t for t in complete if t.generation <= g], objectives, reference) for g in generations]
    series = {"hypervolume": ([float(g) for g in generations], [v / max(volumes[-1], 1e-300) for v in volumes])}
    names = " and ".join(objective.name for objective in objectives)
    caption = f"Hypervolume of {names} as a share of the last, measured from the worst of the first generation."
    return plot(f"{key}-hypervolume", lines(series, "generation", "hypervolume / last", markers=True), caption)


def _errors(key: str, complete: Sequence[Trial]) -> list[Part]:
    """The distribution of errors: of random networks, and of those that were bred."""
    if "accuracy" not in complete[0].scores:
        return []
    groups: dict[str, list[float]] = {}
    for trial in complete:
        name = "random" if trial.made == "random" else "bred"
        groups.setdefault(name, []).append(100 - trial.scores["accuracy"])
    caption = "Empirical distribution of the errors on search-validation, with inherited weights."
    return [plot(f"{key}-errors", distributions(groups, "error (%)"), caption)]


def inherited(contents: Contents) -> Section | None:
    """Accuracy with inherited weights against accuracy after training, with rank correlations."""
    rows = [row for row in contents.result.get("rows", ()) if row.get("inherited") is not None]
    if len(rows) < 2:
        return None
    from scipy.stats import kendalltau, spearmanr

    x, y = ([row[key] for row in rows] for key in ("inherited", "test"))
    figure: dict[str, Any] = lines({}, "with the superformer's weights (%)", "trained, on test (%)")
    points = {"type": "scatter", "mode": "markers", "name": "networks", "x": x, "y": y, "marker": {"size": 10}}
    figure["data"].append({**points, "text": [row["name"] for row in rows], "hoverinfo": "text+x+y"})
    said = f"{len(rows)} networks are too few for a rank correlation."
    if len(rows) >= 4:
        said = f"Over {len(rows)} networks: Kendall {kendalltau(x, y)[0]:.2f}, Spearman {spearmanr(x, y)[0]:.2f}."
    parts = [plot("inherited", figure, said)]
    shown = [{"network": r["name"], "inherited": f"{r['inherited']:.2f} %", "test": f"{r['test']:.2f} %"} for r in rows]
    return Section("inherited", "Inherited and trained accuracy", [*parts, table(shown)])
