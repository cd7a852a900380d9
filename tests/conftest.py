"""What the tests share: seeded architectures of every space."""

from __future__ import annotations

import os

# Several workers on two cores: one thread each is faster than two that wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest

from vitruvius import Arch, Space, spaces

ALL_SPACES = list(spaces.SPACES)
NANO_SPACES = [name for name in ALL_SPACES if name.endswith("-nano")]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def some_archs(space: Space, count: int, seed: int = 0) -> list[Arch]:
    """The smallest, the largest and random ones."""
    rng = np.random.default_rng(seed)
    return [space.smallest, space.largest, *(space.sample(rng) for _ in range(count - 2))]
