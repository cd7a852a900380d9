"""Two processes with half the batch each are one process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from training.conftest import NOISY, SUPERFORMER
from training.test_resume import contents
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
    if strategy == "single-path":
        run([*TORCHRUN, "2", "-m", "vitruvius", "train", str(tmp_path / "run.yaml"), "--out", str(tmp_path / "two")])
    else:
        assert [process.wait(300) for process in two(tmp_path / "run.yaml", tmp_path / "two")] == [0, 0]
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


@pytest.mark.slow
def test_two_killed_processes_go_on_as_if_they_had_not_been(tmp_path: Path) -> None:
    """With batch norms, whose statistics each process would have of its own images."""
    settings = SUPERFORMER | NOISY | {"epochs": 1, "space": "vit-resnas-nano", "private": [], "checkpoint_every": 1}
    settings |= {"space_options": {"img_size": 16, "patch": 4}}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    for after in (1, 3):
        pair = two(tmp_path / "run.yaml", tmp_path / "killed")
        until = time.monotonic() + 200
        while not list(tmp_path.glob(f"killed/checkpoints/step-*{after}")) and time.monotonic() < until:
            time.sleep(0.01)
        for process in pair:
            process.kill()
            process.wait()
        assert not (tmp_path / "killed" / "result.json").exists()
    for out in ("killed", "whole"):
        assert [process.wait(300) for process in two(tmp_path / "run.yaml", tmp_path / out)] == [0, 0]
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def two(config: Path, out: Path) -> list[subprocess.Popen[bytes]]:
    """Both processes of a run, begun as torchrun begins them, but without a parent that outlives them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    place |= {"LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "vitruvius", "train", str(config), "--out", str(out), "--json"]
    ranks = ({"RANK": rank, "LOCAL_RANK": rank} for rank in "01")
    return [subprocess.Popen(command, env=os.environ | place | rank) for rank in ranks]
