"""S3's checkpoints, timm's and the original release's, give timm's logits; the shapes tell the architecture."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.models.swin_transformer import SwinTransformer
from torch import Tensor

from export.conftest import images, shaken
from test_cli import run
from vitruvius import export, zoo
from vitruvius.export._s3 import arch_of, image_side, published

SIZE = 32


def timms() -> SwinTransformer:
    """An S3 in small: windows of their own a stage, one of which is as large as its grid."""
    widths = {"embed_dim": 16, "depths": (2, 3, 2), "num_heads": (2, 4, 8)}
    return shaken(SwinTransformer(img_size=SIZE, num_classes=6, patch_size=2, window_size=(4, 8, 2), **widths))


def as_released(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """By the original release's names: downsampling at a stage's end, a plain head, index tables and masks kept."""

    def moved(name: str) -> str:
        name = re.sub(r"^layers\.(\d+)\.downsample\.", lambda m: f"layers.{int(m[1]) - 1}.downsample.", name)
        return name.replace("head.fc.", "head.")

    kept = {moved(name): tensor for name, tensor in weights.items()}
    kept["layers.0.blocks.0.attn.relative_position_index"] = torch.zeros(16, 16, dtype=torch.long)
    kept["layers.0.blocks.1.attn_mask"] = torch.zeros(16, 16, 16)  # 16 windows of 4 x 4 tokens: a grid of 16 x 16
    return kept


@pytest.fixture(scope="module")
def model() -> SwinTransformer:
    return timms()


def test_timms_file(model: SwinTransformer, tmp_path: Path) -> None:
    save_file(model.state_dict(), tmp_path / "s3.safetensors")
    found = export.import_checkpoint(tmp_path / "s3.safetensors", "s3", img_size=SIZE)
    assert found.kind == "network"
    with torch.no_grad():
        torch.testing.assert_close(found.model(images(2)), model(images(2)), rtol=1e-4, atol=1e-5)


def test_the_original_releases_file_tells_its_image_size(model: SwinTransformer, tmp_path: Path) -> None:
    weights = as_released(model.state_dict())
    assert "layers.0.downsample.reduction.weight" in weights
    torch.save({"model": weights, "args": argparse.Namespace()}, tmp_path / "S3.pth")
    assert image_side(weights) == SIZE
    found = export.import_checkpoint(tmp_path / "S3.pth", "s3")
    assert found.model.img_size == (SIZE, SIZE)
    with torch.no_grad():
        torch.testing.assert_close(found.model(images(2)), model(images(2)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", ["tiny", "small", "base"])
def test_the_published_networks_are_known(size: str) -> None:
    with torch.device("meta"):
        weights = timm.create_model(f"swin_s3_{size}_224").state_dict()
    for each in (weights, as_released(weights)):
        entry = published(arch_of(each), 224)
        assert entry is not None
        assert entry.name == f"s3-{size}"
    assert published(arch_of(weights), 448) is (None if size == "small" else zoo.entry(f"s3-{size}"))


def test_what_does_not_fit_is_refused(model: SwinTransformer, tmp_path: Path) -> None:
    file, weights = tmp_path / "s3.safetensors", model.state_dict()
    save_file(weights, file)
    for options, error in (
        ({"arch": zoo.load("s3-tiny")}, "of another architecture"),
        ({"img_size": 16}, "do not fit"),  # the second stage's window would shrink
    ):
        with pytest.raises(ValueError, match=error):
            export.import_checkpoint(file, "s3", **{"img_size": SIZE, **options})
    from vitruvius import spaces

    with pytest.raises(ValueError, match="published no superformer"):
        export.import_checkpoint(file, "s3", space=spaces.load("s3"))
    save_file({name: t for name, t in weights.items() if "blocks.1.mlp.fc1" not in name}, file)
    with pytest.raises(ValueError, match="lacks a tensor"):
        export.import_checkpoint(file, "s3")
    save_file({name: t for name, t in weights.items() if name != "norm.bias"}, file)
    with pytest.raises(ValueError, match=r"do not fit swin-\w+: norm\.bias; got 'nothing'; allowed: \(64,\)"):
        export.import_checkpoint(file, "s3", img_size=SIZE)


def test_the_command(model: SwinTransformer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(as_released(model.state_dict()), tmp_path / "S3.pth")
    words = ("import", str(tmp_path / "S3.pth"), "--as", "s3", "--out", str(tmp_path / "out"))
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert "is a single network, swin-" in out
    loaded = timm.create_model("vitruvius", arch=tmp_path / "out", checkpoint_path=tmp_path / "out").eval()
    with torch.no_grad():
        torch.testing.assert_close(loaded(images(2)), model(images(2)), rtol=1e-4, atol=1e-5)
    assert "imported from S3.pth" in (tmp_path / "out" / "README.md").read_text()
    _, out, _ = run(capsys, *words, "--json")
    assert json.loads(out)["kind"] == "network"
