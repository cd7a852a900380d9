"""Vitruvius: the toolkit that finds vision transformers.

Records, spaces, costs and the zoo need no torch; what does is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vitruvius import costs, export, spaces, zoo
from vitruvius.arch import Arch, Block, Patch, Stage
from vitruvius.costs import Budget
from vitruvius.spaces import Space

if TYPE_CHECKING:
    from vitruvius.models import build as build
    from vitruvius.superformer import Superformer as Superformer

__all__ = [
    "Arch",
    "Block",
    "Budget",
    "Patch",
    "Space",
    "Stage",
    "Superformer",
    "build",
    "costs",
    "export",
    "spaces",
    "zoo",
]

__version__ = "0.1.0"


_WITH_TORCH = {"build": "vitruvius.models", "Superformer": "vitruvius.superformer"}


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module 'vitruvius' has no attribute {name!r}")
    return getattr(import_module(_WITH_TORCH[name]), name)


export.register_with_timm()
