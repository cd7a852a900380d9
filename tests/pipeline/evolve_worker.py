"""What each process of test_evolve_space.py runs."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from vitruvius.pipeline.evolve_config import read_evolve_config
from vitruvius.pipeline.evolve_space import evolve_space


def work(settings: dict[str, Any], folder: str) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    evolve_space(read_evolve_config(settings), folder, quiet=True)
