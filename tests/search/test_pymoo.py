"""NSGA-II beside pymoo's, as bench/searchers.py runs them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

BENCH = Path(__file__).parents[2] / "bench" / "searchers.py"


@pytest.mark.slow
def test_hypervolume_is_that_of_pymoo() -> None:
    """With the same variation and as many evaluations, to a hundredth; and pymoo's own operators are no better."""
    pytest.importorskip("pymoo")
    spec = importlib.util.spec_from_file_location("bench_searchers", BENCH)
    assert spec is not None
    assert spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    shared = bench.Shared("autoformer-tiny")
    ours = np.array([bench.ours(shared, seed) for seed in range(6)])
    same = np.array([bench.theirs(shared, seed, True) for seed in range(6)])
    own = np.array([bench.theirs(shared, seed, False) for seed in range(6)])
    assert abs(ours.mean() / same.mean() - 1) < 0.01
    assert ours.mean() > 0.99 * own.mean()
