"""The report on an evolution of a space: what is drawn is what the run's files say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vitruvius import Arch, costs, spaces
from vitruvius.pipeline.evolved import FOUND, MOVES, SCORED, SPACE, TABLE, open_evolution, space_folder
from vitruvius.report import write_report
from vitruvius.report._evolution import evolution
from vitruvius.report._page import Section
from vitruvius.report._read import read_contents
from vitruvius.search import Domain, Trial
from vitruvius.search.space_evolution import Rules, search_the_space

RULES = Rules(archs=60, top=6, least=25, resamples=20, most_steps=1)
COUNTING = {"img_size": 16, "num_classes": 10, "in_chans": 1}


def errors_of(archs: Sequence[Arch]) -> list[float]:
    """Deep second stages and wide first ones are good."""
    return [60 - 4 * len(arch.stages[1].blocks) - 0.3 * arch.stages[0].dim for arch in archs]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder of three spaces, whose errors come from a formula instead of superformers."""
    made = tmp_path_factory.mktemp("evolution")
    domain = Domain(spaces.load("s3-nano", img_size=16), "macs <= 8M", **COUNTING)
    config = {"iterations": 2, "budget": "macs <= 8M"}
    record = {"version": 1, "kind": "evolve-space", "config": config, "data": {}, "job": {}, "versions": {}}
    (made / "run.json").write_text(json.dumps(record))
    for t, each in enumerate(search_the_space(domain, errors_of, RULES, iterations=2)):
        place = space_folder(made, t)
        place.mkdir()
        (place / SPACE).write_text(each.domain.space.to_yaml())
        made_of = ["drawn"] * each.sample.drawn + ["widening"] * len(each.sample.widening)
        trials = [
            Trial(arch=arch, scores={"accuracy": 100 - error}, costs=_costs(arch), made=how)
            for arch, error, how in zip(each.sample.archs, each.errors, made_of, strict=True)
        ]
        (place / SCORED).write_text("".join(json.dumps(trial.to_dict()) + "\n" for trial in trials))
        (place / TABLE).write_text(json.dumps(each.table.to_dict()))
        moves = [] if each.evolved is None else [move.to_dict() for move in each.evolved.moves]
        (place / MOVES).write_text(json.dumps({"moved": bool(moves), "moves": moves}))
        best = max(trials, key=lambda trial: trial.value("accuracy"))
        (place / FOUND).write_text(json.dumps({**best.to_dict(), "networks": 9}))
    (made / "result.json").write_text("{}")
    return made


def _costs(arch: Arch) -> dict[str, float]:
    return {"params": costs.params(arch, num_classes=10, in_chans=1), "macs": costs.macs(arch, **COUNTING)}


def section_of(folder: Path) -> Section:
    found = evolution(read_contents(folder))
    assert found is not None
    return found


def figure(section: Section, name: str) -> dict[str, Any]:
    [found] = [part.figures[name] for part in section.parts if name in part.figures]
    return found


def html(section: Section) -> str:
    return "".join(part.html for part in section.parts)


def test_table_5_has_the_best_of_every_space_and_its_costs(folder: Path) -> None:
    said = html(section_of(folder))
    for each in open_evolution(folder):
        assert each.table is not None
        assert each.best is not None
        row = said[said.index(f"<td>{each.space.name}</td>") :].partition("</tr>")[0]
        for value in (
            f"{each.table.whole.error:.2f} %",
            f"{each.table.whole.low:.2f} to {each.table.whole.high:.2f}",
            f"{max(trial.value('accuracy') for trial in each.drawn):.2f} %",
            f"{each.best.value('accuracy'):.2f} %",
            costs.short(each.best.costs["macs"]),
        ):
            assert value in row
    assert "has not finished" not in said


def test_figure_2_has_the_choices_of_every_space(folder: Path) -> None:
    drawn = figure(section_of(folder), "spaces-choices")
    by_name: dict[str, dict[float, set[float]]] = {}
    for trace in drawn["data"]:
        if trace["mode"] == "markers":
            for x, y in zip(trace["x"], trace["y"], strict=True):
                by_name.setdefault(trace["name"], {}).setdefault(x, set()).add(y)
    all_spaces = [each.space for each in open_evolution(folder)]
    assert len(all_spaces) == 3
    assert {name.rpartition(".")[2] for name in by_name} == {"dim", "depth", "qkv", "mlp_ratio", "window"}
    for name, steps in by_name.items():
        assert steps == {t: set(map(float, space.dimensions[name])) for t, space in enumerate(all_spaces)}
    assert all_spaces[2].stages[1].depth == (3, 4, 5)  # the formula's way
    places = {trace["name"]: (trace["xaxis"], trace["yaxis"]) for trace in drawn["data"]}
    assert len(set(places.values())) == len(places)


def test_figure_3_is_by_the_number_of_blocks(folder: Path) -> None:
    section = section_of(folder)
    last = open_evolution(folder)[-1]
    assert last.table is not None
    top = figure(section, "spaces-top-tier")["data"]
    assert [trace["name"] for trace in top] == ["stage 1", "stage 2", "stage 3"]
    for trace in top:
        tendency = last.table[f"stage{trace['name'][6:]}.depth"]
        assert trace["x"] == [each.choice for each in tendency.subspaces]
        assert trace["y"] == [each.measured.top_tier for each in tendency.subspaces if each.measured]
    falls = np.diff(top[1]["y"])
    assert (falls < 0).all()
    blocks = figure(section, "spaces-blocks")["data"]
    for column, trace in ((0, top[0]), (1, top[1])):
        inside = [t for t in blocks if t["xaxis"] == ("x" if column == 0 else f"x{column + 1}")]
        assert [t["name"] for t in inside] == [f"{count:g} blocks" for count in trace["x"]]
        drawn = [sum(len(t["x"]) for t in inside)]
        assert drawn == [len(last.drawn)]


def test_figure_6_is_the_distribution_of_the_drawn_ones(folder: Path) -> None:
    traces = figure(section_of(folder), "spaces-errors")["data"]
    for each, trace in zip(open_evolution(folder), traces, strict=True):
        assert trace["x"] == sorted(100 - trial.value("accuracy") for trial in each.drawn)
        assert trace["y"][-1] == 1
        assert trace["name"].startswith(f"{each.space.name} ")


def test_every_move_stands_beside_its_slope_and_counts(folder: Path) -> None:
    said = html(section_of(folder))
    first = open_evolution(folder)[0]
    assert first.table is not None
    tendency = first.table["stage2.depth"]
    assert f"{tendency.slope:+.2f}" in said
    assert f"{tendency.low:+.2f} to {tendency.high:+.2f}" in said
    widened = 0
    for each in (each for t in first.table.tendencies for each in t.subspaces):
        assert each.measured is not None
        more = f" + {each.widened}" if each.widened else ""
        assert f"{each.choice:g}: {each.measured.error:.2f} ({each.measured.count - each.widened}{more})" in said
        widened += each.widened
    assert widened


def test_a_run_that_is_still_going_has_a_report(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes((folder / "run.json").read_bytes())
    place = space_folder(tmp_path, 0)
    place.mkdir()
    (place / SPACE).write_bytes((space_folder(folder, 0) / SPACE).read_bytes())
    assert "No space has been measured yet" in html(section_of(tmp_path))
    for name in (SCORED, TABLE):
        (place / name).write_bytes((space_folder(folder, 0) / name).read_bytes())
    said = html(section_of(tmp_path))
    assert "1 space was measured" in said
    assert "has not finished" in said


def test_the_page_and_its_pictures(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    pytest.importorskip("matplotlib")
    from PIL import Image

    page = write_report(folder, tmp_path)
    assert "Evolution of the space" in page.read_text()
    for name in ("choices", "blocks", "errors", "top-tier"):
        with Image.open(tmp_path / "report" / f"spaces-{name}.png") as picture:
            pixels = np.asarray(picture.convert("L"))
        assert pixels.std() > 5
