"""Search spaces: declarations of what may vary, and what can be done with them. No torch behind this door."""

from __future__ import annotations

from vitruvius.spaces import autoformer, pit, s3, vit_resnas, vitas_deit, vitas_twins
from vitruvius.spaces._declaration import StageSpace, tenths
from vitruvius.spaces._encode import Path, as_path
from vitruvius.spaces._registry import SPACES, load
from vitruvius.spaces._space import Space

__all__ = [
    "SPACES",
    "Path",
    "Space",
    "StageSpace",
    "as_path",
    "autoformer",
    "load",
    "pit",
    "s3",
    "tenths",
    "vit_resnas",
    "vitas_deit",
    "vitas_twins",
]
