"""What each process of test_resume.py runs."""

from __future__ import annotations

import os
import signal
import warnings
from typing import Any

import torch

from vitruvius.training import RetrainConfig, SuperformerConfig, read_config, train


def work(kind: str, settings: dict[str, Any], folder: str, dies_at: int | None = None) -> None:
    """dies_at: killed just before it makes a file or folder durable for the so-manieth time."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if dies_at is not None:
        _die_at(dies_at)
    kinds = {"superformer": SuperformerConfig, "retrain": RetrainConfig}
    train(read_config(kinds[kind], settings), folder, quiet=True)


def _die_at(moment: int) -> None:
    fsync, left = os.fsync, iter(range(moment - 1, -1, -1))

    def counted(file: int) -> None:
        if not next(left):
            os.kill(os.getpid(), signal.SIGKILL)
        fsync(file)

    os.fsync = counted
