"""Several evaluators as one, and a weighted sum of their scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vitruvius.arch import Arch, refuse, require_choice
from vitruvius.evaluation._evaluator import Evaluator

__all__ = ["Mixture", "Several"]


class Several(Evaluator):
    """The scores of several evaluators, one of which at most measures in rungs."""

    def __init__(self, evaluators: Sequence[Evaluator]) -> None:
        if not evaluators:
            refuse("there is nothing to evaluate with", evaluators, "one evaluator or more")
        self.evaluators = tuple(evaluators)
        names = [name for each in evaluators for name in each.names]
        if len(set(names)) < len(names):
            refuse("evaluators give different scores", names, "each score once")
        self.names = tuple(names)
        stepwise = [each for each in evaluators if each.rungs > 1]
        if len(stepwise) > 1:
            refuse("one evaluator at most measures in rungs", len(stepwise), 1)
        self.rungs = max(each.rungs for each in evaluators)
        self.split = next((each.split for each in evaluators if each.split is not None), None)
        self._stepwise = stepwise[0] if stepwise else None

    def scores(self, arch: Arch, rung: int = 0, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What does not need the rungs is measured on the first one, and kept."""
        found: dict[str, Any] = {}
        kept = dict((before or {}).get("kept", {}))
        for each in self.evaluators:
            if rung == 0 or each is self._stepwise:
                found |= each.scores(arch, rung, before)
        if self.rungs > 1:
            kept |= {
                name: found[name]
                for each in self.evaluators
                if each is not self._stepwise
                for name in each.names
                if name in found
            }
            found = {**kept, **found, "kept": kept}
        return found

    def survivors(self, rung: int, candidates: int) -> int:
        return candidates if self._stepwise is None else self._stepwise.survivors(rung, candidates)

    def ahead(self, archs: Sequence[Arch]) -> None:
        for each in self.evaluators:
            each.ahead(archs)

    def place(self, device: str | None) -> None:
        for each in self.evaluators:
            each.place(device)

    def cost(self) -> str:
        return "; ".join(filter(None, (each.cost() for each in self.evaluators)))

    def record(self) -> dict[str, Any]:
        return {**super().record(), "parts": [each.record() for each in self.evaluators]}


class Mixture(Evaluator):
    """Beside the scores of its parts their weighted sum, "mixture".

    weights: by the score's name.
    reference: architectures on which every score's mean and spread are measured once; the sum is then of standard
        scores. Without, it is of the scores as they are.
    """

    def __init__(
        self, evaluators: Sequence[Evaluator], weights: Mapping[str, float], reference: Sequence[Arch] = ()
    ) -> None:
        self._several = Several(evaluators)
        for name in weights:
            require_choice("score of a mixture", name, self._several.names)
        if not any(weights.values()):
            refuse("a mixture needs a weight", dict(weights), f"weights of {', '.join(self._several.names)}")
        self.names = ("mixture", *self._several.names)
        self.rungs, self.split = self._several.rungs, self._several.split
        self.weights = {name: float(weight) for name, weight in weights.items() if weight}
        self._reference = tuple(reference)
        self._scale: dict[str, tuple[float, float]] | None = None

    def _scales(self) -> dict[str, tuple[float, float]]:
        """Mean and spread of every score. They come from the reference alone, wherever they are measured."""
        if self._scale is None:
            rows = [self._several.scores(arch) for arch in self._reference]
            self._scale = dict.fromkeys(self.weights, (0.0, 1.0))
            for name in self.weights if rows else ():
                values = np.array([row[name] for row in rows], dtype=np.float64)
                values = values[np.isfinite(values)]
                if len(values) < 2 or not values.std() > 0:
                    refuse(f"the reference has no spread of {name}", values.tolist()[:5], "more architectures")
                self._scale[name] = (float(values.mean()), float(values.std()))
        return self._scale

    def scores(self, arch: Arch, rung: int = 0, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
        found = self._several.scores(arch, rung, before)
        scales = self._scales().items()
        total = sum(self.weights[name] * (float(found[name]) - mean) / spread for name, (mean, spread) in scales)
        return {"mixture": total, **found}

    def survivors(self, rung: int, candidates: int) -> int:
        return self._several.survivors(rung, candidates)

    def ahead(self, archs: Sequence[Arch]) -> None:
        self._several.ahead(archs)

    def place(self, device: str | None) -> None:
        self._several.place(device)

    def cost(self) -> str:
        return self._several.cost()

    def record(self) -> dict[str, Any]:
        reference = [arch.id for arch in self._reference]
        parts = self._several.record()["parts"]
        return {
            **super().record(),
            "parts": parts,
            "weights": dict(sorted(self.weights.items())),
            "reference": reference,
        }
