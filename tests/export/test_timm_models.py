"""timm makes our networks: by name, from records, from folders, as features, at other sizes and classes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

from export.conftest import FAMILIES, SIZE, images, network
from vitruvius import build, export, spaces, zoo
from vitruvius.export._bundle import About
from vitruvius.models import Backbone
from vitruvius.training.resample import at_size

ABOUT = About(name="mine", mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export.export_model(network(), tmp_path_factory.mktemp("exports") / "swin", ABOUT, onnx=False).folder


def test_every_network_of_the_zoo_is_registered() -> None:
    listed = set(timm.list_models("vitruvius*"))
    assert listed == {"vitruvius"} | {f"vitruvius_{name.replace('-', '_')}" for name in zoo.names()}
    for name in zoo.names():
        height = timm.models.get_pretrained_cfg(f"vitruvius_{name.replace('-', '_')}").input_size[1]
        assert height in zoo.entry(name).printed


@pytest.mark.parametrize(
    "name", ["deit-tiny", "s3-tiny", "vit-resnas-tiny", "pit-ti", "twins-svt-small", "autoformer-tiny"]
)
def test_a_network_of_the_zoo_by_name(name: str) -> None:
    with torch.device("meta"):
        model = timm.create_model(f"vitruvius_{name.replace('-', '_')}", num_classes=10, in_chans=1, drop_path_rate=0.1)
        expected = build(zoo.load(name), num_classes=10, in_chans=1)
    assert isinstance(model, Backbone)
    assert model.arch == zoo.load(name)
    assert {k: v.shape for k, v in model.state_dict().items()} == {k: v.shape for k, v in expected.state_dict().items()}
    assert model.stages[-1].blocks[-1].drop_path == pytest.approx(0.1)
    conv = model.get_submodule(model.pretrained_cfg["first_conv"])
    assert conv.in_channels == 1
    assert model.get_submodule(model.pretrained_cfg["classifier"]) is model.head


def test_it_has_no_published_weights() -> None:
    with pytest.raises(RuntimeError, match="No pretrained weights"):
        timm.create_model("vitruvius_deit_tiny", pretrained=True)


def test_an_architecture_in_any_form(tmp_path: Path) -> None:
    arch = FAMILIES["twins"]
    (tmp_path / "a.json").write_text(arch.to_json())
    for form in (arch, arch.to_dict(), arch.to_json(), str(tmp_path / "a.json"), tmp_path / "a.json"):
        model = timm.create_model("vitruvius", arch=form, img_size=SIZE, num_classes=3)
        assert model.arch == arch
        assert model(images(2)).shape == (2, 3)
    with torch.device("meta"):
        assert timm.create_model("vitruvius", arch="s3-tiny").arch == zoo.load("s3-tiny")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, "needs an architecture"),
        ({"arch": "s3-tiyn"}, r"unknown published architecture \(did you mean 's3-tiny'\?\)"),
        ({"arch": "deit-tiny", "dropout": 0.1}, "unknown dropout rate or other option"),
        ({"arch": "deit-tiny", "img_size": 100}, "an image side must fit"),
        ({"arch": "deit-tiny", "global_pool": "max"}, "unknown global_pool"),
    ],
)
def test_what_cannot_be_made_is_refused(options: dict[str, object], error: str) -> None:
    with pytest.raises(ValueError, match=error), torch.device("meta"):
        timm.create_model("vitruvius", **options)


def test_a_folder_that_is_no_export(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is no exported network"):
        timm.create_model("vitruvius", arch=str(tmp_path))


def test_a_folder_and_a_file_of_weights(folder: Path, tmp_path: Path) -> None:
    model, x = network(), images(2)
    for place in (folder, str(folder), folder / "model.safetensors"):
        loaded = timm.create_model("vitruvius", arch=folder, checkpoint_path=place).eval()
        assert torch.equal(loaded(x), model(x))
    same = timm.create_model("vitruvius", arch=model.arch, num_classes=7, img_size=SIZE, checkpoint_path=folder).eval()
    assert torch.equal(same(x), model(x))
    assert torch.equal(timm.create_model("vitruvius", arch=folder, pretrained=True).eval()(x), model(x))
    with pytest.raises(FileNotFoundError):
        timm.create_model("vitruvius", arch=folder, checkpoint_path=tmp_path)


def test_other_classes_and_channels(folder: Path) -> None:
    model = network()
    loaded = timm.create_model(f"local-dir:{folder}", pretrained=True, num_classes=4, in_chans=1).eval()
    assert loaded(images(2, 1)).shape == (2, 4)
    own, theirs = model.state_dict(), loaded.state_dict()
    assert torch.allclose(theirs["patch_embed.weight"], own["patch_embed.weight"].sum(1, keepdim=True))
    assert all(torch.equal(theirs[name], own[name]) for name in own if not name.startswith(("patch_embed.w", "head.")))


@pytest.mark.parametrize("family", FAMILIES)
def test_another_image_size(family: str, tmp_path: Path) -> None:
    """As training carries weights to it."""
    model = network(family)
    export.export_model(model, tmp_path / "out", ABOUT, onnx=False)
    loaded = timm.create_model(f"local-dir:{tmp_path / 'out'}", pretrained=True, img_size=2 * SIZE).eval()
    expected, x = at_size(model, 2 * SIZE, windows="pad"), images(1, 3, 2 * SIZE)
    with torch.no_grad():
        torch.testing.assert_close(loaded(x), expected(x))


@pytest.mark.parametrize("family", FAMILIES)
def test_features_of_an_exported_folder(family: str, tmp_path: Path) -> None:
    model, x = network(family), images(2)
    out = export.export_model(model, tmp_path / "out", ABOUT, onnx=False).folder
    expected = model.forward_intermediates(x, intermediates_only=True)
    for features in (
        timm.create_model("vitruvius", arch=out, checkpoint_path=out, features_only=True),
        timm.create_model(f"local-dir:{out}", pretrained=True, features_only=True),
    ):
        found = features.eval()(x)
        assert [part.shape[1] for part in found] == features.feature_info.channels()
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    (first,) = timm.create_model(
        "vitruvius", arch=out, checkpoint_path=out, features_only=True, out_indices=(0,)
    ).eval()(x)
    assert torch.equal(first, expected[0])


def test_pooling_is_timms_option() -> None:
    arch = spaces.load("vitas-nano").smallest
    assert timm.create_model("vitruvius", arch=arch, img_size=SIZE, global_pool="avg").global_pool == "mean"
    tokens = timm.create_model("vitruvius", arch=arch, img_size=SIZE, num_classes=0, global_pool="")
    assert tokens(images(1)).ndim == 3


def test_timms_own_save_is_a_folder_too(folder: Path, tmp_path: Path) -> None:
    model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    timm.models.save_for_hf(model, tmp_path / "saved", safe_serialization=True)
    again = timm.create_model(f"local-dir:{tmp_path / 'saved'}", pretrained=True).eval()
    assert torch.equal(again(images(2)), model(images(2)))


# -- fresh processes ---------------------------------------------------------------------------------------------------


def python(code: str, *arguments: object) -> str:
    """What a fresh process prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-W", "error::UserWarning", "-c", code, *map(str, arguments)]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def test_import_vitruvius_brings_neither_torch_nor_timm() -> None:
    assert python("import sys, vitruvius; print(sorted({'torch', 'timm', 'torchvision'} & set(sys.modules)))") == "[]\n"


_LOAD = """
import sys, numpy, torch
folder, images, logits = sys.argv[1:]
x = torch.from_numpy(numpy.load(images))
expected = torch.from_numpy(numpy.load(logits))
for model in (
    timm.create_model(f"local-dir:{folder}", pretrained=True),
    timm.create_model("vitruvius", arch=folder, checkpoint_path=folder),
):
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(x), expected)
with torch.device("meta"):
    print(type(timm.create_model("vitruvius_s3_tiny")).__name__, len(timm.list_models("vitruvius_*")))
"""
_ORDERS = {
    "timm first": "import timm\nimport vitruvius\n",
    # Others ask whether there is a timm without importing it; the hook must outlive that, and leave when it is done.
    "vitruvius first": """
import vitruvius, sys
from importlib.util import find_spec
waiting = [finder for finder in sys.meta_path if type(finder).__module__.startswith("vitruvius")]
assert len(waiting) == 1 and find_spec("timm").name == "timm" and "timm" not in sys.modules
import timm
assert waiting[0] not in sys.meta_path and timm.__spec__.loader.get_source("timm")
""",
}


@pytest.mark.parametrize("order", _ORDERS)
def test_a_fresh_process_that_imports_only_timm_and_vitruvius(order: str, folder: Path, tmp_path: Path) -> None:
    import numpy as np

    x = images(2)
    with torch.no_grad():
        np.save(tmp_path / "logits.npy", network()(x).numpy())
    np.save(tmp_path / "images.npy", x.numpy())
    said = python(_ORDERS[order] + _LOAD, folder, tmp_path / "images.npy", tmp_path / "logits.npy")
    assert said == f"Swin {len(zoo.names())}\n"


def test_a_config_of_another_program(tmp_path: Path) -> None:
    (tmp_path / "arch.json").write_text(FAMILIES["vit"].to_json())
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "resnet50"}))
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"an exported folder's config\.json cannot be read"):
        timm.create_model("vitruvius", arch=tmp_path)
