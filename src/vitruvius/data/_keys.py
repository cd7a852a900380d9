"""Randomness of a sample from its key alone: counter-based numbers, and global generators lent and given back."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from vitruvius.arch import refuse

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def hashes(keys: Sequence[tuple[int, ...]]) -> np.ndarray:
    """(B,) uint64: one well-mixed word a key."""
    try:
        made = np.asarray(keys, dtype=np.int64)
    except (ValueError, OverflowError, TypeError):
        made = np.empty(0)
    if made.ndim != 2:
        refuse("keys are tuples of 64-bit whole numbers, equally long", keys[:2], "(seed, epoch, position), say")
    words = made.view(np.uint64)
    state = np.full(len(words), made.shape[1], dtype=np.uint64)
    for column in words.T:
        state = _mix((state ^ column) + _GOLDEN)
    return state


def uniforms(keys: Sequence[tuple[int, ...]], draws: int) -> np.ndarray:
    """(B, draws) in [0, 1): draw j of a key is the same however many are taken, and whoever else is in the batch."""
    counters = np.arange(1, draws + 1, dtype=np.uint64) * _GOLDEN
    return (_mix(hashes(keys)[:, None] + counters) >> np.uint64(11)) * 2.0**-53


def _mix(words: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele et al. 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


@contextmanager
def lent_generators() -> Iterator[Callable[[int], None]]:
    """Python's, NumPy's and torch's global generators, which timm and torchvision draw from, to be seeded at will; they
    are given back as they were."""
    python, numpy, torch_state = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002

    def seed(word: int) -> None:
        random.seed(word)
        np.random.seed(word & 0xFFFFFFFF)  # noqa: NPY002
        torch.default_generator.manual_seed(word & 0x7FFFFFFFFFFFFFFF)

    try:
        yield seed
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        torch.set_rng_state(torch_state)
