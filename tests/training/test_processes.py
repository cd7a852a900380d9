"""Two processes with half the batch each are one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from training.conftest import SUPERFORMER
from vitruvius.training import SuperformerConfig, read_config, train
from vitruvius.training.plan import make_plan

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]


def run(command: list[str]) -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("strategy", ["single-path", "multi-architectural"])
def test_two_processes_are_one(strategy: str, tmp_path: Path) -> None:
    """Weights after 20 steps, in float32; by SGD, which does not magnify rounding as Adam's division does."""
    settings = SUPERFORMER | {"epochs": 1, "batch_size": 48, "val": 0.3, "optimizer": "sgd", "lr": 0.05}
    settings |= {"strategy": strategy, "archs_per_step": 4, "clip_grad": 1.0, "private": ["class_token"]}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    train(read_config(SuperformerConfig, settings), tmp_path / "one", quiet=True)
    run([*TORCHRUN, "2", "-m", "vitruvius", "train", str(tmp_path / "run.yaml"), "--out", str(tmp_path / "two")])
    found = []
    for out in (tmp_path / "one", tmp_path / "two"):
        assert json.loads((out / "result.json").read_text())["steps"] == 20
        found.append(load_file(out / "final" / "superformer.safetensors"))
    begun = make_plan(read_config(SuperformerConfig, settings)).job.model.state_dict()
    for name, tensor in found[0].items():
        torch.testing.assert_close(found[1][name], tensor, rtol=1e-4, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")
    apart = [float((found[0][name] - tensor).abs().max()) for name, tensor in begun.items()]
    assert np.median(apart) > 1e-3  # far more than rounding


def test_processes_that_disagree_stop_loudly() -> None:
    run([*TORCHRUN, "2", str(Path(__file__).parent / "processes_worker.py")])
