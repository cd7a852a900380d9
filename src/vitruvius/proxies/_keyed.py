"""Random tensors by key: an element depends on the seed, the tensor's name and its own place, and on nothing else.

So two architectures' weights of one name agree wherever both have them (the narrow is the leading part of the wide, as
in AutoFormer's entanglement), whatever was scored before, in whatever order. What is made is kept, as large as was ever
asked for, and handed out as slices.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

__all__ = ["Keyed", "keyed"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Keyed:
    """The random tensors of one seed, float32. They are shared: never write into one."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._kept: dict[tuple[str, str, int], Tensor] = {}

    def normal(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Standard normal."""
        return self._slice("normal", name, shape)

    def uniform(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Between -1 and 1."""
        return self._slice("uniform", name, shape)

    def _slice(self, kind: str, name: str, shape: tuple[int, ...]) -> Tensor:
        key = (kind, name, len(shape))
        found = self._kept.get(key)
        if found is None or any(has < wants for has, wants in zip(found.shape, shape, strict=True)):
            room = shape if found is None else tuple(map(max, found.shape, shape))
            found = self._kept[key] = self._made(kind, name, room)
        return found[tuple(slice(size) for size in shape)]

    def _made(self, kind: str, name: str, shape: tuple[int, ...]) -> Tensor:
        digest = hashlib.blake2b(f"{self.seed}:{name}".encode(), digest_size=8).digest()
        words = np.array(int.from_bytes(digest, "little"), dtype=np.uint64)
        for size in shape:
            words = _mixed(words[..., None] + np.arange(1, size + 1, dtype=np.uint64) * _GOLDEN)
        # The middles of 2^52 cells: never an end, where the normal would be infinite.
        even = torch.from_numpy(((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-51 - 1)
        return (torch.erfinv(even) * math.sqrt(2) if kind == "normal" else even).float()


def _mixed(words: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele et al. 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


@lru_cache(maxsize=2)
def keyed(seed: int) -> Keyed:
    """The tensors of a seed; those of the last two seeds are kept."""
    return Keyed(seed)
