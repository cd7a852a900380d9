"""What each process of test_resume.py runs."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from vitruvius.training import RetrainConfig, SuperformerConfig, read_config, train


def work(kind: str, settings: dict[str, Any], folder: str) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    kinds = {"superformer": SuperformerConfig, "retrain": RetrainConfig}
    train(read_config(kinds[kind], settings), folder, quiet=True)
