"""`vitruvius search | trials` as a user types them; bad input is one line, and begins nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import Command
from vitruvius import Arch, costs, spaces
from vitruvius.costs.latency import Measured, Predictor, Setting, Timing, Verified, build_predictor
from vitruvius.pipeline.search import open_search
from vitruvius.training.run import arch_of_run

SPACE = spaces.load("vitas-nano", img_size=8, patch=4)
FEW = ("-s", "initial=8", "-s", "generations=2", "-s", "mutations=3", "-s", "crossovers=3", "-s", "device=cpu")


def test_a_search_its_trials_and_again(command: Command, superformer_run: Path) -> None:
    words = ("search", "--superformer", superformer_run, "--budget", "macs<=300k", *FEW, "--out", "runs/search")
    code, out, err = command(*words)
    assert code == 0
    assert "best of 14 (0 failed): vit-" in out
    assert "generation 1  best accuracy" in err
    assert "candidates a minute" in err
    run = open_search("runs/search")
    assert len(run.trials) == 14
    for trial in run.trials:
        counted = costs.cost(trial.arch, img_size=8, num_classes=10, in_chans=1)
        assert (trial.costs["macs"], trial.costs["params"]) == (counted.macs, counted.params)
        assert counted.macs <= 300e3
        assert trial.split == "ac56c39e7ddfa94d"
        assert trial.seconds > 0
    best = max(run.trials, key=lambda trial: (trial.scores["accuracy"], -trial.number))
    assert run.best() == best.arch == arch_of_run("runs/search")
    before = Path("runs/search/study.log").read_bytes()
    code, out, err = command(*words)  # nothing is left to do
    assert (code, err) == (0, "")
    assert f"best of 14 (0 failed): {best.arch.id}" in out
    assert Path("runs/search/study.log").read_bytes() == before
    code, out, _ = command("trials", "runs/search", "--json")
    listed = json.loads(out)
    assert [each["number"] for each in listed] == list(range(14))
    assert listed[best.number]["id"] == best.arch.id
    assert best.arch.id in command("trials", "runs/search", "--top", "3")[1]
    assert command("trials", "runs/search", "--failed")[1].strip() == "no failed trials"


def test_several_objectives_and_the_front(command: Command, superformer_run: Path) -> None:
    many = ("--searcher", "nsga2", "--objectives", "accuracy,macs", "-s", "population=12", "-s", "generations=3")
    code, out, err = command("search", "--superformer", superformer_run, *many, "--out", "front")
    assert code == 0
    assert "hypervolume" in out
    assert "hypervolume" in err
    found = json.loads(command("trials", "front", "--pareto", "--json")[1])
    values = np.array([[-each["scores"]["accuracy"], each["costs"]["macs"]] for each in found])
    for one in values:
        assert not ((values <= one).all(axis=1) & (values < one).any(axis=1)).any()
    everyone = open_search("front").trials
    assert len(everyone) == 36
    for trial in everyone:
        point = np.array([-trial.scores["accuracy"], trial.costs["macs"]])
        assert (values <= point).all(axis=1).any()
    result = json.loads(Path("front/result.json").read_text())
    assert [each["number"] for each in result["front"]] == [each["number"] for each in found]


def test_a_file_of_settings_and_two_equal_runs(command: Command, superformer_run: Path) -> None:
    Path("mine.yaml").write_text(
        f"superformer: {superformer_run}\nrecipe: vitas-search\npopulation: 8\ngenerations: 2\nparents: 4\n"
        "mutations: 4\nshares: [0.5, 1.0]\nobjectives: [accuracy]\nseed: 5\nstorage: sqlite:///studies.db\n"
    )
    code, out, _ = command("search", "mine.yaml", "--dry-run")
    assert code == 0
    assert "50% going on" in out
    assert not Path("studies.db").exists()
    assert command("search", "mine.yaml", "--out", "a")[0] == 0
    assert command("search", "mine.yaml", "-s", "study=other", "--out", "b")[0] == 0

    def kept(folder: str) -> list[dict[str, Any]]:
        return [{**trial.to_dict(), "seconds": 0} for trial in open_search(folder).trials]

    assert kept("a") == kept("b")
    assert len(kept("a")) == 16
    code, _, err = command("search", "mine.yaml", "--seed", "6", "--out", "c")
    assert code == 2
    assert "study 'search' was begun with another seed; got '6'; allowed: 5" in err


def test_without_a_superformer(command: Command) -> None:
    mixture = ("--objectives", "mixture", "-s", "weights={dss: 1, params: 0.5}", "-s", "reference=6")
    words = ("--space", "vitas-nano", "-s", "img_size=8", "-s", "in_chans=1", "-s", "num_classes=10", *FEW)
    code, _, err = command("search", *words, *mixture, "--out", "mixed")
    assert code == 0, err
    for trial in open_search("mixed").trials:
        assert {"mixture", "dss", "params"} <= set(trial.scores)
        assert trial.split is None


def test_on_ray_it_is_the_same(command: Command, superformer_run: Path) -> None:
    pytest.importorskip("ray")
    words = ("search", "--superformer", superformer_run, *FEW)
    assert command(*words, "--out", "here")[0] == 0
    code, _, err = command(*words, "--executor", "ray", "--workers", "1", "--out", "there")
    assert code == 0, err
    here, there = (open_search(folder) for folder in ("here", "there"))
    assert [{**t.to_dict(), "seconds": 0} for t in here.trials] == [{**t.to_dict(), "seconds": 0} for t in there.trials]
    assert here.result == there.result


def fake_measuring(works: Any, setting: Setting, **options: Any) -> list[Any]:
    """Parts take a tenth of a millisecond; so whole networks are told by their depth."""
    from vitruvius.costs import latency

    found = []
    for work in works:
        seconds = 1e-4 * (1 + 2 * work.arch.depth) if isinstance(work, latency.Network) else 1e-4
        found.append(latency.Measured(work.name, setting.batch, latency.Timing.of([seconds] * 3), 100, 10))
    return found


def test_latency_as_budget_and_objective(command: Command, superformer_run: Path) -> None:
    """With a predictor given; and the winner is measured for real."""
    setting = Setting(img_size=8, num_classes=10, in_chans=1)
    build_predictor(SPACE, setting, measuring=fake_measuring, say=lambda report: None).save("latency.json")
    few = ("-s", "latency=latency.json", "--searcher", "nsga2", "-s", "population=8", "-s", "generations=2")
    words = ("search", "--superformer", superformer_run, *few, "--objectives", "accuracy,latency")
    code, out, _ = command(*words, "--budget", "latency: 0.2ms..100ms, macs <= 400k, throughput >= 1", "--out", "run")
    assert code == 0
    assert "predicted)" in out
    run = open_search("run")
    assert {"latency", "throughput", "memory", "macs", "params"} <= set(run.trials[0].costs)
    assert run.measured is not None
    inside = [each["id"] for each in run.measured["tried"] if each["inside"]]
    assert run.measured["winner"] == (inside[0] if inside else None)
    if inside:
        assert run.best().id == arch_of_run("run").id == inside[0]
    assert bool(run.missed) != bool(inside)
    code, _, err = command(*words, "--budget", "latency<=1us", "--out", "none")
    assert code == 2
    assert "no network of" in err
    assert "allowed: within latency" in err


def test_a_budget_that_nothing_meets_when_measured_is_said(
    command: Command, superformer_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = Setting(img_size=8, num_classes=10, in_chans=1)
    build_predictor(SPACE, setting, measuring=fake_measuring, say=lambda report: None).save("latency.json")

    def slow(self: Predictor, arch: Arch, **options: Any) -> list[Any]:
        timed = Measured(arch.id, 1, Timing.of([1.0] * 3), 100, 10)
        predicted = {name: values[0] for name, values in self([arch]).items()}
        return [Verified(arch, predicted, timed)]

    monkeypatch.setattr(Predictor, "verify", slow)
    threads = torch.get_num_threads()
    few = ("-s", "latency=latency.json", *FEW, "--budget", "latency <= 100ms", "-s", "threads=1")
    code, out, err = command("search", "--superformer", superformer_run, *few, "--out", "run")
    assert code == 0, err
    assert "best is within the budget when measured" in out
    run = open_search("run")
    assert run.missed.startswith("none of the ")
    assert run.best() == max(run.trials, key=lambda trial: (trial.scores["accuracy"], -trial.number)).arch
    assert torch.get_num_threads() == threads


def test_an_impossible_latency_is_refused_before_anything_is_timed(command: Command) -> None:
    words = ("--space", "vitas-nano", "-s", "img_size=8", "--objectives", "dss", "--out", "run")
    code, _, err = command("search", *words, "--budget", "latency<=1us")
    assert code == 2
    assert "comes near the latency of the budget" in err
    assert "allowed: from about" in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ((), "a search needs a space"),
        (("--space", "vitas-nan"), "did you mean 'vitas-nano'"),
        (("--space", "vitas-nano"), "inherited accuracy needs a superformer"),
        (("--space", "vitas-nano", "--objectives", "macs"), "a search needs a score beside costs"),
        (("--space", "vitas-nano", "--objectives", "dsss"), "did you mean 'dss'"),
        (("--space", "vitas-nano", "--objectives", "mixture"), "'mixture' needs weights"),
        (("--space", "vitas-nano", "--objectives", "dss", "-s", "weights={dss: 1}"), "weights are of the objective"),
        (("--space", "vitas-nano", "--objectives", "dss", "--searcher", "nsga3"), "did you mean 'nsga2'"),
        (("--space", "vitas-nano", "--objectives", "dss", "-s", "populaton=3"), "unknown key of a search"),
        (("--space", "vitas-nano", "--objectives", "dss", "--recipe", "s3-superformer"), "of another kind"),
        (("--space", "vitas-nano", "--objectives", "dss,macs"), "evolution has one objective"),
        (("--space", "s3", "--objectives", "dss", "--budget", "macs<=1M"), "allowed: 4.603G..18.83G"),
        (("--space", "s3", "--objectives", "dss", "--budget", "macs<=1 apple"), "macs is not in 'apple'"),
        (("--space", "vitas-nano", "--objectives", "dss", "--executor", "slurm"), "executor"),
        (("--superformer", "nowhere"), "cannot be read"),
        (("nowhere.yaml",), "nowhere.yaml"),
    ],
)
def test_bad_input_is_one_line(command: Command, words: tuple[str, ...], rule: str) -> None:
    code, out, err = command("search", *words, "--out", "run")
    assert code == 2
    assert rule in err
    assert len(err.strip().splitlines()) == 1
    assert not out
    assert not Path("run").exists()


def test_other_folders_are_no_searches(command: Command, superformer_run: Path) -> None:
    for words, rule in (
        (("trials", superformer_run), "of another kind"),
        (("trials", "nowhere"), "cannot be read"),
        (("search", "--superformer", superformer_run), "a run needs a folder"),
        (("search", "--superformer", superformer_run, "--space", "s3-nano", "--out", "x"), "of another space"),
    ):
        code, _, err = command(*words)
        assert code == 2
        assert rule in err
        assert len(err.strip().splitlines()) == 1
