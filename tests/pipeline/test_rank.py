"""`vitruvius rank`: proxies held against known accuracies, with the baselines always beside them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from conftest import some_archs
from test_cli import run
from vitruvius import Arch, costs, proxies, spaces, zoo
from vitruvius.pipeline.rank import known_of, rank_proxies

COUNTING = {"img_size": 32, "num_classes": 10, "in_chans": 3}
WORDS = ("--num-classes", "10", "--img-size", "32")


@pytest.fixture(scope="module")
def archs() -> list[Arch]:
    return list(dict.fromkeys(some_archs(spaces.load("autoformer-nano"), 40)))


@pytest.fixture
def table(archs: list[Arch], tmp_path: Path) -> Path:
    """Accuracies that grow with the parameters, but for noise; a row without one, as a failed trial has none."""
    params = np.array(costs.params(archs, **COUNTING))
    noisy = 90 + params / params.max() + np.random.default_rng(0).normal(scale=0.2, size=len(archs))
    rows = [{"arch": arch.to_dict(), "accuracy": value} for arch, value in zip(archs, noisy.tolist(), strict=True)]
    file = tmp_path / "accuracies.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"arch": archs[0].to_dict(), "accuracy": None}]))
    return file


def test_the_numbers_are_scipys(table: Path, archs: list[Arch], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "rank", str(table), "-p", "dss", *WORDS, "--bands", "2", "--resamples", "50", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["networks"] == len(archs)
    assert list(found["overall"]) == ["dss", "params", "macs", "random"]
    accuracies = known_of(table).accuracies
    params = np.array(costs.params(archs, **COUNTING), dtype=float)
    for name, row in found["overall"].items():
        scores = np.array(proxies.score(name, archs, **COUNTING))
        assert row["kendall"]["value"] == pytest.approx(stats.kendalltau(scores, accuracies).statistic)
        assert row["spearman"]["value"] == pytest.approx(stats.spearmanr(scores, accuracies).statistic)
        assert row["pearson"]["value"] == pytest.approx(stats.pearsonr(scores, accuracies).statistic)
        for kind in ("kendall", "spearman", "pearson", "near"):
            assert row[kind]["low"] <= row[kind]["value"] <= row[kind]["high"]
        near = [
            (i, j)
            for i in range(len(archs))
            for j in range(i)
            if abs(params[i] - params[j]) <= 0.1 * max(params[i], params[j])
        ]
        signs = [np.sign(scores[i] - scores[j]) * np.sign(accuracies[i] - accuracies[j]) for i, j in near]
        assert row["near_pairs"] == len(near)
        ties = [sum(values[i] == values[j] for i, j in near) for values in (scores, accuracies)]
        scale = np.sqrt((len(near) - ties[0]) * (len(near) - ties[1]))
        assert row["near"]["value"] == pytest.approx(sum(signs) / scale)
    assert found["overall"]["params"]["kendall"]["value"] > 0.5 > abs(found["overall"]["random"]["kendall"]["value"])
    small, large = found["bands"]
    assert small["params"][1] < large["params"][0]
    assert sum(band["proxies"]["dss"]["n"] for band in (small, large)) == len(archs)
    inside = (params >= small["params"][0]) & (params <= small["params"][1])
    scores = np.array(proxies.score("dss", archs, **COUNTING))
    expected = stats.kendalltau(scores[inside], accuracies[inside]).statistic
    assert small["proxies"]["dss"]["kendall"]["value"] == pytest.approx(expected)


def test_the_table_says_intervals_bands_and_baselines(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("rank", str(table), "-p", "synflow", *WORDS, "--bands", "200K..300K", "--resamples", "20")
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert "40 networks" in out.splitlines()[0]
    assert "200.00 K..300.00 K parameters" in out.replace("0K", "0 K") or "200" in out
    assert "pairs are within 10% of each other's parameters" in out
    assert "95 % intervals of 20 bootstrap resamples" in out
    for name in ("synflow", "params", "macs", "random"):
        assert out.count(f"{name} ") >= 2, name
    assert run(capsys, *words)[1] == out


def test_a_csv_of_names(tmp_path: Path) -> None:
    file = tmp_path / "some.csv"
    entry = next(entry for entry in zoo.entries() if entry.name == "deit-small")
    with file.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, ["name", "top1"])
        writer.writeheader()
        writer.writerows({"name": name, "top1": top1} for name, top1 in [("deit-tiny", 72.2), (entry.arch.id, 79.8)])
        writer.writerow({"name": "deit-base", "top1": 81.8})
        writer.writerow({"name": "s3-tiny", "top1": ""})
    known = known_of(file, "top1")
    assert known.archs == [zoo.load("deit-tiny"), zoo.load("deit-small"), zoo.load("deit-base")]
    found = rank_proxies(known, ["depth"], resamples=10, quiet=True)
    assert found.overall["params"].kendall.value == 1
    assert np.isnan(found.overall["depth"].kendall.value), "three networks of twelve blocks each"


def test_a_run_goes_on(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("rank", str(table), "-p", "dss", *WORDS, "--resamples", "20", "--out", str(tmp_path / "run"))
    first = run(capsys, *words, "--json")[1]
    lines = (tmp_path / "run/scores.jsonl").read_text()
    assert run(capsys, *words, "--json")[1] == first
    assert (tmp_path / "run/scores.jsonl").read_text() == lines
    code, _, err = run(capsys, *words, "--seed", "1")
    assert code == 2
    assert "begun with another seed" in err


@pytest.mark.parametrize(
    ("text", "words", "says"),
    [
        ("name,accuracy\ndeit-tiny,72\ndeit-small,79\n", (), "3 or more"),
        ("name,top1\ndeit-tiny,72\n", (), "has no column 'accuracy'"),
        ("network,accuracy\ndeit-tiny,72\n", (), "names no architecture"),
        ("name,accuracy\ndeit-tiny,good\n", (), "is no number"),
        ("name,accuracy\ndeit-tinny,72\n", (), "deit-tinny"),
        ("", (), "3 or more"),
        ("name,accuracy\ndeit-tiny,72\ndeit-small,79\ndeit-base,81\n", ("--bands", "0"), "bands"),
        ("name,accuracy\ndeit-tiny,72\ndeit-small,79\ndeit-base,81\n", ("--bands", "5M..x"), "bands"),
        ("name,accuracy\ndeit-tiny,72\ndeit-small,79\ndeit-base,81\n", ("--within", "10"), "share"),
        ("name,accuracy\ndeit-tiny,72\ndeit-small,79\ndeit-base,81\n", ("-p", "nope"), "proxy"),
    ],
)
def test_bad_tables_are_one_line(
    text: str, words: tuple[str, ...], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "some.csv"
    file.write_text(text)
    code, out, err = run(capsys, "rank", str(file), "-p", "params", *words)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1
