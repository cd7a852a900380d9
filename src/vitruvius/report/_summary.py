"""The report's first section: what came out, in a few numbers and drawings; and how far an unfinished run is."""

from __future__ import annotations

from typing import Any

from vitruvius import costs
from vitruvius.arch import Arch
from vitruvius.pipeline.plan import accuracy_noise
from vitruvius.report._candidates import searches_of
from vitruvius.report._page import Part, Section, cards, drawings, heading, table, text
from vitruvius.report._read import TRAINING, Contents, Training
from vitruvius.report.drawing import drawing

__all__ = ["percent", "state", "summary"]

_LEGEND = (
    "A row is a block. Left: queries, keys and values together, in as many parts as there are heads. Right: the MLP. "
    "The vertical lines: the width of the stage. In the middle: heads, and the window or reduction."
)
_PHASES = {
    "superformer": "the superformer",
    "evolve": "the spaces",
    "search": "the search",
    "found": "training what was found",
    "handmade": "training the hand-made network",
    "random": "training the best random one",
}
"""Of a journey, by their folders."""


def percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f} %"


def state(contents: Contents) -> str:
    """Whether the run is over; what there is of it, if not."""
    if contents.kind == "runs":
        return f"{len(contents.records)} runs in one folder"
    if contents.result:
        return "finished"
    if contents.kind in TRAINING:
        return f"not finished: {_epochs(contents.trainings[0])}"
    if contents.kind != "run":
        return "not finished: this is what there is so far"
    begun = [said for name, said in _PHASES.items() if name in contents.records]
    done = [said for name, said in _PHASES.items() if (contents.folder / name / "result.json").exists()]
    left = [said for said in begun if said not in done]
    parts = [f"done: {', '.join(done) or 'nothing'}", *([f"begun: {', '.join(left)}"] if left else [])]
    return f"not finished ({'; '.join(parts)})"


def _epochs(training: Training) -> str:
    return f"{len(training.epochs)} of {training.planned:g} epochs"


def summary(contents: Contents) -> Section | None:
    """By kind of run; nothing where nothing came out yet."""
    if contents.result.get("rows"):
        return _journey(contents)
    if contents.kind in ("retrain", "finetune"):
        return _network(contents.trainings[0])
    if contents.kind == "superformer":
        return _superformer(contents.trainings[0])
    if contents.kind in ("search", "evolve-space"):
        return _found(contents)
    return _runs(contents) if contents.kind == "runs" else None


def _journey(contents: Contents) -> Section:
    rows = contents.result["rows"]
    found = rows[0]
    values = {
        "test accuracy of the found network": percent(found["test"]) or "",
        **_costs(found["macs"], found["params"]),
        **({"latency, measured": f"{found['latency'] * 1e3:.3g} ms"} if found.get("latency") else {}),
        "of work in all phases": _duration(sum(contents.result["seconds"].values())),
    }
    shown = [
        {
            "network": row["name"],
            "test top-1": percent(row["test"]),
            "search-validation top-1": percent(row.get("validation")),
            "with the superformer's weights": percent(row.get("inherited")),
            **_costs(row["macs"], row["params"]),
            "latency": f"{row['latency'] * 1e3:.3g} ms" if row.get("latency") else None,
        }
        for row in rows
    ]
    told = [key for key in shown[0] if any(row[key] is not None for row in shown)]
    best = max(range(len(rows)), key=lambda index: rows[index]["test"])
    said = (
        f"Within {contents.result['budget']}. Hand-made: DeiT's shape, with the MACs of the found network. Random: the "
        "best of the search's random ones. Bold: the best on test."
    )
    parts = [cards(values), table([{key: row[key] for key in told} for row in shown], best), text(said, quiet=True)]
    if "test_images" in contents.result:
        parts.append(text(accuracy_noise(contents.result), quiet=True))
    if missed := contents.result.get("missed"):
        parts.append(text(f"The found network may be outside the budget: {missed}."))
    height, width = contents.result["img_size"]
    drawn = {
        row["name"]: (drawing(Arch.from_dict(row["arch"]), (height, width)), f"{costs.short(row['macs'])} MACs")
        for row in rows
    }
    return Section("summary", "What was found", [*parts, *_side_by_side("The networks, to one scale", drawn)])


def _network(training: Training) -> Section:
    result, counted = training.result, _counted(training.arch, training)
    values = _costs(counted.macs, counted.params)
    if result:
        accuracies = {f"{part} top-1": percent(result[part]["accuracy"]["top1"]) for part in ("test", "validation")}
        values = {name.replace("validation", "search-validation"): v or "" for name, v in accuracies.items()} | values
    drawn = {training.arch.id: (drawing(training.arch, training.img_size), f"{costs.short(counted.macs)} MACs")}
    return Section("summary", "The network", [cards(values), *_side_by_side("", drawn)])


def _counted(arch: Arch, training: Training) -> Any:
    job = training.record["job"]
    return costs.cost(arch, img_size=training.img_size, num_classes=job["num_classes"], in_chans=job["in_chans"])


def _superformer(training: Training) -> Section | None:
    if not training.measured:
        return None
    last = training.measured[-1]
    values = {f"top-1 of the {name} network": percent(found["top1"]) or "" for name, found in last["accuracy"].items()}
    return Section("summary", f"After {last['epoch']:g} of {training.planned:g} epochs", [cards(values)])


def _found(contents: Contents) -> Section | None:
    """The best of the last search, and its network."""
    searches = searches_of(contents)
    if not searches:
        return None
    search = searches[-1]
    best = search.best()
    values = {
        f"{name}, with inherited weights" if name == "accuracy" else name: f"{v:.4g}" for name, v in best.scores.items()
    }
    values |= _costs(best.costs["macs"], best.costs["params"])
    if "latency" in best.costs:
        values["latency, predicted"] = f"{best.costs['latency'] * 1e3:.3g} ms"
    drawn = {best.arch.id: (drawing(best.arch, search.img_size), f"of {len(search.trials):,} candidates")}
    return Section("summary", "What was found", [cards(values), *_side_by_side("", drawn)])


def _runs(contents: Contents) -> Section:
    """Several runs in one folder, each in a line."""
    known = {training.name: training for training in contents.trainings}
    rows = []
    for name, record in contents.records.items():
        training, over = known.get(name), (contents.folder / name / "result.json").exists()
        test = training.result.get("test") if training is not None else None
        told = "finished" if over else "not finished" if training is None else _epochs(training)
        accuracy = percent(test["accuracy"]["top1"]) if test else ""
        rows.append({"run": name, "kind": record["kind"], "state": told, "test top-1": accuracy})
    return Section("summary", "The runs", [table(rows)])


def _side_by_side(title: str, drawn: dict[str, tuple[dict[str, Any], str]]) -> list[Part]:
    return [*([heading(title)] if title else []), drawings(drawn), text(_LEGEND, quiet=True)]


def _costs(macs: float, params: float) -> dict[str, str]:
    return {"MACs": costs.short(macs), "parameters": costs.short(params)}


def _duration(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {left} s"
