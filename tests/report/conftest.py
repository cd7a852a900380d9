"""Runs of every kind on the digits, as small as they go: what reports are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vitruvius import spaces
from vitruvius.pipeline.rank import known_of, rank_proxies
from vitruvius.pipeline.score import ScoreConfig, score_space
from vitruvius.pipeline.search import read_search_config, search
from vitruvius.training import RetrainConfig, SuperformerConfig, read_config, train

SMALL: dict[str, Any] = {"img_size": 8, "batch_size": 256, "device": "cpu", "data": "digits"}


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs: a superformer, a search with it, and four of its networks trained."""
    folder = tmp_path_factory.mktemp("runs") / "all"
    own = {"space": "vitas-nano", "space_options": {"img_size": 8, "patch": 4}, "epochs": 2, **SMALL}
    del own["img_size"]
    train(read_config(SuperformerConfig, own), folder / "super", quiet=True)
    settings = {"searcher": "nsga2", "objectives": "accuracy,macs", "population": 8, "generations": 3, "images": 60}
    asked = {"superformer": str(folder / "super"), **settings}
    found = search(read_search_config(asked), folder / "search", quiet=True)
    for number, trial in enumerate(found.trials[:4]):
        retrain = {"arch": trial.arch.to_json(), "epochs": 1, **SMALL}
        train(read_config(RetrainConfig, retrain), folder / f"net-{number}", quiet=True)
    return folder


@pytest.fixture(scope="session")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search without training."""
    folder = tmp_path_factory.mktemp("scored") / "score"
    space = spaces.load("autoformer-nano", img_size=8, patch=4)
    config = ScoreConfig(space=space, proxies=("dss", "naswot"), n=12, num_classes=10, in_chans=1)
    score_space(config, folder, top=5, quiet=True)
    return folder


@pytest.fixture(scope="session")
def ranked(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Proxies held against the accuracies of a search."""
    folder = tmp_path_factory.mktemp("ranked") / "rank"
    rank_proxies(known_of(runs / "search"), ("snip",), bands=2, resamples=50, out=folder, quiet=True)
    return folder
