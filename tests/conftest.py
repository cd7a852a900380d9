"""What the tests share: seeded architectures of every space."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

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


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command in an empty folder: exit code, stdout, stderr."""
    from vitruvius.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["vitruvius", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out = capsys.readouterr()
        return int(ended.value.code or 0), out.out, out.err

    return run
