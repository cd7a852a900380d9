"""The main job on the embedded data: a nano superformer, and a network of it retrained. Accuracy only; the seconds are
those of docs/training.md."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vitruvius.training import RetrainConfig, SuperformerConfig, read_config, train


@pytest.mark.slow
def test_a_superformer_and_a_retrained_subnet_of_it_on_the_digits(tmp_path: Path) -> None:
    config = read_config(SuperformerConfig, {"recipe": "digits-superformer", "device": "cpu"})
    run = train(config, tmp_path / "superformer", quiet=True)
    found = run.result["validation"]["accuracy"]
    assert found["largest"]["top1"] >= 93
    assert run.result["validation"]["healthy"]
    # A random one; retrained on all of train, as the papers do.
    arch = run.superformer().space.sample(np.random.default_rng(0))
    settings = {"recipe": "digits-retrain", "arch": arch.to_json(), "device": "cpu", "whole": True}
    network = train(read_config(RetrainConfig, settings), tmp_path / "network", quiet=True)
    assert network.result["test"]["accuracy"]["top1"] >= 97
