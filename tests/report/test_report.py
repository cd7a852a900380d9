"""Reports of every kind of run: what is read is what is shown; what is missing is said, not invented."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from vitruvius.arch import Arch
from vitruvius.pipeline.attention import add_attention
from vitruvius.pipeline.search import open_search
from vitruvius.report import write_report
from vitruvius.report._candidates import searches_of
from vitruvius.report._read import read_contents
from vitruvius.report.drawing import drawing
from vitruvius.search import Objective, front
from vitruvius.zoo import load as published

pytest.importorskip("plotly")
pytest.importorskip("matplotlib")

_SECTION = re.compile(r'<section id="([a-z]+)">')


def made(folder: Path, out: Path) -> tuple[str, dict[str, Any]]:
    """The page without plotly, and the data of its figures."""
    page = write_report(folder, out).read_text()
    body, script = page.split('<script id="given" type="application/json">', 1)
    return body, json.loads(script.split("</script>", 1)[0])


def test_a_folder_of_runs(runs: Path, tmp_path: Path) -> None:
    body, given = made(runs, tmp_path)
    expected = ["summary", "search", "superformer", "retraining", "inherited", "provenance"]
    assert _SECTION.findall(body) == expected
    assert "http" not in body
    for name in given["figures"]:
        with Image.open(tmp_path / "report" / f"{name.replace('/', '-')}.png") as picture:
            assert picture.width > 500
    (search,) = searches_of(read_contents(runs))
    shown = given["figures"]["search-search-macs"]["data"]
    assert [point[0] for point in shown[0]["customdata"]] == [trial.arch.id for trial in search.complete]
    on_front = front(search.complete, (Objective.of("accuracy"), Objective.of("macs")))
    assert {point[0] for point in shown[1]["customdata"]} == {trial.arch.id for trial in on_front}
    assert {trial.arch.id for trial in search.complete} <= set(given["archs"])  # a click on any point draws
    volumes = given["figures"]["search-search-hypervolume"]["data"][0]["y"]
    assert volumes == sorted(volumes)
    assert volumes[-1] == 1


def test_inherited_and_trained_accuracies_are_those_of_the_runs(runs: Path, tmp_path: Path) -> None:
    body, given = made(runs, tmp_path)
    (trace,) = given["figures"]["inherited"]["data"]
    known = {trial.arch.id: trial.scores["accuracy"] for trial in searches_of(read_contents(runs))[0].complete}
    for number, (x, y) in enumerate(zip(trace["x"], trace["y"], strict=True)):
        folder = runs / f"net-{number}"
        arch = Arch.from_dict(json.loads((folder / "run.json").read_text())["job"]["arch"])
        assert x == known[arch.id]
        assert y == json.loads((folder / "result.json").read_text())["test"]["accuracy"]["top1"]
    assert re.search(r"Over 4 networks: Kendall -?\d\.\d\d, Spearman -?\d\.\d\d\.", body)


@pytest.mark.parametrize(
    ("name", "sections"),
    [
        ("super", ["summary", "superformer", "provenance"]),
        ("search", ["summary", "search", "provenance"]),
        ("net-0", ["summary", "retraining", "provenance"]),
    ],
)
def test_each_run_by_itself(runs: Path, tmp_path: Path, name: str, sections: list[str]) -> None:
    body, _ = made(runs / name, tmp_path)
    assert _SECTION.findall(body) == sections
    assert ", finished<" in body


def test_attention_is_added_to_a_network(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "net-0", tmp_path / "net")
    add_attention(tmp_path / "net")
    body, given = made(tmp_path / "net", tmp_path / "out")
    assert _SECTION.findall(body) == ["summary", "retraining", "attention", "provenance"]
    assert body.count("data:image/png;base64,") == 1 + len(given["figures"]["attention-distance"]["data"])
    assert (tmp_path / "out" / "report" / "attention-image.png").exists()
    add_attention(runs / "super")  # nothing for a superformer
    assert not (runs / "super" / "analysis").exists()


def test_unfinished_runs_say_so(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs, tmp_path / "all")
    for name in ("super", "search", "net-1"):
        (tmp_path / "all" / name / "result.json").unlink()
    log = tmp_path / "all" / "super" / "log.jsonl"
    first, *_ = (line for line in log.read_text().splitlines() if '"epoch"' in line)
    log.write_text(first + "\n" + first[: len(first) // 2])  # killed while it wrote the second
    body, given = made(tmp_path / "all" / "super", tmp_path / "out")
    assert "not finished: 1 of 2 epochs" in body
    assert len(given["figures"]["health-run-loss"]["data"][0]["x"]) == 1
    body, _ = made(tmp_path / "all" / "search", tmp_path / "out")
    assert "not finished: this is what there is so far" in body
    assert "The search has not finished" in body
    body, given = made(tmp_path / "all", tmp_path / "out")
    assert "inherited" not in given["figures"]
    assert "3 networks were trained, too few for a rank correlation" in body
    assert "too few for a rank correlation" in body


def test_a_run_that_has_only_begun(runs: Path, tmp_path: Path) -> None:
    for name in ("super", "search", "net-0"):
        (tmp_path / name).mkdir()
        shutil.copy(runs / name / "run.json", tmp_path / name)
    body, _ = made(tmp_path / "super", tmp_path / "out")
    assert "not finished: 0 of 2 epochs" in body
    assert _SECTION.findall(body) == ["provenance"]
    for name in ("search", "net-0"):
        made(tmp_path / name, tmp_path / "out")


def test_scores(scored: Path, tmp_path: Path) -> None:
    body, given = made(scored, tmp_path)
    assert _SECTION.findall(body) == ["scores", "provenance"]
    top = json.loads((scored / "result.json").read_text())["top"]
    every, best = given["figures"]["score-params"]["data"]
    assert len(every["x"]) == 12
    assert best["y"] == pytest.approx([row["dss"] for row in top])
    assert best["x"] == pytest.approx([row["params"] / 1e6 for row in top])
    assert [link[0] for link in best["customdata"]] == [row["id"] for row in top]
    assert (tmp_path / "report" / "scores-networks-5.png").exists()


def test_scores_that_are_no_numbers_are_left_out(scored: Path, tmp_path: Path) -> None:
    shutil.copytree(scored, tmp_path / "score")
    lines = (tmp_path / "score" / "scores.jsonl").read_text().splitlines()
    row = json.loads(lines[-1])
    row["parts"] = dict.fromkeys(row["parts"], "nan")
    (tmp_path / "score" / "scores.jsonl").write_text("\n".join([*lines[:-1], json.dumps(row)]) + "\n")
    (tmp_path / "score" / "result.json").unlink()
    body, given = made(tmp_path / "score", tmp_path / "out")
    assert given["figures"]["score-params"]["data"][0]["y"].count(None) == 1
    assert "The scoring has not finished" in body


def test_ranks(ranked: Path, tmp_path: Path) -> None:
    body, given = made(ranked, tmp_path)
    assert _SECTION.findall(body) == ["ranking", "provenance"]
    known = dict(json.loads((ranked / "run.json").read_text())["config"]["networks"])
    assert sorted(given["figures"]["rank-snip"]["data"][0]["y"]) == sorted(known.values())
    value = json.loads((ranked / "result.json").read_text())["overall"]["snip"]["kendall"]["value"]
    assert f"snip: Kendall&#x27;s τ {value:+.2f}" in body


def test_commands_and_versions(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "super", tmp_path / "super")
    (tmp_path / "super" / "commands.txt").write_text("vitruvius train --out 'a <b>'\n")
    body, _ = made(tmp_path / "super", tmp_path / "out")
    assert "<pre>vitruvius train --out &#x27;a &lt;b&gt;&#x27;</pre>" in body
    record = json.loads((runs / "super" / "run.json").read_text())
    assert f"torch {record['versions']['torch']}" in body
    assert record["data"]["hash"] in body


def test_a_latency_search(runs: Path, tmp_path: Path) -> None:
    """Predicted and measured, from what a search leaves beside its trials."""
    shutil.copytree(runs / "search", tmp_path / "search")
    accuracy = {"by": "predictor", "spearman": 0.9, "kendall": 0.8, "median_error": 0.1, "error_90": 0.2}
    setting = {"img_size": [8, 8], "batch": 1, "threads": 1}
    told = {"checked": [[0.001, 0.0011], [0.002, 0.0019]], "spread": 0.01, "machine": "here", "setting": setting}
    (tmp_path / "search" / "latency.json").write_text(json.dumps({**told, "accuracy": [accuracy]}))
    tried = [{"id": "vit-1", "predicted": {"latency": 0.001}, "measured": {"latency": 0.002}, "inside": False}]
    (tmp_path / "search" / "measured.json").write_text(json.dumps({"winner": None, "tried": tried}))
    body, given = made(tmp_path / "search", tmp_path / "out")
    assert "latency" in _SECTION.findall(body)
    _, unseen, best = given["figures"]["latency-search"]["data"]
    assert (unseen["x"], unseen["y"]) == ([1.0, 2.0], pytest.approx([1.1, 1.9]))
    assert (best["x"], best["y"]) == ([1.0], [2.0])


def test_the_best_is_what_the_search_gave(runs: Path, tmp_path: Path) -> None:
    """Not the best of its trials, as where that one missed a latency budget when it was measured."""
    shutil.copytree(runs / "search", tmp_path / "search")
    file = tmp_path / "search" / "result.json"
    result = json.loads(file.read_text())
    other = next(trial for trial in open_search(tmp_path / "search").trials if trial.arch.id != result["best"]["id"])
    file.write_text(json.dumps({**result, "best": {**result["best"], "id": other.arch.id}}))
    (search,) = searches_of(read_contents(tmp_path / "search"))
    assert search.best() == other


def test_the_searches_of_an_evolution(runs: Path, tmp_path: Path) -> None:
    """New candidates and those that the errors needed; what was found is what its search said."""
    place = tmp_path / "space-0"
    shutil.copytree(runs / "super", place / "superformer")
    lines = [json.dumps(trial.to_dict()) for trial in searches_of(read_contents(runs))[0].trials]
    (place / "scored.jsonl").write_text("".join(f"{line}\n" for line in lines[:5]))
    (place / "searched.jsonl").write_text("".join(f"{line}\n" for line in lines[5:]) + lines[0][:40])
    (place / "search.json").write_text(json.dumps({**json.loads(lines[7]), "networks": 9}))
    (tmp_path / "run.json").write_text(json.dumps({"kind": "evolve-space", "config": {}}))
    (search,) = searches_of(read_contents(tmp_path))
    assert (search.name, search.space, search.img_size) == ("space-0", "vitas-nano", (8, 8))
    assert [trial.arch.id for trial in search.trials] == [json.loads(line)["id"] for line in lines]
    assert search.best().arch.id == json.loads(lines[7])["id"]
    (place / "search.json").unlink()
    (search,) = searches_of(read_contents(tmp_path))
    assert not search.finished
    assert search.best().value("accuracy") == max(trial.value("accuracy") for trial in search.complete)


@pytest.mark.parametrize("name", ["s3-tiny", "vitas-a", "twins-svt-small", "vit-resnas-tiny", "tf-tas-pit-ti"])
def test_a_drawing_says_what_the_network_is(name: str) -> None:
    arch = published(name)
    drawn = drawing(arch, 224)
    for stage, shown in zip(arch.stages, drawn["stages"], strict=True):
        assert shown["dim"] == stage.dim
        for block, (mixer, heads, qkv, mlp, reach) in zip(stage.blocks, shown["blocks"], strict=True):
            assert (mixer, heads, mlp) == (block.mixer, block.heads, block.mlp)
            assert qkv == 2 * block.qk + block.v
            assert reach == (block.window or block.reduction)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a report is made of a run folder; got .*; allowed: a folder with run\.json"):
        write_report(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(ValueError, match="a run's file cannot be read"):
        write_report(tmp_path)
