"""An exported folder is whole, is the run's network, and is replaced as one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file

from export.conftest import FAMILIES, images, network
from test_cli import run
from vitruvius import Arch, costs, export
from vitruvius.export import _bundle
from vitruvius.export._bundle import About
from vitruvius.training import open_run

ABOUT = About(name="mine", mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6), labels=tuple("abcdefg"))


@pytest.fixture(scope="session")
def bundle(run_folder: Path) -> export.Bundle:
    return export.export_run(run_folder)


def test_a_runs_export_is_its_network(bundle: export.Bundle, run_folder: Path) -> None:
    finished = open_run(run_folder)
    names = {"model.safetensors", "arch.json", "config.json", "README.md", "model.onnx"}
    assert {file.name for file in bundle.folder.iterdir()} == names
    assert bundle.folder == run_folder / "export"
    assert Arch.from_json((bundle.folder / "arch.json").read_text()) == finished.arch == bundle.arch
    model = finished.model()
    loaded = timm.create_model(f"local-dir:{bundle.folder}", pretrained=True).eval()
    with torch.no_grad():
        assert torch.equal(loaded(images(3, 1, 8)), model(images(3, 1, 8)))
    assert not any(name.startswith("token_head") for name in load_file(bundle.folder / "model.safetensors"))
    assert set(bundle.checks) == {"model.safetensors", "model.onnx, batch 1", "model.onnx, batch 8"}
    assert max(bundle.checks.values()) < 1e-4


def test_how_images_are_prepared_is_timms_to_read(bundle: export.Bundle, run_folder: Path) -> None:
    search = open_run(run_folder).data.search
    model = timm.create_model(f"local-dir:{bundle.folder}", pretrained=True)
    config = timm.data.resolve_data_config({}, model=model)
    assert list(config["input_size"]) == [1, 8, 8]
    assert config["mean"] == pytest.approx(search.mean)
    assert config["std"] == pytest.approx(search.std)
    assert config["crop_pct"] == 1.0
    assert list(model.pretrained_cfg["label_names"]) == list(search.classes)


def test_the_card_says_costs_accuracy_data_and_how_to_load(bundle: export.Bundle, run_folder: Path) -> None:
    finished, card = open_run(run_folder), (bundle.folder / "README.md").read_text()
    total = costs.cost(finished.arch, img_size=8, num_classes=10, in_chans=1)
    for fact in (
        f"{total.params:,}",
        f"{total.macs:,}",
        f"{finished.result['test']['accuracy']['top1']:.2f} %",
        finished.record["data"]["hash"],
        "opset 18",
        "Licence",
        'arch="FOLDER", checkpoint_path="FOLDER"',
    ):
        assert fact in card
    for line in card.splitlines():
        if line.startswith("| 1 |"):
            assert line.count("|") == 9


def test_the_cards_lines_of_code_run(bundle: export.Bundle) -> None:
    """As they stand, with the folder in its place."""
    card = (bundle.folder / "README.md").read_text()
    for code in card.split("```python\n")[1:]:
        exec(code.split("```")[0].replace("FOLDER", str(bundle.folder)), {"images": images(2, 1, 8).numpy()})


def test_a_run_of_an_earlier_version_asks_its_images(run_folder: Path, tmp_path: Path) -> None:
    older = tmp_path / "older"
    shutil.copytree(run_folder, older)
    record = json.loads((older / "run.json").read_text())
    for key in ("mean", "std", "class_names"):
        del record["data"][key]
    (older / "run.json").write_text(json.dumps(record))
    made = export.export_run(older, tmp_path / "out", onnx=False)
    assert json.loads((made.folder / "config.json").read_text())["pretrained_cfg"]["mean"] == pytest.approx(
        [0.306], 1e-2
    )
    assert made.opset is None
    assert not (made.folder / "model.onnx").exists()


def test_a_journeys_network_is_the_one_it_found(run_folder: Path, tmp_path: Path) -> None:
    journey = tmp_path / "journey"
    shutil.copytree(run_folder, journey / "found")
    record = json.loads((run_folder / "run.json").read_text())
    (journey / "run.json").write_text(json.dumps({**record, "kind": "run"}))
    made = export.export_run(journey, onnx=False)
    assert made.folder == journey / "export"
    assert (made.folder / "README.md").read_text().count("# journey\n") == 1
    shutil.rmtree(journey / "found")
    with pytest.raises(ValueError, match="a run's record cannot be read"):
        export.export_run(journey, onnx=False)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family(family: str, tmp_path: Path) -> None:
    model = network(family)
    export.export_model(model, tmp_path / "out", ABOUT, onnx=False)
    loaded = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True).eval()
    with torch.no_grad():
        assert torch.equal(loaded(images(2)), model(images(2)))


def test_the_callers_model_stays_as_it_was(tmp_path: Path) -> None:
    model = network("resvit", token_head=True).double().train()
    export.export_model(model, tmp_path / "out", ABOUT, onnx=False)
    assert not any(name.startswith("token_head") for name in load_file(tmp_path / "out" / "model.safetensors"))
    assert model.token_head is not None
    assert model.training
    assert next(model.parameters()).dtype == torch.float64


def test_an_export_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    export.export_model(network(), out, ABOUT, onnx=False)
    (out / "stray").write_text("of an earlier version")
    before = (out / "model.safetensors").read_bytes()
    other = network("twins")

    def broken(tensors: dict[str, torch.Tensor], *args: Any, **options: Any) -> None:
        save_file({name: tensor + 1e-2 for name, tensor in tensors.items()}, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(_bundle, "save_file", broken)
        with pytest.raises(ValueError, match="loaded back"):
            export.export_model(other, out, ABOUT, onnx=False)
    assert (out / "model.safetensors").read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["out"]
    export.export_model(other, out, ABOUT, onnx=False)
    assert Arch.from_json((out / "arch.json").read_text()) == other.arch
    assert not (out / "stray").exists()
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_weights_that_are_not_finite_are_not_exported(tmp_path: Path) -> None:
    model = network()
    with torch.no_grad():
        model.norm.weight[0] = torch.nan
    with pytest.raises(ValueError, match="inf"):
        export.export_model(model, tmp_path / "out", ABOUT, onnx=False)
    assert not list(tmp_path.iterdir())


def test_someone_elses_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters").write_text("dear")
    with pytest.raises(ValueError, match="an export replaces only an export"):
        export.export_model(network(), tmp_path, ABOUT, onnx=False)
    assert [file.name for file in tmp_path.iterdir()] == ["letters"]


def test_an_architecture_and_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = network("pit", in_chans=1)
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    (tmp_path / "a.json").write_text(model.arch.to_json())
    words = ("export", str(tmp_path / "a.json"), "--weights", str(tmp_path / "w.safetensors"), "--img-size", "32")
    code, out, _ = run(capsys, *words, "--out", str(tmp_path / "out"), "--no-onnx", "--license", "mit", "--json")
    assert code == 0
    assert json.loads(out)["arch"] == model.arch.id
    loaded = timm.create_model("vitruvius", arch=tmp_path / "out", checkpoint_path=tmp_path / "out").eval()
    with torch.no_grad():
        assert torch.equal(loaded(images(2, 1)), model(images(2, 1)))
    assert 'license: "mit"' in (tmp_path / "out" / "README.md").read_text()
    for wrong, error in (
        ((*words[:2], "--weights", str(tmp_path / "w.safetensors")), "an export of weights needs a folder"),
        (("export", "deit-tiny", *words[2:], "--out", str(tmp_path / "b")), "do not fit vit-"),
        (("export", "nowhere"), "what is exported is a run's folder"),
        (("export", str(tmp_path)), "a run's record cannot be read"),
        ((*words, "--out", str(tmp_path / "a.json" / "b"), "--no-onnx"), "error: Not a directory: "),
    ):
        code, out, err = run(capsys, *wrong)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert error in err
    assert not (tmp_path / "b").exists()


def test_the_command_exports_a_run(run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "export", str(run_folder), "--out", str(tmp_path / "out"), "--no-onnx")
    assert code == 0
    assert "model.safetensors" in out


def test_a_missing_extra_is_named_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vitruvius import extras

    monkeypatch.setattr(extras, "_version", lambda package: None if package == "onnx" else "99.0")
    with pytest.raises(ValueError, match=r"needs the extra 'onnx'.*onnx>=1\.16.*pip install 'vitruvius\[onnx\]'"):
        export.export_model(network(), tmp_path / "out", ABOUT)
    assert not list(tmp_path.iterdir())
