"""The whole journey: images and a budget in, a trained and exported network out, every phase in a run folder.

    run.json        what was asked for, and everything that was chosen
    superformer/    its training run; or evolve/, S3's runs of space after space
    search/         the search's record
    found/          the found network's training run, and handmade/ and random/, of what it is compared with
    analysis/       what the report shows beside the logs
    export/         the found network for others
    result.json     the table at the end

Each is what the command of its own writes (`vitruvius train`, `search`, `retrain`, `export`), and is taken up where it
was left.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from vitruvius import costs
from vitruvius.arch import Arch, refuse
from vitruvius.costs import Budget, written
from vitruvius.costs.latency import Setting, measure
from vitruvius.data import load
from vitruvius.extras import needs_of, require_extra
from vitruvius.files import alone_in, write_json
from vitruvius.pipeline._choices import Choices, choose, load_space
from vitruvius.pipeline._journey_config import PHASES, JourneyConfig, Phase, read_journey_config
from vitruvius.pipeline._scores import read_trials
from vitruvius.pipeline.attention import attention_summary
from vitruvius.pipeline.evolve_config import EvolveSpaceConfig, read_evolve_config
from vitruvius.pipeline.evolve_space import evolve_space
from vitruvius.pipeline.evolved import SCORED, SEARCHED
from vitruvius.pipeline.handmade import hand_made, patch_for
from vitruvius.pipeline.search import SearchConfig, open_search, read_search_config, search
from vitruvius.search import Domain, Trial
from vitruvius.spaces import Space
from vitruvius.training import RetrainConfig, SuperformerConfig, open_run, read_config, train
from vitruvius.training.run import RECORD, RESULT, begin_folder, read_record, versions

__all__ = ["PHASES", "Journey", "JourneyConfig", "Phase", "read_journey_config"]

VERSION = 1
TIMES = "times.json"
_FREE = (
    *("versions", "command", "config.device"),
    *("config.data", "config.root", "data.source", "data.notes"),
)
"""What may differ when a journey goes on: the machine, and by what path the same images (by their hash) are found."""
_NETWORKS = {"found": "found", "hand-made": "handmade", "random": "random"}


class Journey:
    """A journey in a folder, begun or going on."""

    def __init__(self, config: JourneyConfig, out: str | Path, *, quiet: bool = False) -> None:
        self.config, self.folder, self.quiet = config, Path(out), quiet
        self.console = Console(quiet=quiet)
        self.data = load(
            config.data, val=config.val, split_seed=config.split_seed, in_chans=config.in_chans, root=config.root
        )
        self.choices = self._choices()
        self._check()

    def _choices(self) -> Choices:
        """Those of the record, where the run was begun: another version may choose otherwise."""
        if (self.folder / RECORD).exists():
            job = read_record(self.folder)["job"]
            if set(job) == set(Choices.__dataclass_fields__):
                return Choices(**job)
        return choose(self.config, self.data)

    def _check(self) -> None:
        """Refuses what the phases would refuse, before the first of them starts."""
        if self.choices.superformer is not None:
            self.superformer_config()
        if self.choices.evolve is not None:
            self.evolve_config()
        self.search_settings()
        space = load_space(self.choices.space)
        self.retrain_config(space.smallest)
        if self.config.onnx:
            require_extra("onnx", "export to ONNX")
        budget = Budget.of(self.choices.budget)
        Domain(space, budget.counted, **self.counting())  # refuses what no network can meet
        if not (self.folder / RECORD).exists():
            self._check_latency(budget, space)

    def _check_latency(self, budget: Budget, space: Space) -> None:
        """The smallest network is timed, as a superformer would be trained before the search finds that out."""
        for metric, _, high in budget.ends:
            if metric == "latency":
                (timed,) = measure([space.smallest], Setting.from_dict(self.choices.latency))
                if timed.latency > high:
                    rule = f"even the smallest network of space {space.name!r} takes {written(metric, timed.latency)}"
                    refuse(rule, str(budget), "more time, another space or another img_size")

    # -- the phases' configurations --------------------------------------------------------------------------------

    def superformer_config(self) -> SuperformerConfig:
        assert self.choices.superformer is not None
        return read_config(SuperformerConfig, {**self.choices.superformer, **self.choices.space, **self._device})

    def evolve_config(self) -> EvolveSpaceConfig:
        assert self.choices.evolve is not None
        options = {"space_options": self.choices.space.get("space_options", {})}
        superformer = {**self.choices.evolve.get("superformer", {}), **options}
        return read_evolve_config(
            {**self.choices.evolve, "space": self.choices.space["space"], "superformer": superformer, **self._device}
        )

    def search_settings(self) -> SearchConfig:
        where = {"superformer": str(self.folder / "superformer")}
        if self.choices.superformer is None:
            where = self.choices.space
        return read_search_config({**self.choices.search, **where, **self._device})

    def retrain_config(self, arch: Arch) -> RetrainConfig:
        return read_config(RetrainConfig, {**self.choices.retrain, "arch": arch.to_json(), **self._device})

    @property
    def _device(self) -> dict[str, str]:
        """As this call says, and not the one that began the run."""
        return {} if self.config.device is None else {"device": self.config.device}

    # -- running ---------------------------------------------------------------------------------------------------

    def run(self, only: Phase | None = None) -> dict[str, Any]:
        """Every phase that is not done, or only one; what is known at the end."""
        with alone_in(self.folder):
            self._run(only)
        return self.result

    def _run(self, only: Phase | None) -> None:
        record = {
            "version": VERSION,
            "kind": "run",
            "config": self.config.model_dump(mode="json"),
            "data": self.data.summary(),
            "job": asdict(self.choices),
            "versions": versions(),
        }
        begin_folder(self.folder, record | {"command": ["vitruvius", *sys.argv[1:]]}, _FREE)
        phases: dict[Phase, Callable[[], None]] = {
            "superformer": self._superformer,
            "search": self._search,
            "retrain": self._retrain,
            "analysis": self._analysis,
            "export": self._export,
        }
        for number, (phase, work) in enumerate(phases.items(), start=1):
            if only not in (None, phase):
                continue
            done = only is None and self._done(phase)
            self.console.rule(f"[bold]{number}/{len(phases)} {phase}[/]{': done' if done else ''}", align="left")
            if not done:
                with self._timed(phase):
                    work()
        if self._done("retrain"):
            write_json(self.folder / RESULT, self._result())

    @property
    def result(self) -> dict[str, Any]:
        file = self.folder / RESULT
        return json.loads(file.read_text()) if file.exists() else {}

    def _done(self, phase: Phase) -> bool:
        """Whether a phase has been gone through."""
        match phase:
            case "superformer":
                return (self.folder / ("superformer" if self.choices.evolve is None else "evolve") / RESULT).exists()
            case "search":
                return self._searched
            case "retrain":
                return self._searched and all((self.folder / name / RESULT).exists() for name in self.compared())
            case "analysis":
                return (self.folder / "analysis" / "measured.json").exists()
            case "export":
                return (self.folder / "export" / "arch.json").exists()

    @contextmanager
    def _timed(self, phase: Phase) -> Iterator[None]:
        """Adds to what a phase has taken, over however many calls: by the clock, and of processors."""
        start = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            times = self._times()
            for spent, begun, now in zip(times, start, (time.perf_counter(), time.process_time()), strict=True):
                times[spent][phase] = round(times[spent].get(phase, 0.0) + now - begun, 1)
            write_json(self.folder / TIMES, times)

    def _times(self) -> dict[str, dict[str, float]]:
        file = self.folder / TIMES
        return json.loads(file.read_text()) if file.exists() else {"seconds": {}, "cpu_seconds": {}}

    def _superformer(self) -> None:
        if self.choices.evolve is not None:
            evolve_space(self.evolve_config(), self.folder / "evolve", quiet=self.quiet)
        elif self.choices.superformer is not None:
            train(self.superformer_config(), self.folder / "superformer", quiet=self.quiet)
        else:
            self.console.print("this method scores networks without training one first")

    def _search(self) -> None:
        if self.choices.evolve is not None:
            return  # done in the last space, with the phase before
        self._require("superformer", self.choices.superformer is None)
        found = search(self.search_settings(), self.folder / "search", quiet=self.quiet)
        for line in found.lines():
            self.console.print(line, highlight=False, soft_wrap=True)

    def _retrain(self) -> None:
        for name, arch in self.networks().items():
            self.console.print(f"[bold]{name}[/] {arch.id}", highlight=False)
            train(self.retrain_config(arch), self.folder / _NETWORKS[name], quiet=self.quiet)

    def _analysis(self) -> None:
        networks = self.networks()
        run = open_run(self.folder / "found")
        write_json(self.folder / "analysis" / "attention.json", attention_summary(run.model(), run.data.search))
        setting = Setting.from_dict(self.choices.latency)
        timed = measure(list(networks.values()), setting)
        found = {name: each.latency for name, each in zip(networks, timed, strict=True)}
        write_json(self.folder / "analysis" / "measured.json", {"setting": str(setting), "latency": found})

    def _export(self) -> None:
        from vitruvius.export import export_run

        self._require("found")
        export_run(self.folder / "found", self.folder / "export", onnx=self.exports_onnx)
        self.console.print(f"in {self.folder / 'export'}", highlight=False)

    @property
    def exports_onnx(self) -> bool:
        wanted = self.config.onnx
        return all(need.met for need in needs_of("onnx")) if wanted is None else wanted

    @property
    def _searched(self) -> bool:
        place = "search" if self.choices.evolve is None else "evolve"
        return (self.folder / place / RESULT).exists()

    def _require(self, name: str, waived: bool = False) -> None:
        if not waived and not (self.folder / name / RESULT).exists():
            refuse(f"this phase needs what the one before makes ({name})", str(self.folder), "the phase before, first")

    # -- what was found, and what it is compared with --------------------------------------------------------------

    def networks(self) -> dict[str, Arch]:
        """The found network first; then, if asked for, the hand-made one of its cost and the best random one."""
        found = self._found()
        if not self.config.compare:
            return {"found": found}
        counting = self.counting()
        rival = hand_made(costs.macs(found, **counting), patch=patch_for(found, self.choices.img_size), **counting)
        networks = {"found": found, "hand-made": rival}
        random = self._best_random()
        if random is not None and random.arch != found:
            networks["random"] = random.arch
        return networks

    def compared(self) -> list[str]:
        return [_NETWORKS[name] for name in self.networks()]

    def _found(self) -> Arch:
        if self.choices.evolve is None:
            self._require("search")
            return open_search(self.folder / "search").best()
        self._require("evolve")
        return Arch.from_dict(json.loads((self.folder / "evolve" / RESULT).read_text())["best"]["arch"])

    def trials(self) -> list[Trial]:
        """All candidates of the search."""
        if self.choices.evolve is None:
            return open_search(self.folder / "search").trials
        last = self.folder / "evolve" / json.loads((self.folder / "evolve" / RESULT).read_text())["last"]
        return [*read_trials(last / SCORED), *read_trials(last / SEARCHED)]

    def _best_random(self) -> Trial | None:
        """The best of the search's random candidates; where all are random, the first, which nobody chose."""
        complete = [trial for trial in self.trials() if trial.complete]
        drawn = [trial for trial in complete if trial.made == "random"]
        if len(drawn) == len(complete):
            return drawn[0] if drawn else None
        return max(drawn, key=lambda trial: next(iter(trial.scores.values())), default=None)

    def counting(self) -> dict[str, Any]:
        """What costs are counted with."""
        return {
            "img_size": self.choices.img_size,
            "num_classes": len(self.data.search.classes),
            "in_chans": self.data.search.in_chans,
        }

    def _result(self) -> dict[str, Any]:
        """The table at the end."""
        inherited = {trial.arch: trial.scores.get("accuracy") for trial in self.trials() if trial.complete}
        measured = self.folder / "analysis" / "measured.json"
        latency = json.loads(measured.read_text())["latency"] if measured.exists() else {}
        rows = []
        for name, arch in self.networks().items():
            run = open_run(self.folder / _NETWORKS[name])
            total = costs.cost(arch, **self.counting())
            rows.append(
                {
                    "name": name,
                    "arch": arch.to_dict(),
                    "params": total.params,
                    "macs": total.macs,
                    "latency": latency.get(name),
                    "inherited": inherited.get(arch),
                    "validation": run.result["validation"]["accuracy"]["top1"],
                    "test": run.result["test"]["accuracy"]["top1"],
                }
            )
        size = [self.choices.img_size] * 2
        random = self._best_random() if self.config.compare else None
        missed = open_search(self.folder / "search").missed if self.choices.evolve is None else ""
        return {
            "rows": rows,
            **self._times(),
            "img_size": size,
            "budget": self.choices.budget,
            "missed": missed,
            "test_images": self.data.summary()["test"],
            "random_is_found": random is not None and random.arch == self._found(),
        }
