"""Evaluators of candidates, and where they run: in this process, or on Ray's actors."""

from __future__ import annotations

from vitruvius.evaluation._evaluator import Evaluator, FunctionEvaluator, Outcome

__all__ = ["Evaluator", "FunctionEvaluator", "Outcome"]
