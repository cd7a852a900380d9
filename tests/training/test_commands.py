"""`vitruvius train | retrain | finetune` as a user types them in an empty folder; bad input is one line, and begins
nothing."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from conftest import Command
from vitruvius import spaces
from vitruvius.training import FinetuneConfig, RetrainConfig, SuperformerConfig, open_run
from vitruvius.training import loop as loop_module

SHORT = ("-s", "epochs=1", "-s", "device=cpu", "-s", "validate_every=100")
ARCH = spaces.load("vitas-nano", img_size=8, patch=4).smallest.to_json()


def images(folder: Path, classes: tuple[str, ...], each: int = 12) -> Path:
    for label, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for i in range(each):
            pixels = np.random.default_rng((label, i)).integers(0, 255, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i}.png")
    return folder


def test_a_dry_run_prints_the_plan_its_cost_and_the_split(command: Command, tmp_path: Path) -> None:
    code, out, _ = command("train", "--recipe", "digits-superformer", "-s", "batch_size=32", "--dry-run", "--json")
    shown = json.loads(out)
    assert code == 0
    assert shown["kind"] == "superformer"
    assert shown["split"] == "ac56c39e7ddfa94d"
    assert shown["images"] == "train 1,295, search-validation 143, test 359"
    assert shown["batch"].startswith("32 = 1 process(es) x 1 part(s) x 32")
    assert shown["settings"]["batch_size"] == 32  # what is given wins over the recipe
    assert shown["settings"]["crop"] == "none"  # and the recipe over the defaults
    _, out, _ = command("train", "--recipe", "digits-superformer", "--dry-run")
    assert all(words in out for words in ("MACs of the run", "ac56c39e7ddfa94d", "lr=0.005", "search-validation 143"))
    _, out, _ = command("retrain", ARCH, "--recipe", "digits-retrain", "--dry-run", "--json")
    assert json.loads(out)["pixels"] == "1 x 8 x 8"
    assert not list(tmp_path.iterdir())


def test_a_journey(command: Command, tmp_path: Path) -> None:
    """A superformer, a network from its slices and from scratch, larger images, other classes: each from the last."""
    (tmp_path / "run.yaml").write_text("space: vitas-nano\nspace_options: {img_size: 8, patch: 4}\nval: 0.3\n")
    code, out, _ = command("train", "run.yaml", "--out", "first", *SHORT)
    assert code == 0
    assert "superformer on digits" in out
    assert "learning rate" in out
    assert "in first" in out
    assert "largest" in out
    record = [json.loads(line) for line in (tmp_path / "first" / "log.jsonl").read_text().splitlines()]
    assert record[0] == {
        "event": "start",
        "processes": 1,
        "batch_size": 64,
        "images_at_once": 64,
        "learning_rate": 1e-3,
        "steps": len(open_run("first").data.search.train) // 64,
    }
    (tmp_path / "net.json").write_text(ARCH)
    sliced = ("retrain", "net.json", "--superformer", "first", "--out", "sliced", *SHORT, "-s", "val=0.3")
    code, out, _ = command(*sliced, "--json")
    assert code == 0
    assert set(json.loads(out)) == {"steps", "rollbacks", "validation", "test"}
    before = (tmp_path / "sliced" / "final" / "model.safetensors").read_bytes()
    assert command(*sliced)[0] == 0  # done already
    assert (tmp_path / "sliced" / "final" / "model.safetensors").read_bytes() == before
    code, _, _ = command("retrain", "sliced", "--out", "again", *SHORT, "-s", "img_size=8")  # a run, for its network
    assert code == 0
    assert open_run("again").arch == open_run("sliced").arch
    code, out, _ = command("finetune", "sliced", "--out", "larger", *SHORT, "-s", "img_size=16", "-s", "lr=1e-4")
    assert code == 0
    assert "top-1" in out
    assert open_run("larger").model().img_size == (16, 16)
    images(tmp_path / "animals", ("cats", "dogs", "owls"))
    code, _, _ = command(
        "finetune", "larger", "--data", "animals", "--out", "moved", *SHORT, "-s", "batch_size=8", "-s", "in_chans=1"
    )
    assert code == 0
    assert open_run("moved").model().num_classes == 3
    assert open_run("moved").model().img_size == (16, 16)


def test_token_labels_from_training_to_what_is_kept(command: Command) -> None:
    options = ("-s", "token_labeling=cutmix-mixup", "-s", "mixup=0.8", "-s", "cutmix=1", "-s", "label_smoothing=0.1")
    superformer = ("train", "--space", "vit-resnas-nano", "-s", "space_options={img_size: 16, patch: 4}")
    assert command(*superformer, "--out", "super", *SHORT, *options, "-s", "val=0.4")[0] == 0
    loaded = open_run("super").superformer()
    assert any("token_head" in name for name in loaded.state_dict())
    arch = loaded.space.smallest.to_json()
    assert command("retrain", arch, "--superformer", "super", "--out", "net", *SHORT, *options)[0] == 0
    assert command("finetune", "net", "--out", "tuned", *SHORT, *options)[0] == 0
    for run in ("net", "tuned"):
        model = open_run(run).model()
        assert model.token_head is None
        assert not any("token_head" in name for name in model.state_dict())


BAD: list[tuple[tuple[str, ...], str]] = [
    (("train", "--space", "vitas-nano", "-s", "epcohs=3"), "did you mean 'epochs'"),
    (("train", "--space", "vitas-nano", "-s", "epochs"), "a setting is KEY=VALUE; got 'epochs'"),
    (("train", "--space", "vitas-nano", "-s", "epochs=many"), "epochs of a superformer configuration"),
    (("train", "--recipe", "digits-superfromer"), "did you mean 'digits-superformer'"),
    (("train", "--recipe", "digits-retrain"), "of another kind; got 'retrain'"),
    (("retrain", ARCH, "--recipe", "digits-retrian"), "did you mean 'digits-retrain'"),
    (("train",), "space of a superformer configuration: field required; got 'nothing'"),
    (("train", "nowhere.yaml"), "a configuration cannot be read"),
    (("train", "--space", "vitas-nano", "-s", "space_options={img_size: 10}"), "must fit patches of 4 pixels; got 10"),
    (("train", "--space", "vitas-v1", "-s", "img_size=100"), "patches of"),
    (("retrain", "deit-tiny", "-s", "img_size=100"), "patches of 16 pixels"),
    (("train", "--space", "vitas-nano", "-s", "num_classes=3"), "of 10 classes; got 3"),
    (("retrain", ARCH, "-s", "num_classes=3", "-s", "img_size=8"), "of 10 classes; got 3"),
    (("train", "--space", "vitas-nano", "--data", "nowhere"), "got 'nowhere'"),
    (("train", "--space", "vitas-nano", "--data", "empty"), "a class folder has no images; got 'empty/owls'"),
    (("train", "--space", "vitas-nano", "--data", "broken"), "got 'broken/dogs/7.png'"),
    (("retrain", "deit-tinny", "-s", "img_size=8"), "did you mean 'deit-tiny'"),
    (("retrain", "broken"), "a run's record cannot be read"),
    (("finetune", "nowhere"), "a run's record cannot be read"),
    (("train", "--space", "vitas-nano", "-s", "strategy=sandwhich", "--data", "broken"), "did you mean 'sandwich'"),
]


@pytest.mark.parametrize(("words", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_bad_configurations_are_one_line_before_anything_starts(
    words: tuple[str, ...], message: str, command: Command, tmp_path: Path
) -> None:
    images(tmp_path / "empty", ("cats", "dogs"), 3)
    (tmp_path / "empty" / "owls").mkdir()
    images(tmp_path / "broken", ("cats", "dogs"))
    broken = tmp_path / "broken" / "dogs" / "7.png"
    broken.write_bytes(broken.read_bytes()[:60])
    for more in (("--out", "run"), ("--dry-run",)):
        code, out, err = command(*words, *more)
        assert code == 2
        assert not out
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert message in err
        assert "; allowed: " in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("source", "package"), [("hfds/mnist", "datasets"), ("wds/mnist", "webdataset")])
def test_a_missing_extra_is_named_with_its_cure(
    source: str, package: str, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [*(each for each in sys.modules if each.split(".")[0] == package), package]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in [each for each in sys.modules if each.startswith("timm.data.readers.reader_")]:
        monkeypatch.delitem(sys.modules, name)
    code, _, err = command("train", "--space", "vitas-nano", "--data", source, "-s", "root=x", "--out", "run")
    assert code == 2
    assert err.count("\n") == 1
    assert "pip install 'vitruvius[datasets]'" in err
    assert not (tmp_path / "run").exists()


def test_a_run_needs_a_folder(command: Command) -> None:
    code, _, err = command("train", "--space", "vitas-nano")
    assert (code, err.count("\n")) == (2, 1)
    assert "--out runs/first" in err


def test_a_folder_that_cannot_be_written_is_one_line(command: Command, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place, rule in (("file", "a run needs a folder of its own"), ("file/run", "a run's folder cannot be written")):
        code, _, err = command("train", "--space", "vitas-nano", "--out", place)
        assert (code, err.count("\n")) == (2, 1)
        assert rule in err


def test_the_plan_says_what_a_user_should_know(command: Command) -> None:
    def notes(*words: object) -> str:
        return str(json.loads(command(*words, "--dry-run", "--json")[1]).get("notes"))

    assert notes("train", "--recipe", "digits-superformer") == "None"
    taught = ("train", "--recipe", "digits-superformer", "-s", "strategy=sandwich", "-s", "distill=true")
    assert "S3 (Section 2.3) warns" in notes(*taught)
    assert "8x8 pixels are enlarged to 224x224" in notes("retrain", "deit-tiny")


@pytest.mark.parametrize("begun", [True, False])
def test_a_stop_says_how_to_go_on(begun: bool, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter(range(1000))
    original = loop_module.step_gradients

    def interrupted(*args: Any) -> torch.Tensor:
        if next(calls) == 3:
            raise KeyboardInterrupt
        return original(*args)

    def at_once(*args: Any) -> None:
        raise KeyboardInterrupt

    words = ("train", "--space", "vitas-nano", "--out", "run", *SHORT, "-s", "space_options={img_size: 8, patch: 4}")
    with monkeypatch.context() as patch:
        patch.setattr(loop_module, *("step_gradients", interrupted) if begun else ("start_folder", at_once))
        code, _, err = command(*words)
    assert code == 130
    said = "goes on from the last checkpoint in run" if begun else "begins anew"
    assert err.strip() == f"stopped; the same command {said}"
    code, out, _ = command(*words)
    assert code == 0
    assert "largest" in out


def test_a_superformers_run_is_no_network(command: Command, tmp_path: Path) -> None:
    record: dict[str, Any] = {key: {} for key in ("version", "config", "data", "job", "versions")}
    record["kind"] = "superformer"
    (tmp_path / "super").mkdir()
    (tmp_path / "super" / "run.json").write_text(json.dumps(record))
    code, _, err = command("retrain", "super", "--dry-run")
    assert (code, err.count("\n")) == (2, 1)
    assert "a superformer is many networks" in err


def test_a_searchs_run_gives_its_best(command: Command, tmp_path: Path) -> None:
    record: dict[str, Any] = {key: {} for key in ("version", "config", "data", "job", "versions")}
    record["kind"] = "search"
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "run.json").write_text(json.dumps(record))
    assert "a run's result cannot be read" in command("retrain", "search", "--dry-run")[2]
    (tmp_path / "search" / "result.json").write_text(json.dumps({"best": {"arch": json.loads(ARCH), "scores": {}}}))
    found, given = (command("retrain", arch, "-s", "img_size=8", "--dry-run", "--json")[1] for arch in ("search", ARCH))
    assert json.loads(found)["parameters"] == json.loads(given)["parameters"]


def test_giving_up_is_one_line(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> torch.Tensor:
        return torch.tensor(float("nan"))

    monkeypatch.setattr(loop_module, "step_gradients", broken)
    code, out, err = command("train", "--space", "vitas-nano", "--out", "run", *SHORT)
    assert (code, err.count("\n")) == (1, 1)
    assert "3 steps in a row" in err
    assert "lower learning rate" in err
    assert "step 0: the loss is nan, so the step is skipped" in out


def test_a_dry_run_under_torchrun_is_of_all_processes(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("train", "--space", "vitas-nano", "--dry-run", "--json")
    with monkeypatch.context() as patch:
        patch.setitem(os.environ, "WORLD_SIZE", "2")
        assert json.loads(command(*words)[1])["batch"] == "64 = 2 process(es) x 1 part(s) x 32 images"


def test_every_setting_is_in_the_docs() -> None:
    text = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
    for kind in (SuperformerConfig, RetrainConfig, FinetuneConfig):
        assert not [key for key in kind.model_fields if f"`{key}`" not in text]
