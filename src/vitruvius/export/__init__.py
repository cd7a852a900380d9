"""What leaves the house, and what comes in: bundles and ONNX, names in timm's registry, published checkpoints.

Importing this needs no torch; what does is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vitruvius.export._register import register_with_timm

if TYPE_CHECKING:
    from vitruvius.export._bundle import Bundle as Bundle
    from vitruvius.export._bundle import export_model as export_model
    from vitruvius.export._bundle import export_run as export_run
    from vitruvius.export._bundle import export_weights as export_weights
    from vitruvius.export._imports import Imported as Imported
    from vitruvius.export._imports import import_checkpoint as import_checkpoint

__all__ = [
    "Bundle",
    "Imported",
    "export_model",
    "export_run",
    "export_weights",
    "import_checkpoint",
    "register_with_timm",
]

_WITH_TORCH = {
    "Bundle": "_bundle",
    "export_model": "_bundle",
    "export_run": "_bundle",
    "export_weights": "_bundle",
    "Imported": "_imports",
    "import_checkpoint": "_imports",
}


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module 'vitruvius.export' has no attribute {name!r}")
    return getattr(import_module(f"vitruvius.export.{_WITH_TORCH[name]}"), name)
