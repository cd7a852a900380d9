"""`vitruvius latency`, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from test_cli import run
from vitruvius import spaces

SMALL = ("--img-size", "32", "--num-classes", "10", "--repeats", "2")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITRUVIUS_CACHE", str(tmp_path / "cache"))


def test_measure_two_networks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    space = spaces.load("vitas-nano")
    texts = [space.smallest.to_json(), str(tmp_path / "large.json")]
    Path(texts[1]).write_text(space.largest.to_json())
    code, out, _ = run(capsys, "latency", *texts, *SMALL, "--json")
    assert code == 0
    found = json.loads(out)
    assert found["setting"]["img_size"] == [32, 32]
    assert [row["id"] for row in found["networks"]] == [space.smallest.id, space.largest.id]
    for row in found["networks"]:
        assert 0 < row["least"] <= row["low"] <= row["latency"] <= row["high"]
        assert row["throughput"] == 1 / row["latency"]
        assert not row["cached"]
    again = json.loads(run(capsys, "latency", *texts, *SMALL, "--json")[1])
    assert [{**row, "cached": False} for row in again["networks"]] == found["networks"]
    assert all(row["cached"] for row in again["networks"])
    assert not json.loads(run(capsys, "latency", texts[0], *SMALL, "--json", "--fresh")[1])["networks"][0]["cached"]
    _, out, _ = run(capsys, "latency", *texts, *SMALL)
    assert "1 CPU thread" in out
    assert "middle half" in out
    assert space.smallest.id in out


def test_build_and_use_a_predictor(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "predictor.json"
    few = ("--held-out", "3", "--save", str(file))
    code, out, _ = run(capsys, "latency", "--space", "autoformer-nano", *few, "--num-classes", "10", "--repeats", "1")
    assert code == 0
    assert "24 of 24 parts measured" in out
    assert "macs" in out
    assert file.exists()
    arch = spaces.load("autoformer-nano").smallest.to_json()
    code, out, _ = run(capsys, "latency", arch, "--predictor", str(file), "--repeats", "2", "--json")
    (row,) = json.loads(out)["networks"]
    assert row["error"] == pytest.approx(row["predicted"] / row["latency"] - 1)


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ((), "latency is measured of architectures"),
        (("deit-tiny", "--space", "vitas-nano", "--save", "p.json"), "latency is measured of architectures"),
        (("--space", "vitas-nano"), "--space and --save go together"),
        (("deit-tiny", "--save", "p.json"), "--space and --save go together"),
        (("--space", "vitas-nano", "--save", "p.json", "--predictor", "q.json"), "--predictor reads what --space"),
        (("deit-tiny", "--predictor", "q.json"), "a latency predictor cannot be read"),
        (("deit-teeny",), "did you mean 'deit-tiny'"),
        (("deit-tiny", "--device", "gpu"), "unknown device"),
        (("deit-tiny", "--dtype", "float64"), "unknown dtype"),
        (("deit-tiny", "--runtime", "onnx", "--compile"), "ONNX Runtime is timed on the CPU"),
        (("deit-tiny", "--clock", "cpu", "--threads", "2"), "counts one thread"),
        (("deit-tiny", "--repeats", "0"), "number of repeats must be a positive"),
        (("deit-tiny", "--batch", "0"), "the batch must be a positive"),
        (("deit-tiny", "--img-size", "100"), "an image side must fit"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], rule: str) -> None:
    code, out, error = run(capsys, "latency", *words)
    assert code == 2
    assert rule in error
    assert len(error.strip().splitlines()) == 1
    assert not out
