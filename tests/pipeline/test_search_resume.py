"""A search that is killed at any moment and started again is the search that was never stopped."""

from __future__ import annotations

import json
import multiprocessing
import random
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.search_worker import work
from vitruvius.pipeline.search import open_search

SEARCHES: dict[str, dict[str, Any]] = {
    "evolution": {"objectives": "accuracy", "initial": 30, "generations": 5, "parents": 8, "mutations": 12,
                  "crossovers": 13, "budget": "macs <= 300k"},
    "nsga2": {"searcher": "nsga2", "objectives": "accuracy,macs,params", "population": 26, "generations": 5},
    "halving": {"objectives": "accuracy", "initial": 30, "generations": 5, "shares": [0.3, 1.0]},
}  # fmt: skip


def contents(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Every trial but for what it took, in the order of proposal, and the result: population, best, front."""
    opened = open_search(folder)
    kept = [{key: value for key, value in trial.to_dict().items() if key != "seconds"} for trial in opened.trials]
    return kept, json.loads((folder / "result.json").read_text())


def begin(settings: dict[str, Any], folder: Path) -> multiprocessing.process.BaseProcess:
    """A search in a process of its own, which has written a new trial since, if there are any left."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["vitruvius.pipeline.search", "vitruvius.evaluation.accuracy"])
    journal = folder / "study.log"
    before = journal.stat().st_size if journal.exists() else 0
    process = context.Process(target=work, args=(settings, str(folder)))
    process.start()
    until = time.monotonic() + 120
    while process.is_alive() and time.monotonic() < until:
        if journal.exists() and journal.stat().st_size > before + 2000:
            break
        time.sleep(0.002)
    return process


def finish(process: multiprocessing.process.BaseProcess) -> float:
    began = time.monotonic()
    process.join(300)
    assert process.exitcode == 0
    return time.monotonic() - began


def compare(name: str, kills: int, superformer: Path, tmp_path: Path) -> None:
    settings = {"superformer": str(superformer), "device": "cpu", "threads": 1, "seed": 3, **SEARCHES[name]}
    whole = finish(begin(settings, tmp_path / "whole"))
    moments, met = random.Random(0), 0
    for kill in range(kills):
        process = begin(settings, tmp_path / "killed")
        process.join(moments.uniform(0, 1.5 * whole / kills) if kill % 4 else 0)
        met += process.is_alive()
        process.kill()
        process.join()
    finish(begin(settings, tmp_path / "killed"))
    assert met >= kills // 2
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
    assert not list((tmp_path / "killed").glob("**/*.partial"))


@pytest.mark.parametrize("name", SEARCHES)
def test_killed_a_few_times(name: str, superformer_run: Path, tmp_path: Path) -> None:
    compare(name, 3, superformer_run, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHES)
def test_killed_20_times(name: str, superformer_run: Path, tmp_path: Path) -> None:
    compare(name, 20, superformer_run, tmp_path)
