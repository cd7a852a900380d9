"""The report's sections on searches: fronts, progress, distributions, ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vitruvius.arch import Arch
from vitruvius.report._candidates import Candidates, inherited_accuracies, searches_of
from vitruvius.report._figures import axes, distributions, front, label_of, lines, scatter, spread, summary_of
from vitruvius.report._page import Part, Section, drawings, heading, plot, table, text
from vitruvius.report._read import Contents
from vitruvius.report.drawing import drawing
from vitruvius.search import Objective, Trial, hypervolume, reference_point
from vitruvius.search import front as pareto

__all__ = ["inherited", "searches"]

_STEPS = 40
"""So many points a curve of hypervolumes has, at most."""
_SIDE_BY_SIDE = 4


def searches(contents: Contents) -> Section | None:
    """Every search of the folder: accuracy against cost, the front's networks, progress, errors."""
    parts: list[Part] = []
    found = searches_of(contents)
    for search in found:
        key = f"search-{search.name}" if search.name else "search"
        complete = search.complete
        failed = len(search.trials) - len(complete)
        which = f"{search.name}: " if len(found) > 1 else ""
        going = "" if search.finished else " The search has not finished: this is what there is so far."
        parts.append(
            text(
                f"{which}{len(complete):,} networks of space {search.space!r} were evaluated"
                f"{f', {failed} could not be' if failed else ''}.{going} Click a point to see its network."
            )
        )
        parts += _fronts(key, search, contents)
        parts += _progress(key, search)
        parts += _errors(key, complete)
    return Section("search", "Search", parts) if parts else None


def _fronts(key: str, search: Candidates, contents: Contents) -> list[Part]:
    """One plot a cost: MACs, and what else the search counted beside parameters; and networks of the first front."""
    objective, complete = search.objectives[0], search.complete
    counted = [name for name in ("macs", "latency", "memory", "throughput") if name in complete[0].costs]
    archs = {trial.arch.id: drawing(trial.arch, search.img_size) for trial in complete}
    found: list[Part] = []
    for cost in counted:
        best = sorted(pareto(complete, (objective, Objective.of(cost))), key=lambda trial: trial.value(cost))
        caption = (
            f"Every evaluated network: {label_of(objective.name)[0]} against {label_of(cost)[0]}. "
            f"{len(best)} of {len(complete):,} {'is' if len(best) == 1 else 'are'} on the front of the two."
        )
        marked = _marked(contents, complete) or {"best": search.best()}
        found.append(plot(f"{key}-{cost}", front(complete, cost, objective, marked, best), caption, archs))
        if cost == counted[0]:
            found += _front_drawings(search, cost, best)
    return found


def _front_drawings(search: Candidates, cost: str, best: Sequence[Trial]) -> list[Part]:
    """Some of the front, evenly from the cheapest to the best."""
    places = np.unique(np.linspace(0, len(best) - 1, _SIDE_BY_SIDE).round().astype(int)).tolist()
    shown = {}
    for place in places:
        trial = best[place]
        said = [_said(trial, search.objectives[0].name), _said(trial, cost)]
        name = f"candidate {trial.number}" if trial.number >= 0 else summary_of(trial)
        shown[name] = (drawing(trial.arch, search.img_size), ", ".join(said))
    title = "Along the front, from the cheapest to the best" if len(shown) > 1 else "The front's one network"
    return [heading(title), drawings(shown)]


def _said(trial: Trial, name: str) -> str:
    title, unit = label_of(name)
    return f"{title} {trial.value(name) * unit:.4g}"


def _marked(contents: Contents, complete: Sequence[Trial]) -> dict[str, Trial]:
    """The networks of a journey that the search has seen."""
    by_arch = {trial.arch: trial for trial in complete}
    rows = {row["name"]: Arch.from_dict(row["arch"]) for row in contents.result.get("rows", ())}
    return {name: by_arch[arch] for name, arch in rows.items() if arch in by_arch}


def _progress(key: str, search: Candidates) -> list[Part]:
    objective = search.objectives[0]
    title, unit = label_of(objective.name)
    sign = 1.0 if objective.maximise else -1.0
    places = [float(place) for place, trial in enumerate(search.trials, start=1) if trial.complete]
    complete = search.complete
    values = np.array([trial.value(objective.name) * unit for trial in complete])
    series = {"best so far": (places, (sign * np.maximum.accumulate(sign * values)).tolist())}
    random = [trial for trial in complete if trial.made in ("random", "drawn")]
    if 0 < len(random) < len(complete):
        drawn = max(sign * trial.value(objective.name) * unit for trial in random)
        series[f"best of the {len(random)} random ones"] = ([places[0], places[-1]], [sign * drawn] * 2)
    figure = lines(series, "candidates evaluated", title)
    figure["data"][0]["line"]["shape"] = "hv"
    parts = [
        plot(f"{key}-progress", figure, "The best so far, in the order in which candidates were proposed.", half=True)
    ]
    if len(complete) > 2:
        parts.append(_volumes(key, search, places))
    generations = sorted({trial.generation for trial in complete})
    if len(generations) > 1:
        by_generation = {
            str(g): [v for v, trial in zip(values.tolist(), complete, strict=True) if trial.generation == g]
            for g in generations
        }
        boxes = spread(by_generation, "generation", title)
        parts.append(
            plot(f"{key}-generations", boxes, "The new networks of each generation; dashed: the mean.", half=True)
        )
    return parts


def _volumes(key: str, search: Candidates, places: Sequence[float]) -> Part:
    """Hypervolume as the search went on; with one objective, of it and MACs."""
    complete = search.complete
    objectives = search.objectives if len(search.objectives) > 1 else (search.objectives[0], Objective.of("macs"))
    reference = reference_point([trial for trial in complete if trial.generation == 0] or complete, objectives)
    ends = np.unique(np.linspace(1, len(complete), min(_STEPS, len(complete))).round().astype(int)).tolist()
    volumes = [hypervolume(complete[:end], objectives, reference) for end in ends]
    share = [volume / max(volumes[-1], 1e-300) for volume in volumes]
    series = {"hypervolume": ([places[end - 1] for end in ends], share)}
    names = " and ".join(objective.name for objective in objectives)
    caption = f"Hypervolume of {names} as a share of the last, measured from the worst of the first generation."
    return plot(f"{key}-hypervolume", lines(series, "candidates evaluated", "hypervolume / last"), caption, half=True)


def _errors(key: str, complete: Sequence[Trial]) -> list[Part]:
    """The distribution of errors: of random networks, and of those that were bred."""
    if "accuracy" not in complete[0].scores:
        return []
    groups: dict[str, list[float]] = {}
    for trial in complete:
        name = "random" if trial.made in ("random", "drawn", "widening") else "bred"
        groups.setdefault(name, []).append(100 - trial.scores["accuracy"])
    caption = "Empirical distribution of the errors on search-validation, with inherited weights."
    return [plot(f"{key}-errors", distributions(groups, "error (%)"), caption, half=True)]


def inherited(contents: Contents) -> Section | None:
    """Accuracy with inherited weights against accuracy after training, with rank correlations."""
    pairs = _pairs(contents)
    if len(pairs) < 2:
        return None
    from scipy.stats import kendalltau, spearmanr

    x, y = ([pair[side] for pair in pairs.values()] for side in (0, 1))
    texts = [f"<b>{name}</b><br>inherited {a:.2f} %, trained {b:.2f} %" for name, (a, b) in pairs.items()]
    titles = ("inherited, on search-validation (%)", "trained, on test (%)")
    figure = {"data": [scatter(x, y, texts, "networks")], "layout": axes(*titles)}
    shown = [{"network": name, "inherited": f"{a:.2f} %", "test": f"{b:.2f} %"} for name, (a, b) in pairs.items()]
    said = f"{len(pairs)} networks were trained, too few for a rank correlation (4 or more)."
    drawn: list[Part] = [text(said, quiet=True)]
    if len(pairs) >= 4:
        said = f"Over {len(pairs)} networks: Kendall {kendalltau(x, y)[0]:.2f}, Spearman {spearmanr(x, y)[0]:.2f}."
        drawn = [plot("inherited", figure, said)]
    return Section("inherited", "Inherited and trained accuracy", [*drawn, table(shown)])


def _pairs(contents: Contents) -> dict[str, tuple[float, float]]:
    """By name, of every network that a search has seen and that was then trained: inherited, and on test."""
    known = inherited_accuracies(contents)
    return {
        training.said: (known[training.arch], training.result["test"]["accuracy"]["top1"])
        for training in contents.trainings
        if training.kind != "superformer" and "test" in training.result and training.arch in known
    }
