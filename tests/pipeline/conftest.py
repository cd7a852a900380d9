"""A superformer that hardly learned anything, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from vitruvius.training import SuperformerConfig, read_config, train


@pytest.fixture(scope="session")
def superformer_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("superformer") / "run"
    given = {"recipe": "digits-superformer", "epochs": 1, "device": "cpu", "validate_every": 100}
    train(read_config(SuperformerConfig, given), folder, quiet=True)
    return folder
