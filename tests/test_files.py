"""Run folders: one process at a time, whatever the command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.journeys import shortest
from vitruvius import spaces
from vitruvius.files import alone_in
from vitruvius.pipeline.evolve_config import read_evolve_config
from vitruvius.pipeline.evolve_space import evolve_space
from vitruvius.pipeline.journey import Journey, read_journey_config
from vitruvius.pipeline.score import ScoreConfig, score_space
from vitruvius.pipeline.search import read_search_config, search
from vitruvius.training import RetrainConfig, read_config, train

BUSY = "another process is at work in this folder"
SMALL = {"data": "digits", "space_options": {"img_size": 8, "patch": 2}, "epochs": 1}


def begin_training(folder: Path) -> None:
    train(
        read_config(RetrainConfig, {"recipe": "digits-retrain", "arch": spaces.load("vitas-nano").smallest.to_json()}),
        folder,
    )


def begin_search(folder: Path) -> None:
    search(read_search_config({"space": "vitas-nano", "objectives": ["dss"]}), folder)


def begin_evolution(folder: Path) -> None:
    evolve_space(read_evolve_config({"space": "s3-nano", "superformer": SMALL}), folder)


def begin_journey(folder: Path) -> None:
    Journey(read_journey_config(shortest()), folder).run()


def begin_scores(folder: Path) -> None:
    score_space(ScoreConfig(space=spaces.load("autoformer-nano"), n=3), folder)


@pytest.mark.parametrize("begin", [begin_training, begin_search, begin_evolution, begin_journey, begin_scores])
def test_two_at_once_in_one_folder_are_refused(begin: Callable[[Path], Any], tmp_path: Path) -> None:
    with alone_in(tmp_path / "run"), pytest.raises(ValueError, match=BUSY):
        begin(tmp_path / "run")


def test_a_lock_goes_with_its_process(tmp_path: Path) -> None:
    """However that ends."""
    code = "import os, sys; from pathlib import Path; from vitruvius.files import alone_in\n"
    code += "with alone_in(Path(sys.argv[1])): print('locked', flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", code, str(tmp_path / "run")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(ValueError, match=BUSY), alone_in(tmp_path / "run"):
            pass
        process.kill()
    with alone_in(tmp_path / "run"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_run_may_be_in_the_folder_where_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with alone_in(Path()):
        assert list(Path().iterdir()) == []
    begin_scores(Path())
    assert Path("result.json").exists()


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="a run's folder cannot be written"), alone_in(tmp_path / "file" / "run"):
        pass
