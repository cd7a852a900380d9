"""The searches of a run folder: what each has evaluated, whichever command evaluated it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vitruvius.arch import Arch, ImageSize
from vitruvius.pipeline.search import JOURNAL, open_search
from vitruvius.report._read import Contents, read_json, read_lines
from vitruvius.search import Objective, Trial
from vitruvius.training.run import RECORD

__all__ = ["Candidates", "inherited_accuracies", "searches_of"]


@dataclass(frozen=True, slots=True)
class Candidates:
    """What a search has proposed, in that order."""

    name: str
    """Its folder within the report's; empty for that itself."""
    space: str
    trials: list[Trial]
    objectives: tuple[Objective, ...]
    img_size: ImageSize
    finished: bool
    found: Trial | None = None
    """What it gave as its best, at its end: where latency counts, the best that met the budget when measured."""

    @property
    def complete(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.complete]

    def best(self) -> Trial:
        """What it found; so far, by the first objective, where it goes on."""
        if self.found is not None:
            return self.found
        first = self.objectives[0]
        return (max if first.maximise else min)(self.complete, key=lambda trial: trial.value(first.name))


def searches_of(contents: Contents) -> list[Candidates]:
    """Those with a candidate that could be evaluated."""
    found = []
    for name, record in contents.records.items():
        folder = contents.folder / name
        if record.get("kind") == "search":
            found.append(_search(name, folder))
        elif record.get("kind") == "evolve-space":
            found += [_last_search(contents, file) for file in sorted(folder.glob("space-*/searched.jsonl"))]
    return [each for each in found if each.complete]


def _search(name: str, folder: Path) -> Candidates:
    run = open_search(folder)
    height, width = run.record["job"]["img_size"]
    begun = run.config.storage is not None or (folder / JOURNAL).exists()
    trials = run.trials if begun else []
    best = run.result["best"] if run.finished else None
    found = None if best is None else next((trial for trial in trials if trial.arch.id == best["id"]), None)
    return Candidates(name, run.space.name, trials, run.objectives, (height, width), run.finished, found)


def _last_search(contents: Contents, file: Path) -> Candidates:
    """The search in a space of `vitruvius evolve-space`: its new candidates, and those that the errors needed."""
    place = file.parent
    training = read_json(place / "superformer" / RECORD)
    size = training["job"]["img_size"]
    found = read_json(place / "search.json") if (place / "search.json").exists() else None
    return Candidates(
        str(place.relative_to(contents.folder)),
        training["job"]["space"]["name"],
        [Trial.from_dict(line) for line in [*read_lines(place / "scored.jsonl"), *read_lines(file)]],
        (Objective.of("accuracy"),),
        size if isinstance(size, int) else (size[0], size[1]),
        found is not None,
        None if found is None else Trial.from_dict({key: found[key] for key in found if key != "networks"}),
    )


def inherited_accuracies(contents: Contents) -> dict[Arch, float]:
    """Of all networks that a search has seen, with a superformer's weights; the last one's word counts."""
    return {
        trial.arch: trial.scores["accuracy"]
        for search in searches_of(contents)
        for trial in search.complete
        if "accuracy" in trial.scores
    }
