"""Vitruvius: the toolkit that finds vision transformers.

Records, spaces, costs and the zoo need no torch; what does is imported when it is first asked for, rooms too.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from vitruvius import costs, export, spaces, zoo
from vitruvius.arch import Arch, Block, Patch, Stage
from vitruvius.costs import Budget
from vitruvius.spaces import Space

if TYPE_CHECKING:
    from vitruvius import proxies as proxies
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
    "proxies",
    "spaces",
    "zoo",
]

__version__ = "0.1.0"


_WITH_TORCH = {"build": "vitruvius.models", "Superformer": "vitruvius.superformer"}


def __getattr__(name: str) -> Any:
    if name in _WITH_TORCH:
        return getattr(import_module(_WITH_TORCH[name]), name)
    if not name.startswith("_") and find_spec(f"vitruvius.{name}"):
        return import_module(f"vitruvius.{name}")  # a room: vt.models, vt.testing, ...
    raise AttributeError(f"module 'vitruvius' has no attribute {name!r}")


export.register_with_timm()
