"""What each process of test_search_resume.py runs."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from vitruvius.pipeline.search import read_search_config, search


def work(settings: dict[str, Any], folder: str) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    search(read_search_config(settings), folder, quiet=True)
