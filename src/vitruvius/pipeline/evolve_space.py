"""Searching the search space as one run (S3, Algorithm 1): a superformer a space, its scores, its E-T errors, the move.

A folder a space, in the run's own:

    run.json                  what was asked for
    space-0/space.yaml        the space, as `vitruvius spaces` reads it
    space-0/superformer/      the training run (`vitruvius train`)
    space-0/scored.jsonl      the scored architectures, a trial a line
    space-0/e-t.json          the table of E-T errors, with intervals
    space-0/moves.json        what Eq. 8 asked for, and what the space could hold of it
    space-0/searched.jsonl    the search's trials (of the last space, or of all), and search.json, its best
    space-1/...
    result.json               the E-T errors of all spaces, and the best network

Every step is a function of what the steps before wrote. What was killed goes on with the same command: the superformer
from its checkpoint, scores from the last one, and the rest is computed again to the same numbers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import PartialState
from rich.console import Console
from rich.progress import track

from vitruvius.arch import Arch, refuse
from vitruvius.costs import short
from vitruvius.data import Data
from vitruvius.evaluation import Outcome
from vitruvius.evaluation.accuracy import InheritedAccuracy
from vitruvius.files import alone_in, replace_file, write_json
from vitruvius.pipeline._scores import Scores
from vitruvius.pipeline.evolve_config import EvolveSpaceConfig
from vitruvius.pipeline.evolved import FOUND, MOVES, SCORED, SEARCHED, SPACE, TABLE, open_evolution, space_folder
from vitruvius.search import Domain, Trial, make_searcher
from vitruvius.search.space_evolution import Evolved, Sample, draw_sample, evolve, measure, resolve_steps
from vitruvius.spaces import Space
from vitruvius.superformer import Superformer
from vitruvius.training import Run, open_run, train
from vitruvius.training.jobs import load_space
from vitruvius.training.plan import Plan, make_plan
from vitruvius.training.run import FINAL, RECORD, RESULT, begin_folder, load_data, versions

__all__ = ["evolve_space", "plan_summary"]

VERSION = 1
SUPERFORMER = "superformer"
_FREE = ("versions", "config.device")


def evolve_space(
    config: EvolveSpaceConfig,
    out: str | Path,
    *,
    quiet: bool = False,
    after_each: Callable[[Path], object] | None = None,
) -> dict[str, Any]:
    """Evolves the configured space in a folder, from where an earlier call was cut off, and gives the run's result.

    after_each: is given the folder whenever another space has been measured (to draw what is there, say).
    """
    evolution = _Evolution(config, Path(out).resolve(), quiet, after_each)
    with alone_in(evolution.folder) if evolution.state.is_main_process else nullcontext():
        return evolution.run()


@dataclass(frozen=True)
class _Scale:
    """What architectures of a space are scored by, and what they cost."""

    domain: Domain
    evaluator: InheritedAccuracy


class _Evolution:
    def __init__(
        self, config: EvolveSpaceConfig, folder: Path, quiet: bool, after_each: Callable[[Path], object] | None
    ) -> None:
        self.config, self.folder, self.after_each = config, folder, after_each
        self.state = PartialState(cpu=config.device == "cpu")
        self.console = Console(quiet=quiet or not self.state.is_main_process)
        self.rules = config.rules
        self.first = load_space(config.superformer_config(config.space))
        config.check(self.first)
        self.steps = resolve_steps(self.first, self.rules.steps)

    def run(self) -> dict[str, Any]:
        if self.state.is_main_process:
            self._begin()
        self._wait_for(space_folder(self.folder, 0) / SPACE)
        if not (self.folder / RESULT).exists():
            last = self._spaces()
            if self.state.is_main_process:
                self._finish(last)
            self._wait_for(self.folder / RESULT)
        found: dict[str, Any] = json.loads((self.folder / RESULT).read_text())
        return found

    def _begin(self) -> None:
        config = self.config
        for unborn in self.folder.glob("*.partial"):  # killed while it wrote
            unborn.unlink()
        if not (self.folder / RECORD).exists():
            _plan_of(config, self.first)  # refuses now what would be refused after hours
        data = load_data(config.superformer_config(config.space))
        record = {
            "version": VERSION,
            "kind": "evolve-space",
            "config": config.model_dump(mode="json"),
            "data": data.summary(),
            "job": {"space": self.first.to_dict(), "steps": self.steps},
            "versions": versions(),
        }
        begin_folder(self.folder, record, _FREE)
        _write_space(space_folder(self.folder, 0), self.first)

    def _wait_for(self, path: Path) -> None:
        """Where several processes train, one does all else, which may take longer than a barrier's patience."""
        while not self.state.is_main_process and not path.exists():
            time.sleep(1)

    # -- the spaces ------------------------------------------------------------------------------------------------

    def _spaces(self) -> int:
        """Algorithm 1; the number of the last space."""
        for t in range(self.config.iterations + 1):
            place = space_folder(self.folder, t)
            space = Space.from_yaml(place / SPACE)
            self.say(f"[bold]space {t}[/] {space.name}: {space.networks:.3g} networks")
            run = self._train(t)
            if self.state.is_main_process and not (place / MOVES).exists():
                self._measure(t, space, run)
                if self.after_each is not None:
                    self.after_each(self.folder)
            self._wait_for(place / MOVES)
            moved = json.loads((place / MOVES).read_text())["moved"]
            if not moved:
                return t
        return self.config.iterations

    def _train(self, t: int) -> Run:
        """The superformer of a space (Algorithm 2)."""
        place = space_folder(self.folder, t)
        if (place / SUPERFORMER / RESULT).exists():
            return open_run(place / SUPERFORMER)
        before = space_folder(self.folder, t - 1) / SUPERFORMER / FINAL
        start = str(before) if t and self.config.warm_start else None
        config = self.config.superformer_config(str(place / SPACE), start)
        return train(config, place / SUPERFORMER, quiet=self.console.quiet)

    def _measure(self, t: int, space: Space, run: Run) -> None:
        """Scores, E-T errors, the move to the next space."""
        place, seed, scale = space_folder(self.folder, t), self.config.seed + t, self._scale(space, run)
        sample = draw_sample(scale.domain, self.rules, seed)
        scores = Scores(place / SCORED)
        made = ["drawn"] * sample.drawn + ["widening"] * (len(sample.archs) - sample.drawn)
        self._score(scale, scores, sample.archs, made, f"space {t}: scoring")
        errors = np.array([_error(scores[arch]) for arch in sample.archs])
        table = measure(scale.domain, sample, errors, self.steps, self.rules, seed)
        whole = table.whole
        self.say(
            f"  E-T error {whole.error:.2f} % ({whole.low:.2f} to {whole.high:.2f}): mean {whole.expected:.2f}, "
            f"best {whole.top} of {whole.count} {whole.top_tier:.2f}"
        )
        write_json(place / TABLE, table.to_dict())
        if self.config.search_every and t < self.config.iterations:
            self._search(t, space, run)
        if t == self.config.iterations:
            write_json(place / MOVES, {"moved": False, "moves": []})
            return
        evolved = evolve(scale.domain, table, self.rules, f"{self.first.name}-{t + 1}")
        self._say_moves(evolved)
        if evolved.moved:
            _write_space(space_folder(self.folder, t + 1), evolved.space)
        moves = [move.to_dict() for move in evolved.moves]
        write_json(place / MOVES, {"moved": evolved.moved, "moves": moves})

    def _say_moves(self, evolved: Evolved) -> None:
        for move in evolved.moves:
            if move.asked:
                note = f"  ({move.note})" if move.note else ""
                before, after = (", ".join(f"{choice:g}" for choice in side) for side in (move.before, move.after))
                self.say(f"  {move.dimension}: {{{before}}} to {{{after}}}, slope {move.slope:+.2f}{note}")
        if not evolved.moved:
            self.say("  no dimension moves: this is the last space")

    # -- scores ----------------------------------------------------------------------------------------------------

    def _scale(self, space: Space, run: Run) -> _Scale:
        scale = _scale_of(self.config, space, run.superformer(), run.data)
        scale.evaluator.place(self.config.device)
        return scale

    def _score(self, scale: _Scale, scores: Scores, archs: Sequence[Arch], made: Sequence[str], what: str) -> None:
        """Scores what has no score yet."""
        fresh: dict[Arch, str] = {}
        for arch, how in zip(archs, made, strict=True):
            if arch not in scores:
                fresh.setdefault(arch, how)
        shown: Iterable[tuple[Arch, str]] = fresh.items()
        if not self.console.quiet and self.console.is_terminal and len(fresh) > 1:
            shown = track(fresh.items(), f"  {what}", total=len(fresh), console=self.console, transient=True)
        for arch, how in shown:
            scores.add(self._trial(scale, arch, scale.evaluator.outcome(arch), how))

    def _trial(self, scale: _Scale, arch: Arch, outcome: Outcome, made: str) -> Trial:
        return Trial(
            arch=arch,
            scores=outcome.scores,
            costs={name: float(value[0]) for name, value in scale.domain.costs([arch]).items()},
            made=made,
            seed=self.config.seed,
            split=scale.evaluator.split,
            seconds=outcome.seconds,
            state="complete" if outcome.complete else "failed",
            reason=outcome.reason,
        )

    # -- the search ------------------------------------------------------------------------------------------------

    def _search(self, t: int, space: Space, run: Run) -> None:
        """Evolution within the budget (Algorithm 3). It proposes the same again; what has a score keeps it."""
        place = space_folder(self.folder, t)
        if (place / FOUND).exists():
            return
        scale = self._scale(space, run)
        searcher = make_searcher("evolution", scale.domain, seed=self.config.seed, settings=self.config.search)
        scores = Scores(place / SEARCHED, known=Scores(place / SCORED))
        told = 0
        while not searcher.done:
            archs = searcher.ask()
            if not archs:
                break
            origins = [searcher.origin(arch) for arch in archs]
            self._score(scale, scores, archs, [origin.made for origin in origins], f"space {t}: searching, {told}")
            searcher.tell([scores[arch] for arch in archs])
            told += len(archs)
        best = searcher.best()
        if best is None:
            refuse("no architecture of the search could be scored", str(place), "see the reasons in its trials")
        found = {**best.to_dict(), "networks": told}
        self.say(f"  best of {told}: {best.value('accuracy'):.2f} %, {_costs(best)}")
        write_json(place / FOUND, found)

    def _finish(self, last: int) -> None:
        place = space_folder(self.folder, last)
        self._search(last, Space.from_yaml(place / SPACE), open_run(place / SUPERFORMER))
        spaces = []
        for each in open_evolution(self.folder):
            assert each.table is not None
            found = each.best and {key: each.best.to_dict()[key] for key in ("id", "scores", "costs")}
            row = {"space": each.space.name, "folder": each.folder.name, "e_t_error": asdict(each.table.whole)}
            spaces.append({**row, "best": found})
        best = json.loads((place / FOUND).read_text())
        write_json(self.folder / RESULT, {"spaces": spaces, "last": place.name, "best": best})

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)


def _error(trial: Trial) -> float:
    return 100 - trial.value("accuracy") if trial.complete else float("nan")


def _costs(trial: Trial) -> str:
    return ", ".join(f"{name} {short(value)}" for name, value in trial.costs.items())


def _scale_of(config: EvolveSpaceConfig, space: Space, superformer: Superformer, data: Data) -> _Scale:
    counting: dict[str, Any] = {
        "img_size": superformer.img_size,
        "num_classes": superformer.num_classes,
        "in_chans": superformer.in_chans,
    }
    evaluator = InheritedAccuracy(superformer, data.search, images=config.images, seed=config.seed)
    return _Scale(Domain(space, config.budget, **counting), evaluator)


def _write_space(folder: Path, space: Space) -> None:
    """The same file again is the same space, and keeps what stands beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / SPACE, lambda partial: partial.write_text(space.to_yaml()))


def _plan_of(config: EvolveSpaceConfig, space: Space) -> tuple[Plan, _Scale, Sample]:
    """The first space's superformer, before it is trained, and what it will be asked for."""
    plan = make_plan(config.superformer_config(config.space))
    model = plan.job.model
    assert isinstance(model, Superformer)
    scale = _scale_of(config, space, model, plan.data)
    return plan, scale, draw_sample(scale.domain, config.rules, config.seed)


def plan_summary(config: EvolveSpaceConfig) -> dict[str, Any]:
    """What a run comes to, before anything long starts: of the first space, as the others are not known yet."""
    space = load_space(config.superformer_config(config.space))
    config.check(space)
    plan, scale, sample = _plan_of(config, space)
    steps = resolve_steps(space, config.steps)
    settings = make_searcher("evolution", scale.domain, settings=config.search).record()
    return {
        "kind": "evolve-space",
        "recipe": config.recipe or "none",
        "space": f"{space.name}: {space.networks:.3g} networks, {len(steps)} dimensions that move",
        "budget": str(scale.domain.budget or "none"),
        "iterations": f"{config.iterations} moves, {config.iterations + 1} superformers",
        "scored": f"{len(sample.archs):,} networks a space, of which {len(sample.archs) - sample.drawn:,} widen "
        f"thin subspaces; {scale.evaluator.images:,} images each",
        "searched": f"{settings['generations']} generations in {'every space' if config.search_every else 'the last'}",
        "steps": ", ".join(f"{name} {step:g}" for name, step in steps.items()),
        **{f"superformer: {name}": value for name, value in plan.summary().items() if name != "kind"},
    }
