"""`vitruvius run`: what it chooses, what it refuses before work starts, and whole journeys, killed and stopped."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipeline.journeys import shortest, work
from vitruvius import costs
from vitruvius.arch import Arch
from vitruvius.cli import main
from vitruvius.cli._train import nested
from vitruvius.data import load
from vitruvius.pipeline._choices import choose, load_space
from vitruvius.pipeline._estimate import estimate
from vitruvius.pipeline.journey import Journey, read_journey_config
from vitruvius.pipeline.methods import METHODS
from vitruvius.pipeline.plan import accuracy_noise, duration
from vitruvius.training import open_run
from vitruvius.training.plan import make_plan

Command = Callable[..., tuple[int, str, str]]
SHORT = (
    *("-s", "device=cpu", "-s", "superformer.epochs=1", "-s", "retrain.epochs=1", "-s", "onnx=false"),
    *("-s", "search={initial: 4, generations: 1, parents: 2, mutations: 1, crossovers: 1}"),
)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs `vitruvius run` in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["vitruvius", "run", *map(str, words)])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        out = capsys.readouterr()
        return code, out.out, out.err

    return run


def image_folder(root: Path, sides: tuple[int, int] = (12, 10), each: int = 12) -> Path:
    """Two classes that can be told apart, with as many kinds of files as people have."""
    for label, name in enumerate(("dark", "light")):
        (root / name / "from-a-phone").mkdir(parents=True)
        for i in range(each):
            rng = np.random.default_rng((label, i))
            pixels = rng.integers(label * 128, label * 128 + 127, (*sides, 3), dtype=np.uint8)
            image = Image.fromarray(pixels)
            match i % 4:
                case 0:
                    image.convert("L").save(root / name / f"{i}.png")
                case 1:
                    image.quantize(16).save(root / name / f"{i}.gif", transparency=0)
                case 2:
                    image.save(root / name / "from-a-phone" / f"{i}.JPG")
                case 3:
                    image.convert("RGBA").save(root / name / f"{i}.webp")
    (root / "dark" / "notes.txt").write_text("from my telephone")
    (root / "README.md").write_text("my images")
    return root


# -- choices -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_choices_for_small_images_that_its_phases_take(method: str, tmp_path: Path) -> None:
    journey = Journey(read_journey_config({"data": "digits", "method": method}), tmp_path / "run")
    choices = journey.choices
    space = load_space(choices.space)
    assert space.name == METHODS[method].nano
    assert space.img_size == 8
    assert costs.Budget.of(choices.budget).ends[0][2] == pytest.approx(
        space.mean_cost("macs", **journey.counting()), rel=1e-3
    )
    structure = METHODS[method].structure
    if choices.superformer is not None:
        assert {key: choices.superformer[key] for key in structure} == structure
        assert choices.superformer["recipe"] == "digits-superformer"
    assert (choices.superformer is None) == (method in ("s3", "tf-tas"))
    assert (choices.evolve is not None) == (method == "s3")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("method", "budget", "space", "superformer", "retrain"),
    [
        ("vitas-v1", "macs <= 1.2G", "vitas-v1", "vitas-v1-superformer-1.3g", "vitas-v1-retrain-below-1.3g"),
        ("vitas-v2", "macs <= 1.4G", "vitas-twins-tiny", "vitas-v2-superformer", "vitas-v2-twins-retrain-tiny"),
        ("vitas-v2", "macs <= 8G", "vitas-twins-base", "vitas-v2-superformer", "vitas-v2-twins-retrain-base"),
        ("autoformer", "params <= 60M", "autoformer-base", "autoformer-superformer", "autoformer-retrain"),
        ("vit-resnas", None, "vit-resnas-tiny", "vit-resnas-superformer-tiny", "vit-resnas-retrain-tiny"),
    ],
)
def test_photographs_get_the_papers_space_and_recipes(
    method: str, budget: str | None, space: str, superformer: str, retrain: str, tmp_path: Path
) -> None:
    folder = image_folder(tmp_path / "images", sides=(100, 120), each=8)
    config = read_journey_config({"data": str(folder), "method": method, "budget": budget})
    choices = choose(config, load(str(folder)))
    assert choices.img_size == 224
    assert choices.space == {"space": space}
    assert choices.superformer is not None
    assert choices.superformer["recipe"] == superformer
    assert choices.retrain["recipe"] == retrain
    assert choices.retrain["batch_size"] <= len(load(str(folder)).search.train)


def test_the_same_images_and_budget_in_other_words_go_on(command: Command, tmp_path: Path) -> None:
    image_folder(tmp_path / "images")
    words = ("--phase", "superformer", *SHORT)
    assert command("--data", "images", "--budget", "macs<=400k", "--out", "first", *words)[0] == 0
    code, _, err = command("--data", "./images/", "--budget", "macs <= 0.4M", "--out", "first", *words)
    assert code == 0, err
    code, _, err = command("--data", "images", "--budget", "macs <= 500k", "--out", "first", *words)
    assert (code, len(err.splitlines())) == (2, 1)
    Image.new("RGB", (12, 10)).save(tmp_path / "images" / "dark" / "more.png")
    code, _, err = command("--data", "images", "--budget", "macs<=400k", "--out", "first", *words)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "the images have changed since the run in 'first' was begun" in err


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (("--out", "first"), "a run needs images"),
        (("images", "--out", "first"), "images are given by --data"),
        (("empty.yaml", "--out", "first"), "a configuration is keys and values; got 'nothing'"),
        (("--data", "images", "--out", "taken", "--dry-run"), "a run needs a folder of its own"),
        (("--data", "images", "--out", "empty.yaml", "--dry-run"), "a run needs a folder of its own"),
    ],
)
def test_what_was_forgotten_or_mistaken_is_said_at_once(
    words: tuple[str, ...], rule: str, command: Command, tmp_path: Path
) -> None:
    image_folder(tmp_path / "images")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("")
    (tmp_path / "empty.yaml").write_text("# nothing yet\n")
    code, out, err = command(*words)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert rule in err


def test_photographs_in_a_nano_space_are_trained_as_small_images_are(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "images", sides=(100, 120), each=8)
    journey = Journey(read_journey_config({"data": str(folder), "space": "vitas-nano"}), tmp_path / "run")
    assert journey.choices.img_size == 224
    assert journey.choices.space["space_options"] == {"img_size": 224, "patch": 28}
    assert journey.superformer_config().recipe == "digits-superformer"


def test_epochs_that_are_cut_short_are_without_augmentation(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(**said: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        choices = choose(read_journey_config({"data": "digits", **said}), load("digits"))
        assert choices.superformer is not None
        return choices.superformer, choices.retrain

    assert all("erasing" not in settings and settings["epochs"] >= 80 for settings in chosen())
    monkeypatch.setattr("vitruvius.pipeline._choices._FEW", 1000)  # as if they were many
    monkeypatch.setattr("vitruvius.pipeline._choices._STEPS", dict.fromkeys(("superformer", "retrain"), (0, 180)))
    superformer, retrain = chosen()
    assert (superformer["epochs"], superformer["batch_size"], superformer["crop"]) == (10, 64, "none")
    assert (retrain["epochs"], retrain["crop"], retrain["erasing"], retrain["drop_path_rate"]) == (10, "none", 0, 0)
    assert "erasing" not in chosen(retrain={"epochs": 30})[1], "what the user says is long enough"


@pytest.mark.parametrize(("images", "test", "error"), [(10_000, 87.6, "0.3"), (359, 95.82, "1.1"), (4, 100.0, "15.3")])
def test_the_accident_of_the_test_part_is_said(images: int, test: float, error: str) -> None:
    said = accuracy_noise({"test_images": images, "rows": [{"test": test}]})
    assert said.startswith(f"{images:,} test images")
    assert said.endswith(f"standard error is {error} %.")


@pytest.mark.parametrize(("side", "chosen"), [(8, 8), (28, 28), (31, 32), (61, 64), (95, 88)])
def test_small_images_keep_their_side_as_far_as_patches_divide_it(side: int, chosen: int, tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "images", sides=(side, side), each=8)
    choices = choose(read_journey_config({"data": str(folder)}), load(str(folder)))
    assert choices.img_size == chosen
    assert 4 <= chosen // choices.space["space_options"]["patch"] <= 12


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [None, 32])
def test_few_images_are_enough_for_every_method(method: str, size: int | None, tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "images", sides=(100, 120), each=20)
    journey = Journey(read_journey_config({"data": str(folder), "method": method, "img_size": size}), tmp_path / "run")
    if journey.choices.superformer is not None and size is not None:
        assert make_plan(journey.superformer_config()).steps > 0
    assert journey.retrain_config(load_space(journey.choices.space).smallest).batch_size <= 8
    given = (journey.choices.superformer or {}).get("archs_per_step", 1)
    assert given <= (journey.choices.superformer or {"batch_size": 8})["batch_size"]


def test_settings_are_set_as_deep_as_they_are(command: Command, tmp_path: Path) -> None:
    """A file's mapping and words on the command line, the last winning."""
    (tmp_path / "mine.yaml").write_text(
        "data: digits\nmethod: s3\nevolve: {superformer: {epochs: 2, lr: 0.1}, iterations: 1}\n"
    )
    words = ("-s", "evolve.superformer.epochs=3", "-s", "evolve.steps.stage1.depth=2", "-s", "retrain.epochs=4")
    code, out, err = command("mine.yaml", *words, "--dry-run", "--json")
    assert code == 0, err
    plan = json.loads(out)
    assert "of 2 spaces in turn, 3 epochs and 200 networks scored in each" in plan["superformer"]
    assert "4 epochs" in plan["retrain"]
    settings = {"evolve.superformer.epochs": 3, "evolve": {"superformer": {"lr": 0.1}}, "evolve.steps.stage1.depth": 2}
    groups = {"evolve": {"superformer": {}, "steps": {}}}
    assert nested(settings, groups) == {
        "evolve": {"superformer": {"epochs": 3, "lr": 0.1}, "steps": {"stage1.depth": 2}}
    }
    code, _, err = command("--data", "digits", "-s", "evolve.superformer.epoch=3", "--method", "s3", "--dry-run")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "epoch" in err


def test_what_is_said_wins_over_what_is_chosen(tmp_path: Path) -> None:
    given = {
        "budget": "macs <= 1.1M, params <= 100k",
        "seed": 3,
        "superformer": {"sharing": "ordinal"},
        "search": {"searcher": "random", "evaluations": 7},
        "retrain": {"epochs": 9},
    }
    own = {"recipe": None}  # another searcher than the recipe's
    given["search"] |= own
    journey = Journey(read_journey_config({"data": "digits", **given}), tmp_path)
    assert journey.superformer_config().sharing == "ordinal"
    assert journey.superformer_config().budget == "macs <= 1.1M"
    assert journey.choices.search["evaluations"] == 7
    assert journey.retrain_config(load_space(journey.choices.space).smallest).epochs == 9
    assert {journey.choices.search["seed"], journey.choices.retrain["seed"]} == {3}


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"metod": "s3"}, "unknown key of a run's configuration .*; got 'metod'"),
        ({"method": "darts"}, "unknown method; got 'darts'"),
        ({"budget": "macs under 1M"}, "a budget cannot be read"),
        ({"budget": "macs <= 10"}, "no network"),
        ({"budget": "latency <= 1us"}, r"even the smallest network of space 'vitas-nano' takes .*; allowed: more time"),
        ({"data": "no/such/folder"}, "a source of images is a folder"),
        ({"space": "vitas"}, "unknown space"),
        ({"img_size": 1}, "has no form for images of this size; got 1"),
        ({"method": "tf-tas", "superformer": {"epochs": 3}}, "method 'tf-tas' trains no superformer"),
        ({"evolve": {"iterations": 1}}, "method 'vitruvius' does not search the space itself"),
        ({"method": "s3", "search": {"generations": 2}}, "'s3' searches as it evolves; .*; allowed: evolve.search.KEY"),
        ({"method": "s3", "budget": "latency <= 1s"}, "'s3' evolves its space under costs that are counted"),
        ({"superformer": {"epoch": 3}}, "unknown key of a superformer configuration .*; got 'epoch'"),
        ({"search": {"generation": 3}}, "unknown key of a search configuration"),
        ({"retrain": {"epochs": 0}}, "epochs of a retrain configuration"),
    ],
)
def test_what_cannot_work_is_one_line_before_anything_starts(given: dict[str, Any], rule: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rule) as caught:
        Journey(read_journey_config({"data": "digits", **given}), tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


# -- the plan ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_plans_begin_nothing(method: str, command: Command, tmp_path: Path) -> None:
    code, _, err = command("--data", "digits", "--method", method, "--out", "first", "--dry-run")
    assert (code, err) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_prints_the_plan(command: Command) -> None:
    code, out, _ = command("--data", "digits", "--out", "first", "--dry-run", "--json")
    shown = json.loads(out)
    assert code == 0
    assert shown["data"].startswith("digits: 1,151 images to train on, 287 to search on, 359 to test on, 10 classes")
    assert "the mean MACs of the space's networks" in shown["budget"]
    assert shown["search"].startswith("evolution (recipe s3-search) for accuracy on 287 images: ")
    assert "timed steps of one network" in shown["time"]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_an_estimate_that_grows_with_its_epochs(method: str, tmp_path: Path) -> None:
    def seconds(epochs: int) -> dict[str, float]:
        config = shortest(method, retrain={"epochs": epochs})
        return dict(estimate(Journey(read_journey_config(config), tmp_path)).seconds)

    short, long = seconds(1), seconds(60)
    assert long["retrain"] > 10 * short["retrain"] > 0
    assert long["superformer"] + long["search"] > 0


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.2, "1 s"), (89, "89 s"), (600, "10 min"), (9000, "2.5 h"), (400_000, "4.6 days")]
)
def test_durations_are_said_as_people_say_them(seconds: float, said: str) -> None:
    assert duration(seconds) == said


# -- whole journeys ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("journey") / "whole"
    work(shortest(onnx=False), str(folder))
    return folder


def test_the_found_network_is_compared_at_equal_cost_with_the_same_recipe(made: Path) -> None:
    result = json.loads((made / "result.json").read_text())
    rows = {row["name"]: row for row in result["rows"]}
    assert {"found", "hand-made"} <= set(rows)
    assert ("random" in rows) != result["random_is_found"]
    high = costs.Budget.of(result["budget"]).ends[0][2]
    assert rows["found"]["macs"] <= high
    assert 0.95 * rows["found"]["macs"] < rows["hand-made"]["macs"] <= rows["found"]["macs"]
    runs = {name: open_run(made / name.replace("-", "")) for name in rows}
    settings = [{**run.config.model_dump(), "arch": None} for run in runs.values()]
    assert all(each == settings[0] for each in settings)
    for name, row in rows.items():
        assert runs[name].arch == Arch.from_dict(row["arch"])
        assert row["test"] == runs[name].result["test"]["accuracy"]["top1"]
        assert row["latency"] > 0
    assert set(result["seconds"]) == set(result["cpu_seconds"]) == {*("superformer", "search", "retrain"), *REST}


REST = ("analysis", "export")


def test_the_best_random_network_is_the_best_of_those_that_the_search_drew(made: Path) -> None:
    journey = Journey(read_journey_config(shortest(onnx=False)), made)
    drawn = [trial for trial in journey.trials() if trial.made == "random"]
    assert len(drawn) == 6
    best = max(trial.value("accuracy") for trial in drawn)
    networks = journey.networks()
    rival = networks.get("random", networks["found"])
    assert next(trial.value("accuracy") for trial in drawn if trial.arch == rival) == best


def test_the_same_command_again_does_nothing_and_another_is_refused(made: Path) -> None:
    measured = (*made.rglob("*.safetensors"), made / "analysis" / "measured.json", made / "export" / "arch.json")
    before = {file: file.stat().st_mtime_ns for file in measured}
    result = json.loads((made / "result.json").read_text())
    journey = Journey(read_journey_config(shortest(onnx=False)), made, quiet=True)
    assert journey.run()["rows"] == result["rows"]
    assert {file: file.stat().st_mtime_ns for file in before} == before
    with pytest.raises(ValueError, match="was begun with another seed; got 1; allowed: 0"):
        Journey(read_journey_config(shortest(onnx=False, seed=1)), made, quiet=True).run()


def test_a_folder_that_was_moved_goes_on(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By another spelling of its place, and on what device this call says."""
    shutil.copytree(made, tmp_path / "runs" / "moved", ignore=shutil.ignore_patterns("result.json"))
    monkeypatch.chdir(tmp_path / "runs")
    journey = Journey(read_journey_config(shortest(onnx=False)), "moved", quiet=True)
    assert "device" not in {*journey.choices.retrain, *journey.choices.search, *(journey.choices.superformer or {})}
    assert journey.search_settings().device == journey.superformer_config().device == "cpu"
    rows = json.loads((made / "result.json").read_text())["rows"]
    assert [row["test"] for row in journey.run()["rows"]] == [row["test"] for row in rows]


def test_phases_run_alone_and_in_their_order(tmp_path: Path) -> None:
    """With a latency budget, for which the search times the space's parts."""
    config = read_journey_config(shortest("tf-tas", budget="latency <= 1s", compare=False, onnx=False))

    def phase(name: str) -> None:
        Journey(config, tmp_path / "run", quiet=True).run(name)  # type: ignore[arg-type]

    with pytest.raises(ValueError, match=r"this phase needs what the one before makes \(search\)"):
        phase("retrain")
    phase("search")
    assert (tmp_path / "run" / "search" / "latency.json").exists()
    assert not (tmp_path / "run" / "found").exists()
    with pytest.raises(ValueError, match=r"needs what the one before makes \(found\)"):
        phase("export")
    phase("retrain")
    assert json.loads((tmp_path / "run" / "result.json").read_text())["rows"][0]["latency"] is None
    phase("analysis")
    assert json.loads((tmp_path / "run" / "result.json").read_text())["rows"][0]["latency"] < 1
    phase("export")
    assert (tmp_path / "run" / "export" / "model.safetensors").exists()


def test_the_first_phase_runs_alone(tmp_path: Path) -> None:
    journey = Journey(read_journey_config(shortest(onnx=False)), tmp_path / "run", quiet=True)
    assert journey.run("superformer") == {}
    assert (tmp_path / "run" / "superformer" / "result.json").exists()
    with pytest.raises(ValueError, match=r"this phase needs what the one before makes \(search\)"):
        journey.run("analysis")


MOMENTS = (
    "superformer/checkpoints/step-*",
    "search/study.log",
    "found/checkpoints/step-*",
    "handmade/checkpoints/step-*",
    "analysis/*",
    "export*",
)


def test_killed_in_every_phase_it_comes_to_the_same_end(made: Path, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["vitruvius.pipeline.journey", "pipeline.journeys"])
    met = 0
    for moment in MOMENTS:
        process = context.Process(target=work, args=(shortest(onnx=False), str(folder)))
        process.start()
        until = time.monotonic() + 100
        while not list(folder.glob(moment)) and process.is_alive() and time.monotonic() < until:
            time.sleep(0.005)
        met += process.is_alive()
        process.kill()
        process.join()
    assert met >= 4
    work(shortest(onnx=False), str(folder))
    for file in ("superformer/final", "found/final", "handmade/final"):
        weights = "superformer.safetensors" if "super" in file else "model.safetensors"
        name = next(path.name for path in (made / file).glob("*.safetensors"))
        assert name in (weights, "model.safetensors")
        assert (folder / file / name).read_bytes() == (made / file / name).read_bytes()
    assert (folder / "search/result.json").read_bytes() == (made / "search/result.json").read_bytes()
    ours, theirs = (json.loads((each / "result.json").read_text())["rows"] for each in (folder, made))
    assert [{**row, "latency": None} for row in ours] == [{**row, "latency": None} for row in theirs]


def test_ctrl_c_ends_cleanly_and_says_how_to_go_on(tmp_path: Path) -> None:
    words = ["run", "--data", "digits", "--out", "my runs/first", *SHORT, "-s", "superformer.epochs=500"]
    process = subprocess.Popen(
        [sys.executable, "-m", "vitruvius", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        # A shell that runs the tests in the background has them ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    until = time.monotonic() + 100
    while not list(tmp_path.glob("my runs/first/superformer/checkpoints/*")) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "stopped; the same command goes on from here:" in err
    assert "vitruvius run --data digits --out 'my runs/first' -s device=cpu" in err


# -- images as people have them ----------------------------------------------------------------------------------------


def test_a_folder_of_odd_files_goes_all_the_way(command: Command, tmp_path: Path) -> None:
    image_folder(tmp_path / "images")
    code, out, err = command("--data", "images", "--out", "first", *SHORT)
    assert code == 0, err
    shown = " ".join(out.split())
    assert "images: 14 images to train on" in shown or "to train on" in shown
    assert "2 files that are no images (by their names, or hidden, or in no class) are left out" in shown
    assert "hand-made" in shown
    config = json.loads((tmp_path / "first/export/config.json").read_text())
    assert config["label_names"] == ["dark", "light"]


def test_broken_files_are_named_and_counted_before_anything_starts(command: Command, tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "images")
    whole = (folder / "dark" / "0.png").read_bytes()
    (folder / "dark" / "0.png").write_bytes(whole[: len(whole) // 2])
    (folder / "light" / "8.png").write_text("this is no image")
    code, _, err = command("--data", "images", "--out", "first", *SHORT)
    assert code == 2
    assert len(err.splitlines()) == 1
    assert "dark/0.png" in err
    assert "nor 1 more of this source" in err
    assert "remove the file, or mend it" in err
    assert not (tmp_path / "first").exists()


def test_a_class_of_a_single_image_is_named(command: Command, tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "images")
    (folder / "rare").mkdir()
    Image.new("RGB", (12, 12)).save(folder / "rare" / "only.png")
    code, _, err = command("--data", "images", "--out", "first", *SHORT)
    assert code == 2
    assert len(err.splitlines()) == 1
    assert "class 'rare' of images has too few images to be split; got 1" in err
    assert "add images, or remove the class" in err


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_method_goes_all_the_way(method: str, tmp_path: Path) -> None:
    work(shortest(method), str(tmp_path / "run"))
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["rows"][0]["name"] == "found"
    assert (tmp_path / "run" / "export" / "model.onnx").exists()
