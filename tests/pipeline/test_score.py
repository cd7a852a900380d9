"""`vitruvius score`: TF-TAS's search, from sampling to the table; killed and resumed; on Ray; what cannot be ranked."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from test_cli import run
from vitruvius import Arch, costs, proxies, spaces
from vitruvius.pipeline.score import ScoreConfig, score_space
from vitruvius.proxies import PROXIES, Candidate, Needs, OneByOne

SPACE = "autoformer-nano"
WINDOW = "200K..300K"
COUNTING = {"img_size": 32, "num_classes": 10, "in_chans": 3}
SMALL = ("--num-classes", "10", "--params", WINDOW)


def config(**options: object) -> ScoreConfig:
    given = {"n": 40, "num_classes": 10, "budget": {"params": WINDOW}, **options}
    return ScoreConfig(space=spaces.load(SPACE), **given)


def test_the_best_of_a_budget(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "score", SPACE, "-n", "60", *SMALL, "--top", "5", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["sampled"] == 60
    assert 20 < found["different"] <= 60
    assert found["unranked"] == {}
    scores = [row["dss"] for row in found["top"]]
    assert len(scores) == 5
    assert scores == sorted(scores, reverse=True)
    for row in found["top"]:
        arch = Arch.from_dict(row["arch"])
        assert arch.id == row["id"]
        assert 200e3 <= row["params"] == costs.params(arch, **COUNTING) <= 300e3
        assert row["macs"] == costs.macs(arch, **COUNTING)
        assert 0 <= row["random"] <= 1


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("score", SPACE, "-n", "30", *SMALL, "-p", "dss-reference", "-p", "depth", "--correlations")
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    assert all(name in out for name in ("dss-reference", "depth", "params", "MACs", "random", "Kendall's tau"))
    assert "samples). Kendall's tau of dss-reference: " in out
    assert run(capsys, *words)[1] == out, "a second run says something else"


def test_a_run_is_what_it_is_without_a_folder(tmp_path: Path) -> None:
    free, kept = score_space(config(), quiet=True), score_space(config(), tmp_path / "run", quiet=True)
    assert free.archs == kept.archs
    assert all(np.array_equal(free.scores[name], kept.scores[name]) for name in ("dss", "params", "macs", "random"))
    written = json.loads((tmp_path / "run/result.json").read_text())
    assert [row["id"] for row in written["top"]] == [free.archs[place].id for place in free.best(10)]
    other = tmp_path / "other"
    with pytest.raises(ValueError, match="begun with another seed"):
        score_space(config(seed=1), tmp_path / "run", quiet=True)
    other.mkdir()
    (other / "thesis.tex").write_text("not to be touched")
    with pytest.raises(ValueError, match="a folder of its own"):
        score_space(config(), other, quiet=True)


def test_killed_and_resumed(tmp_path: Path) -> None:
    """Killed twice, at any moment: nothing is measured twice, and the end is that of an undisturbed run."""
    words = ["score", SPACE, "-n", "40", *SMALL, "-p", "synflow", "-p", "snip", "--img-size", "16", "--batch-size", "2"]

    def begun(folder: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "vitruvius", *words, "--out", str(tmp_path / folder)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": _sources()})

    lines = tmp_path / "killed/scores.jsonl"
    for at_least in (1, 8):
        process = begun("killed")
        deadline = time.monotonic() + 300
        while not lines.exists() or lines.read_text().count("\n") < at_least:
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "killed/result.json").exists()
    with lines.open("a") as file:
        file.write('{"place": 39, "id": "torn')
    assert begun("killed").wait() == 0
    assert begun("whole").wait() == 0
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    assert len({row["place"] for row in rows}) == len(rows) > 20
    whole = [json.loads(line) for line in (tmp_path / "whole/scores.jsonl").read_text().splitlines()]
    assert sorted(rows, key=lambda row: row["place"]) == whole
    assert (tmp_path / "killed/result.json").read_bytes() == (tmp_path / "whole/result.json").read_bytes()


def _sources() -> str:
    import vitruvius

    return str(Path(vitruvius.__file__).parent.parent)


@pytest.mark.slow
def test_on_ray_as_here() -> None:
    pytest.importorskip("ray")
    given = config(proxies=("dss", "naswot"), batch_size=2, img_size=16)
    here, there = score_space(given, quiet=True), score_space(given, executor="ray", workers=2, quiet=True)
    for name, values in here.scores.items():
        np.testing.assert_array_equal(there.scores[name], values, err_msg=name)


class Holes(OneByOne):
    """Has nothing to say of some networks, each in its own way."""

    name = "holes"
    source = "a test"
    needs = Needs()
    passes = 0

    def of(self, candidate: Candidate) -> dict[str, float]:
        match candidate.arch.depth:
            case 3:
                return {"holes": math.nan}
            case 4:
                return {"holes": math.inf}
            case 5:
                raise RuntimeError("out of memory\nand more lines")
        return {"holes": float(candidate.arch.depth)}


@pytest.fixture
def _holes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROXIES._things, "holes", Holes())


@pytest.mark.usefixtures("_holes")
def test_what_has_no_score_is_told_and_not_ranked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = config(proxies=("holes",), n=80, budget=None)
    depths = {arch.depth for arch in score_space(given, quiet=True).archs}
    assert depths >= {3, 4, 5, 6}
    for _ in range(2):  # once measured, once read back
        found = score_space(given, tmp_path / "run", top=1000, quiet=True)
        ranked = [found.archs[place].depth for place in found.best(1000)]
        assert set(ranked) == depths - {3, 4, 5}
        why = {arch.id: arch.depth for arch in found.archs}
        told = {why[name]: reason for name, reason in found.unranked().items()}
        assert told == {3: "holes is nan", 4: "holes is inf", 5: "RuntimeError: out of memory"}
        assert np.isfinite(found.scores["params"][[arch.depth != 5 for arch in found.archs]]).all()
    code, out, _ = run(capsys, "score", SPACE, "-n", "80", "--num-classes", "10", "-p", "holes", "--top", "3")
    assert code == 0
    assert "networks have no rank; the first is" in out
    words = ("score", SPACE, "-n", "80", "--num-classes", "10", "-p", "params", "-p", "holes", "--top", "80", "--json")
    text = run(capsys, *words)[1]
    assert not {"NaN", "Infinity"} & set(re.findall(r"\w+", text)), "this is no JSON"
    assert None in [row["holes"] for row in json.loads(text)["top"]]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("score", "autoformer-tin"), "did you mean"),
        (("score", SPACE, "-p", "dsss"), "did you mean 'dss'"),
        (("score", SPACE, "--params", "5M..6M"), "params"),
        (("score", SPACE, "--params", "many"), "many"),
        (("score", SPACE, "--executor", "slurm"), "executor"),
        (("score", SPACE, "--img-size", "33"), "33"),
        (("score", SPACE, "--num-classes", "0"), "num_classes"),
        (("score", SPACE, "--data", "nowhere"), "nowhere"),
        (("score", SPACE, "--device", "tpu"), "tpu"),
        *([] if torch.cuda.is_available() else [(("score", SPACE, "--device", "cuda"), "no GPU")]),
        (("score", SPACE, "-p", "dss", "-p", "dss"), "twice"),
        (("rank", "nothing.csv"), "nothing.csv"),
        (("rank", "."), "run"),
    ],
)
def test_bad_input_is_one_line(words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1
    assert err.startswith("error: ")


def test_proxies_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "proxies")
    assert all(name in out for name in PROXIES)
    rows = {row["proxy"]: row for row in json.loads(run(capsys, "proxies", "--json")[1])}
    assert set(rows) == set(PROXIES)
    assert rows["snip"]["labels"] is True
    assert rows["params"]["passes"] == 0


@pytest.mark.parametrize(
    ("searcher", "objectives", "sets"),
    [
        ("evolution", "dss", ("initial=8", "generations=3", "parents=3", "mutations=4", "crossovers=4")),
        ("nsga2", "dss-reference,macs", ("population=8", "generations=3")),
    ],
)
def test_proxies_are_objectives_of_searchers(
    searcher: str, objectives: str, sets: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sets = (*sets, "num_classes=10")
    words = (
        "search",
        "--space",
        SPACE,
        "--objectives",
        objectives,
        "--searcher",
        searcher,
        "--budget",
        f"params: {WINDOW}",
    )
    out = tmp_path / "run"
    code, _, err = run(
        capsys, *words, *(word for each in sets for word in ("--set", each)), "--out", str(out), "--json"
    )
    assert code == 0, err
    trials = json.loads(run(capsys, "trials", str(out), "--json")[1])
    assert len(trials) >= 16
    name = objectives.split(",")[0]
    archs = [Arch.from_dict(trial["arch"]) for trial in trials]
    assert [trial["scores"][name] for trial in trials] == proxies.score(name, archs, **COUNTING)
    by_generation = {trial["generation"]: [] for trial in trials}
    for trial in trials:
        by_generation[trial["generation"]].append(trial["scores"][name])
    if searcher == "evolution":
        assert max(by_generation[max(by_generation)]) >= np.median(by_generation[min(by_generation)])
    # What the search has found out may be held against a proxy: here against itself.
    code, told, _ = run(capsys, "rank", str(out), "-p", name, "--accuracy", name, "--bands", "1", "--json")
    assert code == 0
    assert json.loads(told)["overall"][name]["kendall"]["value"] == pytest.approx(1)
