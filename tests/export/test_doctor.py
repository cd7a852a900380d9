"""`vitruvius doctor` says what there is, and what to type for what there is not."""

from __future__ import annotations

import json
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from test_cli import run
from vitruvius import extras

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def test_all_extras_with_their_commands(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "doctor", "--json")
    found = json.loads(out)
    assert code == 0
    assert not found["problems"]
    assert {row["extra"] for row in found["extras"]} == set(PROJECT["optional-dependencies"])
    assert all(row["for"] for row in found["extras"])
    assert found["packages"]["torch"] == version("torch")
    assert found["devices"][-1]["device"] == "cpu"
    for row in found["extras"]:
        assert row["command"] == f"pip install 'vitruvius[{row['extra']}]'"


def test_missing_and_old_packages_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = extras._version
    lacking = {"onnx": None, "onnxruntime": "0.1"}
    monkeypatch.setattr(extras, "_version", lambda package: lacking.get(package, real(package)))
    _, out, _ = run(capsys, "doctor", "--json")
    rows = {row["extra"]: row["missing"] for row in json.loads(out)["extras"]}
    assert rows["onnx"] == ["onnx is missing", "onnxruntime 0.1, wanted >=1.18"]
    assert set(rows["onnx"]) <= set(rows["dev"])  # which names the extra
    assert not rows["bench"] or "onnx" not in str(rows["bench"])
    code, out, _ = run(capsys, "doctor")
    assert code == 0
    assert "pip install 'vitruvius[onnx]'" in out


def test_a_broken_installation_is_an_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    real = extras._version
    monkeypatch.setattr(extras, "_version", lambda package: "1.0" if package == "timm" else real(package))
    code, out, _ = run(capsys, "doctor")
    assert code == 1
    assert "timm 1.0, wanted >=1.0.15" in out


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("doctor", "export", "import"):
        _, out, _ = run(capsys, command, "--help")
        assert f"Example: vitruvius {command}" in out
        assert "--json" in out
