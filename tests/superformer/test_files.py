"""Checkpoints: what was saved is what is loaded, and what does not belong is refused with both sides named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from vitruvius import Superformer, spaces
from vitruvius.superformer._files import RECORD, WEIGHTS
from vitruvius.testing import fixed_batch

OPTIONS = {"sharing": "cyclic", "private": ("qk",), "num_classes": 3}


@pytest.mark.parametrize("name", ["vitas-nano", "s3-nano", "vit-resnas-nano"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_round_trip(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    made = Superformer(spaces.load(name), **OPTIONS, seed=0).to(dtype).eval()
    made.save(tmp_path)
    again = Superformer.load(tmp_path).eval()
    assert again.record() == made.record()
    assert all(torch.equal(made.state_dict()[key], value) for key, value in again.state_dict().items())
    x = fixed_batch(made, 2)
    assert torch.equal(made(x, made.space.largest), again(x, made.space.largest))
    assert sorted(file.name for file in tmp_path.iterdir()) == [RECORD, WEIGHTS]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    Superformer(spaces.load("vitas-nano"), **OPTIONS, seed=0).save(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("autoformer-nano", {}, "of another space; got 'vitas-nano'; allowed: this superformer's: autoformer-nano"),
        (
            "vitas-nano",
            {"sharing": "ordinal"},
            "of another sharing; got 'cyclic'; allowed: this superformer's: ordinal",
        ),
        ("vitas-nano", {"private": ()}, r"of another private; got \['qk'\]; allowed: this superformer's: \[\]"),
        ("vitas-nano", {"num_classes": 5}, "of another num_classes; got 3; allowed: this superformer's: 5"),
        ("vitas-nano", {"in_chans": 1}, "of another in_chans; got 3; allowed: this superformer's: 1"),
        ("vitas-nano", {"img_size": 64}, r"of another img_size; got \[32, 32\]"),
    ],
)
def test_a_checkpoint_of_another_superformer(saved: Path, name: str, options: dict[str, object], error: str) -> None:
    other = Superformer(spaces.load(name), **{**OPTIONS, **options}, seed=0)
    with pytest.raises(ValueError, match=error):
        other.restore(saved)


def test_a_space_of_the_same_name_with_other_choices(saved: Path) -> None:
    other = Superformer(spaces.load("vitas-nano").moved("stage1.dim", 8), **OPTIONS, seed=0)
    with pytest.raises(ValueError, match=r"got 'stage1.dim \(32, 48, 64\)'; .*: stage1.dim \(40, 56, 72\)"):
        other.restore(saved)


def _truncate(folder: Path) -> None:
    file = folder / WEIGHTS
    file.write_bytes(file.read_bytes()[:-1000])


def _reshape(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    save_file({**tensors, "shared.head/weight": torch.zeros(3, 7)}, folder / WEIGHTS)


def _drop(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    tensors.pop("shared.head/weight")
    save_file(tensors, folder / WEIGHTS)


def _add(folder: Path) -> None:
    save_file({**load_file(folder / WEIGHTS), "surplus": torch.zeros(1)}, folder / WEIGHTS)


def _record(folder: Path, **changes: object) -> None:
    file = folder / RECORD
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (_truncate, r"cut off .*; got '.*safetensors, [\d,]+ bytes'; allowed: [\d,]+ bytes, as its header says"),
        (lambda folder: (folder / WEIGHTS).write_bytes(b"no"), r"2 bytes'; allowed: a whole safetensors file"),
        (_reshape, r"does not fit: shared.head/weight; got \(3, 7\); allowed: \(3, 64\), this superformer's"),
        (_drop, "lacks a tensor"),
        (_add, "has a tensor too many; got 'surplus'"),
        (lambda folder: (folder / WEIGHTS).unlink(), "weights are missing"),
        (lambda folder: (folder / RECORD).unlink(), "record cannot be read"),
        (lambda folder: (folder / RECORD).write_text('{"version": 1'), "record is damaged"),
        (lambda folder: (folder / RECORD).write_text("{}"), "needs the key 'version'"),
        (lambda folder: _record(folder, version=9), "unknown version"),
        (lambda folder: _record(folder, sharing="circular"), "unknown sharing rule"),
    ],
)
def test_damaged_checkpoints(saved: Path, damage, error: str) -> None:
    damage(saved)
    with pytest.raises(ValueError, match=error) as caught:
        Superformer.load(saved)
    assert "\n" not in str(caught.value)
