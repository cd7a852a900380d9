"""Algorithm 1 as a run: what it leaves, that it can be killed anywhere, and the command as a user types it."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from conftest import Command
from pipeline.evolve_worker import work
from vitruvius import Superformer, costs
from vitruvius.pipeline import evolve_space as module
from vitruvius.pipeline._scores import Scores
from vitruvius.pipeline.evolve_config import EvolveSpaceConfig, read_evolve_config
from vitruvius.pipeline.evolve_space import evolve_space
from vitruvius.pipeline.evolved import open_evolution
from vitruvius.search.space_evolution import e_t_error
from vitruvius.superformer import carry
from vitruvius.training import open_run
from vitruvius.training.loop import Loop
from vitruvius.training.plan import make_plan

TRAINING: dict[str, Any] = {
    "data": "digits",
    "space_options": {"img_size": 8, "patch": 2},
    "val": 0.5,
    "epochs": 1,
    "batch_size": 64,
    "warmup_epochs": 0.5,
    "lr": 2e-3,
    "crop": "padded",
    "validate_every": 10,
    "checkpoint_every": 5,
}
TINY: dict[str, Any] = {
    "space": "s3-nano",
    "superformer": TRAINING,
    "budget": "macs <= 1.5M",
    "device": "cpu",
    "iterations": 1,
    "archs": 16,
    "top": 4,
    "least": 4,
    "tau": 0.5,
    "most_steps": 1,
    "resamples": 20,
    "images": 100,
    "search": {"initial": 4, "generations": 2, "parents": 3, "mutations": 3, "crossovers": 2},
    "search_every": True,
}
UNTIMED = ("space.yaml", "e-t.json", "moves.json", "final/model.safetensors", "log.jsonl")
"""Of files that hold no times."""


def tiny(**settings: Any) -> EvolveSpaceConfig:
    return read_evolve_config(TINY | settings)


def left(folder: Path) -> dict[str, Any]:
    """What a run leaves, but for the clock's."""
    found: dict[str, Any] = {}
    for file in sorted(folder.rglob("*")):
        name = str(file.relative_to(folder))
        if name.endswith(UNTIMED):
            found[name] = file.read_bytes()
        elif file.name in ("scored.jsonl", "searched.jsonl"):
            found[name] = [json.loads(line) | {"seconds": 0} for line in file.read_text().splitlines()]
        elif file.name == "search.json":
            found[name] = json.loads(file.read_text()) | {"seconds": 0}
    result = json.loads((folder / "result.json").read_text())
    return found | {"result": result | {"best": result["best"] | {"seconds": 0}}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was never stopped."""
    folder = tmp_path_factory.mktemp("evolution") / "whole"
    evolve_space(tiny(), folder, quiet=True)
    return folder


# -- what it leaves ----------------------------------------------------------------------------------------------------


def test_it_leaves_every_space_with_its_superformer_scores_table_and_best(whole: Path) -> None:
    first, last = open_evolution(whole)
    assert (first.space.name, last.space.name) == ("s3-nano", "s3-nano-1")
    assert first.space != last.space
    for each in (first, last):
        assert open_run(each.folder / "superformer").superformer().space == each.space
        assert each.table is not None
        assert each.table.space == each.space.name
        assert each.best is not None
        assert each.best.costs["macs"] <= 1.5e6
        for trial in each.scored:
            assert each.space.contains(trial.arch)
            assert trial.costs["macs"] == costs.macs(trial.arch, img_size=8, num_classes=10, in_chans=1) <= 1.5e6
    assert last.moves == ()
    assert {move.dimension: move.after for move in first.moves} == {
        move.dimension: tuple(last.space.dimensions[move.dimension]) for move in first.moves
    }
    result = json.loads((whole / "result.json").read_text())
    assert result["last"] == "space-1"
    assert [row["space"] for row in result["spaces"]] == ["s3-nano", "s3-nano-1"]
    assert result["best"]["id"] == last.best.arch.id  # type: ignore[union-attr]


def test_the_table_is_of_the_scores_beside_it(whole: Path) -> None:
    """Eq. 5 once more, from the files alone."""
    for each in open_evolution(whole):
        assert each.table is not None
        errors = np.array([100 - trial.value("accuracy") for trial in each.drawn])
        assert len(errors) == 16
        assert each.table.whole.error == pytest.approx(e_t_error(errors, 4))
        assert each.table.whole.expected == pytest.approx(errors.mean())
        assert each.table.whole.top_tier == pytest.approx(np.sort(errors)[:4].mean())
        by_depth = [len(trial.arch.stages[0].blocks) for trial in each.drawn]
        for subspace in each.table["stage1.depth"].subspaces:
            found = errors[[depth == subspace.choice for depth in by_depth]]
            assert subspace.measured is not None
            assert subspace.measured.count == len(found) + subspace.widened
            if not subspace.widened:
                assert subspace.measured.expected == pytest.approx(found.mean())


def test_a_finished_run_is_read_and_another_configuration_is_refused(whole: Path) -> None:
    before = left(whole)
    assert evolve_space(tiny(), whole, quiet=True) == before["result"] | {
        "best": json.loads((whole / "result.json").read_text())["best"]
    }
    assert left(whole) == before
    with pytest.raises(ValueError, match="begun with another tau"):
        evolve_space(tiny(tau=0.4), whole, quiet=True)
    with pytest.raises(ValueError, match="another kind"):
        open_evolution(whole / "space-0" / "superformer")


def test_a_space_that_does_not_move_is_the_last(tmp_path: Path) -> None:
    told: list[Path] = []
    config = tiny(tau=1000, iterations=5, search_every=False)
    result = evolve_space(config, tmp_path / "run", quiet=True, after_each=told.append)
    assert told == [tmp_path / "run"]
    assert result["last"] == "space-0"
    assert len(result["spaces"]) == 1
    assert result["spaces"][0]["best"]["id"] == result["best"]["id"]


@pytest.mark.parametrize(
    ("space", "options"),
    [
        ("autoformer-nano", {"patch": 4}),
        ("vitas-nano", {"patch": 4}),
        ("vitas-twins-nano", {"patch": 2}),
        ("vit-resnas-nano", {"patch": 2}),
    ],
)
def test_other_spaces_evolve_too(space: str, options: dict[str, int], tmp_path: Path) -> None:
    training = TRAINING | {"space_options": {"img_size": 8} | options}
    config = tiny(space=space, superformer=training, budget=None, tau=0.05, search_every=False)
    evolve_space(config, tmp_path / "run", quiet=True)
    first, last = open_evolution(tmp_path / "run")
    assert any(move.taken for move in first.moves)
    assert last.space.family == first.space.family
    assert last.best is not None
    assert last.space.contains(last.best.arch)


def test_a_warm_start_begins_with_the_weights_of_the_space_before(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole / "space-0", tmp_path / "run" / "space-0")
    (tmp_path / "run" / "space-1").mkdir()
    shutil.copy(whole / "space-1" / "space.yaml", tmp_path / "run" / "space-1")
    record = json.loads((whole / "run.json").read_text())
    record["config"]["warm_start"] = True
    (tmp_path / "run" / "run.json").write_text(json.dumps(record))
    evolve_space(tiny(warm_start=True), tmp_path / "run", quiet=True)
    started = json.loads((tmp_path / "run" / "space-1" / "superformer" / "run.json").read_text())["config"]["start"]
    assert Path(started) == tmp_path / "run" / "space-0" / "superformer" / "final"
    warm, cold = (open_evolution(folder)[1] for folder in (tmp_path / "run", whole))
    assert warm.space == cold.space
    assert [trial.arch for trial in warm.drawn] == [trial.arch for trial in cold.drawn]
    assert warm.table is not None
    assert cold.table is not None
    assert warm.table.whole.error != cold.table.whole.error
    model = make_plan(tiny().superformer_config(str(whole / "space-1" / "space.yaml"), started)).job.model
    assert isinstance(model, Superformer)
    expected = Superformer(warm.space, num_classes=10, in_chans=1, sharing="ordinal", private=(), seed=0)
    carried = carry(open_run(whole / "space-0" / "superformer").superformer(), expected)
    assert 0 < carried.numbers < carried.of_numbers
    assert all(map(torch.equal, model.parameters(), expected.parameters()))


# -- killed anywhere ---------------------------------------------------------------------------------------------------


class Killed(Exception):
    pass


def _killed_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, call: int, after: bool = False) -> None:
    """The so-manyth call of a function is where the run dies, before or after its work."""
    whole, calls = getattr(owner, name), 0

    def fatal(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and not after:
            raise Killed
        result = whole(*args, **options)
        if calls == call:
            raise Killed
        return result

    monkeypatch.setattr(owner, name, fatal)


def _torn(monkeypatch: pytest.MonkeyPatch, file: str, call: int) -> None:
    """Dies in the middle of the so-manyth line that goes into a file."""
    whole, calls = Scores.add, 0

    def torn(self: Scores, trial: Any) -> None:
        nonlocal calls
        calls += self._path.match(file)
        if calls == call:
            with self._path.open("a") as opened:
                opened.write(json.dumps(trial.to_dict())[:50])
            raise Killed
        whole(self, trial)

    monkeypatch.setattr(Scores, "add", torn)


PHASES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "training": lambda patch: _killed_at(patch, Loop, "_step", 8),
    "scoring": lambda patch: _torn(patch, "space-0/scored.jsonl", 5),
    "scoring, once more": lambda patch: _torn(patch, "space-0/scored.jsonl", 7),
    "measuring": lambda patch: _killed_at(patch, module, "write_json", 1),
    "searching the first": lambda patch: _torn(patch, "space-0/searched.jsonl", 3),
    "moving": lambda patch: _killed_at(patch, module, "evolve", 1),
    "moved, not written": lambda patch: _killed_at(patch, module, "_write_space", 2),
    "next space written, moves not": lambda patch: _killed_at(patch, module, "_write_space", 2, after=True),
    "training the second": lambda patch: _killed_at(patch, Loop, "_step", 3),
    "scoring the second": lambda patch: _torn(patch, "space-1/scored.jsonl", 9),
    "searching the last": lambda patch: _torn(patch, "space-1/searched.jsonl", 4),
    "ending": lambda patch: _killed_at(patch, module, "_costs", 1),
}
"""In the order in which a run comes to them."""


def test_killed_in_every_phase_it_ends_in_the_same_space(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    for phase, arm in PHASES.items():
        with monkeypatch.context() as patch:
            arm(patch)
            with pytest.raises(Killed):
                evolve_space(tiny(), folder, quiet=True)
        assert not (folder / "result.json").exists(), phase
    evolve_space(tiny(), folder, quiet=True)
    mine, theirs = left(folder), left(whole)
    assert mine.keys() == theirs.keys()
    for name in theirs:
        assert mine[name] == theirs[name], name


MOMENTS = {
    "training": "space-0/superformer/checkpoints/step-*",
    "scoring": "space-0/scored.jsonl",
    "moving": "space-0/e-t.json",
    "training the second": "space-1/superformer/checkpoints/step-*",
    "scoring the second": "space-1/scored.jsonl",
    "searching": "space-1/searched.jsonl",
}
"""What is there as soon as a phase has begun."""


@pytest.mark.slow
def test_killed_by_a_signal_in_every_phase(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "recipe": "digits-evolve-space",
        "superformer": {"epochs": 6, "checkpoint_every": 10},
        "iterations": 1,
        "search_every": False,
        "device": "cpu",
    }
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["vitruvius.pipeline.evolve_space"])

    def begun(folder: Path) -> Any:
        process = context.Process(target=work, args=(settings, str(folder)))
        process.start()
        return process

    met = []
    for phase, sign in MOMENTS.items():
        process = begun(tmp_path / "killed")
        while process.is_alive() and not list((tmp_path / "killed").glob(sign)):
            time.sleep(0.001)
        time.sleep(0.02)
        if process.is_alive():
            met.append(phase)
        process.kill()
        process.join()
    assert met == list(MOMENTS)
    for folder in ("killed", "whole"):
        process = begun(tmp_path / folder)
        process.join(900)
        assert process.exitcode == 0
    mine, theirs = left(tmp_path / "killed"), left(tmp_path / "whole")
    assert mine.keys() == theirs.keys()
    for name in theirs:
        assert mine[name] == theirs[name], name
    assert not list((tmp_path / "killed").glob("**/*.partial"))


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def command(command: Command, tmp_path: Path) -> Command:
    """Runs `vitruvius evolve-space` in a folder that has nothing but tiny.yaml: exit code, stdout, stderr."""
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    return partial(command, "evolve-space")


def test_a_dry_run_says_what_comes_and_begins_nothing(command: Command, tmp_path: Path) -> None:
    code, out, _ = command("tiny.yaml", "--iterations", 3, "--dry-run", "--json")
    plan = json.loads(out)
    assert code == 0
    assert plan["iterations"] == "3 moves, 4 superformers"
    assert "100 images each" in plan["scored"]
    assert plan["steps"].startswith("stage1.dim 16, stage1.depth 1")
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.yaml"]
    code, out, _ = command("--recipe", "digits-evolve-space", "--dry-run")
    assert code == 0
    assert "digits-evolve-space" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tiny.yaml",), "a run needs a folder"),
        (("tiny.yaml", "--out", "run", "--space", "s3-nono"), "s3-nano"),
        (("tiny.yaml", "--out", "run", "--budget", "macs <= 10"), "macs"),
        (("tiny.yaml", "--out", "run", "--budget", "flops <= 1M"), "flops"),
        (("tiny.yaml", "--out", "run", "-s", "top=17"), "the top tier"),
        (("tiny.yaml", "--out", "run", "-s", "tau=0"), "tau must be positive"),
        (("tiny.yaml", "--out", "run", "-s", "taw=1"), "taw"),
        (("tiny.yaml", "--out", "run", "--iterations", "-1"), "iterations"),
        (("tiny.yaml", "--out", "run", "-s", "steps.qvk=8"), "did you mean"),
        (("tiny.yaml", "--out", "run", "-s", "steps.qkv=0"), "a positive number"),
        (("tiny.yaml", "--out", "run", "-s", "superformer.space=s3"), "leave it out"),
        (("tiny.yaml", "--out", "run", "-s", "superformer.epoch=3"), "epoch"),
        (("tiny.yaml", "--out", "run", "-s", "search.initials=3"), "initials"),
        (("tiny.yaml", "--out", "run", "-s", "images=100000"), "images"),
        (("tiny.yaml", "--out", "run", "--data", "nowhere"), "nowhere"),
        (("missing.yaml", "--out", "run"), "missing.yaml"),
        (("--recipe", "s3-superformer", "--out", "run"), "evolve-space"),
        (("--out", "run"), "space"),
    ],
)
def test_bad_input_is_one_line_and_begins_nothing(
    words: tuple[str, ...], said: str, command: Command, tmp_path: Path
) -> None:
    code, out, err = command(*words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert said in err
    assert not (tmp_path / "run").exists()


def test_stopped_by_the_user_it_says_how_to_go_on_and_does(
    whole: Path, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(whole, tmp_path / "run", ignore=shutil.ignore_patterns("result.json", "search.json", "sear*.jsonl"))
    for superformer in (tmp_path / "run").glob("space-*/superformer"):
        shutil.copy(whole / superformer.parent.name / "superformer" / "result.json", superformer)
    with monkeypatch.context() as patch:
        patch.setattr(Scores, "add", _interrupted)
        code, _, err = command("tiny.yaml", "--out", "run")
    assert code == 130
    assert "the same command goes on with what is in run" in err
    code, out, _ = command("tiny.yaml", "--out", "run", "--json")
    assert code == 0
    again = json.loads((whole / "result.json").read_text())
    assert json.loads(out)["spaces"][-1] == again["spaces"][-1]
    code, out, _ = command("tiny.yaml", "--out", "run")
    assert code == 0
    assert "E-T error" in out
    assert "s3-nano-1" in out
    assert "the last space: run/space-1/space.yaml" in out
    assert "the report is run/report.html" in out
    assert {"spaces-choices.png", "spaces-errors.png"} <= {file.name for file in (tmp_path / "run/report").iterdir()}


def _interrupted(self: Scores, trial: object) -> None:
    raise KeyboardInterrupt
