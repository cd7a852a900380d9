"""Splits: stratified, deterministic, hashed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from vitruvius.arch import refuse

TEST_SHARE = 0.2
"""Of each class, where a source has no test part of its own."""
_TEST_SEED = 0
"""The test part never moves: runs with other split seeds must not have searched on it."""
_TEST, _VAL = 0, 1


def check_val(val: float | int) -> None:
    """Whether `val` can be a share or a number of images per class."""
    whole = type(val) is int and val >= 1
    share = type(val) is float and 0 < val < 1
    if not (whole or share):
        refuse("val is held out of each class: a share, or a number of images", val, "0 < share < 1, or 1, 2, 3, ...")


def hold_out_test(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return _hold_out(labels, TEST_SHARE, (_TEST_SEED, _TEST))


def hold_out_val(labels: np.ndarray, val: float | int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    return _hold_out(labels, val, (seed, _VAL))


def _hold_out(labels: np.ndarray, share: float | int, key: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Indices that stay and indices held out, both in order; each class is drawn by a generator of its own."""
    held = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        places = np.flatnonzero(labels == label)
        count = _held_of(len(places), share)
        held[np.random.default_rng([*key, int(label)]).permutation(places)[:count]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)


def _held_of(count: int, share: float | int) -> int:
    return share if isinstance(share, int) else min(max(round(share * count), 1), count - 1)


def require_enough(
    labels: np.ndarray, classes: Sequence[str], *, val: float | int | None, holds_test: bool, where: str
) -> None:
    """Every class has images for every part that is taken from here, or one line that says which has not."""
    counts = np.bincount(labels, minlength=len(classes))
    for name, count in zip(classes, counts.tolist(), strict=True):
        left = count - _held_of(count, TEST_SHARE) if holds_test and count > 1 else count
        needed = 1 + (0 if val is None else val if isinstance(val, int) else 1)
        if left >= needed and count > holds_test:
            continue
        parts = ["train", *(["search-validation"] if val is not None else []), *(["test"] if holds_test else [])]
        if isinstance(val, int) and count > len(parts):
            rule = f"class {name!r} of {where} has too few images to hold out {val} of them"
            refuse(rule, count, f"val up to {max(left - 1, 1)}, or more images")
        allowed = f"{len(parts)} or more ({', '.join(parts)}): add images, or remove the class"
        refuse(f"class {name!r} of {where} has too few images to be split", count, allowed)


def split_hash(identity: dict[str, Any], arrays: Sequence[np.ndarray]) -> str:
    """64 bits of the SHA-256 of a source's identity, its content and its splits."""
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode())
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]
