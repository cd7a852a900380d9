"""The commands, as a user types them, and their errors."""

from __future__ import annotations

import json
import re
import sys

import pytest

from vitruvius import Arch, costs, recipes, spaces, zoo
from vitruvius.cli import main


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    saved, sys.argv = sys.argv, ["vitruvius", *words]
    try:
        with pytest.raises(SystemExit) as ended:
            main()
    finally:
        sys.argv = saved
    out = capsys.readouterr()
    return int(ended.value.code or 0), out.out, out.err


def test_spaces(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "spaces")
    assert code == 0
    assert all(name in out for name in spaces.SPACES)
    _, out, _ = run(capsys, "spaces", "--json")
    assert {row["space"]: row["paths"] for row in json.loads(out)}["vitas-v1"] == 401**16 * 30
    _, out, _ = run(capsys, "spaces", "s3")
    assert "stage4.window" in out


def test_a_users_own_space(capsys: pytest.CaptureFixture[str], tmp_path) -> None:
    _, out, _ = run(capsys, "spaces", "vitas-nano", "--json")
    space = spaces.Space.from_dict(json.loads(out))
    assert space == spaces.load("vitas-nano")
    file = tmp_path / "mine.yaml"
    file.write_text(space.to_yaml())
    assert run(capsys, "sample", str(file), "-n", "3", "--json") == run(
        capsys, "sample", "vitas-nano", "-n", "3", "--json"
    )


def test_zoo(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "zoo")
    assert all(name in out for name in zoo.names())
    _, out, _ = run(capsys, "zoo", "--json")
    assert {row["name"]: row["params"] for row in json.loads(out)}["s3-tiny"] == 28_328_674
    _, out, _ = run(capsys, "zoo", "--notes")
    assert "once per patch" in out
    _, out, _ = run(capsys, "zoo", "s3-tiny")
    assert "shifted 14" in out
    assert "224 pixels: 28.33 M, 4.62 G; the paper's 28.1 M *, 4.7 G *, 82.1 % top-1" in out
    assert "equal to timm's swin_s3_tiny_224" in " ".join(out.split())
    _, out, _ = run(capsys, "zoo", "vitas-c")  # an alias; the paper prints no more than this
    assert out.startswith("vitas-block ")


def test_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "recipes")
    assert all(name in out for name in recipes.names())
    _, out, _ = run(capsys, "recipes", "--kind", "finetune", "--json")
    rows = json.loads(out)
    assert [row["name"] for row in rows] == recipes.names("finetune")
    assert {row["name"]: row["settings"]["epochs"] for row in rows}["s3-finetune-384"] == 10
    _, out, _ = run(capsys, "recipes", "vitas-v2-deit-retrain", "--json")
    assert json.loads(out)["notes"] == recipes.load("vitas-v2-deit-retrain").notes
    _, out, _ = run(capsys, "recipes", "vitas-v2-deit-retrain")
    words = " ".join(out.split())
    assert recipes.load("vitas-v2-deit-retrain").notes in words
    assert "│ lr │ 0.0005 │ deit-retrain │" in words


def test_cost_of_a_name_a_file_and_text(capsys: pytest.CaptureFixture[str], tmp_path) -> None:
    _, text, _ = run(capsys, "zoo", "deit-tiny", "--json")
    assert Arch.from_json(text) == zoo.load("deit-tiny")
    file = tmp_path / "net.json"
    file.write_text(text)
    for given in ("deit-tiny", str(file), text):
        code, out, _ = run(capsys, "cost", given, "--json", "--img-size", "384", "--num-classes", "10")
        assert code == 0
        assert json.loads(out)[0]["macs"] == costs.macs(zoo.load("deit-tiny"), img_size=384, num_classes=10)
    _, out, _ = run(capsys, "cost", "pit-ti", "--img-size", "192x256")
    assert f"{costs.params(zoo.load('pit-ti'), img_size=(192, 256)):,}" in out


def test_sample_within_a_window(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("sample", "vitas-v1", "-n", "10", "--macs", "1.2G..1.3G", "--seed", "0", "--json")
    code, out, _ = run(capsys, *words)
    rows = json.loads(out)
    assert code == 0
    assert len(rows) == 10
    for row in rows:
        arch = Arch.from_dict(row["arch"])
        assert arch.id == row["id"]
        assert 1.2e9 <= costs.macs(arch) == row["macs"] <= 1.3e9
    assert run(capsys, *words)[1] == out
    assert run(capsys, *words[:-2], "1", "--json")[1] != out
    assert run(capsys, "sample", "s3-nano", "--params", "<=300k")[0] == 0


@pytest.mark.parametrize("columns", [60, 80, 120, 250])
def test_a_narrow_terminal_shows_every_name_and_number(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for words, whole in ((("zoo",), [*zoo.names(), "10.74 G", "83.8"]), (("spaces",), [*spaces.SPACES])):
        _, out, _ = run(capsys, *words)
        assert all(text in out for text in whole)
        if columns >= 80:
            table = [
                line for line in re.sub(r"\x1b\[\d*m", "", out).splitlines() if line[:8] not in ("* not ou", "Left out")
            ]
            assert max(map(len, table)) <= columns
        assert ("Left out" in out) == (columns <= 80)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("sample", "vitas"), "unknown space"),
        (("sample", "s3", "--macs", "1..2"), "no network of space 's3'"),
        (("sample", "s3", "--macs", "many"), "a budget cannot be read"),
        (("sample", "s3", "--img-size", "102"), "an image side must fit"),
        (("cost", "s3-tiny", "--img-size", "2x3x4"), "an image size cannot be read"),
        (("cost", "missing.json"), "an architecture file cannot be read"),
        (("cost", "net.yaml"), "an architecture file cannot be read"),
        (("cost", "."), "an architecture file cannot be read"),
        (("spaces", "."), "cannot be read"),
        (("cost", "{}"), "an architecture needs the key 'family'"),
        (("zoo", "nothing"), "unknown published architecture"),
        (("recipes", "s3-superformr"), "unknown recipe (did you mean 's3-superformer'?)"),
        (("recipes", "--kind", "retrian"), "unknown kind of recipe (did you mean 'retrain'?)"),
        (("spaces", "mine.yaml"), "cannot be read"),
        (("spaces", "./mine"), "cannot be read"),
        (("cost", "s3-tiny", "--img-size", "0"), "an image size is"),
    ],
)
def test_errors_are_one_line(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], error: str) -> None:
    code, out, err = run(capsys, *words)
    assert code == 2
    assert not out
    assert err.startswith("error: ")
    assert error in err
    assert err.count("\n") == 1
    assert "allowed: " in err


@pytest.mark.parametrize("words", [("nothing",), ("cost",), ("sample", "s3", "--nope"), ("sample", "s3", "-n", "0")])
def test_usage_errors_have_no_traceback(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    code, _, err = run(capsys, *words)
    assert code == 2
    assert "Usage:" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("command", ["spaces", "zoo", "cost", "sample", "recipes"])
def test_help_has_an_example(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, out, _ = run(capsys, command, "--help")
    assert code == 0
    assert f"Example: vitruvius {command}" in out
    assert "--json" in out
