"""Evaluators of candidates, and where they run: in this process, or on Ray's actors.

What needs torch is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vitruvius.evaluation._evaluator import Evaluator, FunctionEvaluator, Outcome
from vitruvius.evaluation.executors import Executor, InProcess, Task, evaluate
from vitruvius.evaluation.mixture import Mixture, Several
from vitruvius.evaluation.proxy import ProxyEvaluator
from vitruvius.evaluation.ray import RayExecutor

if TYPE_CHECKING:
    from vitruvius.evaluation.accuracy import InheritedAccuracy as InheritedAccuracy

__all__ = [
    "Evaluator",
    "Executor",
    "FunctionEvaluator",
    "InProcess",
    "InheritedAccuracy",
    "Mixture",
    "Outcome",
    "ProxyEvaluator",
    "RayExecutor",
    "Several",
    "Task",
    "evaluate",
]


def __getattr__(name: str) -> Any:
    if name != "InheritedAccuracy":
        raise AttributeError(f"module 'vitruvius.evaluation' has no attribute {name!r}")
    return import_module("vitruvius.evaluation.accuracy").InheritedAccuracy
