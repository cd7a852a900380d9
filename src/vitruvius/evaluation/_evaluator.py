"""What scores candidates. No torch here; evaluators that need it import it themselves."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from vitruvius.arch import Arch, refuse

__all__ = ["Evaluator", "FunctionEvaluator", "Outcome"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one evaluation: scores, or a reason why there are none."""

    scores: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    reason: str = ""
    """Empty where it went well."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """What else is worth keeping, as plain data; a later rung is given it back."""

    @property
    def complete(self) -> bool:
        return not self.reason


class Evaluator(ABC):
    """Scores one architecture at a time. Calling it never raises for a candidate's sake: that is the outcome."""

    names: tuple[str, ...]
    """The scores that it gives."""
    split: str | None = None
    """The hash of the split that it scores on, where it is one."""
    rungs: int = 1
    """In how many steps a candidate is measured; after each but the last some candidates are cut."""

    @abstractmethod
    def scores(self, arch: Arch, rung: int = 0, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Every score by its name; other keys are details.

        before: what the rung before gave as details.
        """

    def survivors(self, rung: int, candidates: int) -> int:
        """How many of so many candidates go on after a rung that is not the last."""
        return candidates

    def ahead(self, archs: Sequence[Arch]) -> None:  # noqa: B027 - most have no use for it
        """Says which architectures come next, for what is measured faster together. Scores are the same without."""

    def place(self, device: str | None) -> None:  # noqa: B027 - most have nothing to move
        """Moves to a device what is kept on one; without a name, to the best one there is."""

    def cost(self) -> str:
        """What one candidate costs, for people."""
        return ""

    def record(self) -> dict[str, Any]:
        """What decides the scores, as plain data; a search is resumed only with the same."""
        return {"evaluator": type(self).__name__, "names": list(self.names)}

    @final
    def outcome(self, arch: Arch, rung: int = 0, before: Mapping[str, Any] | None = None) -> Outcome:
        """The scores of one architecture, or the reason why it has none."""
        start = time.perf_counter()
        try:
            found = self.scores(arch, rung, before)
            scores = {name: float(found[name]) for name in self.names}
            detail = {name: value for name, value in found.items() if name not in scores}
            reason = next((f"{name} is {value}" for name, value in scores.items() if not math.isfinite(value)), "")
        except Exception as error:
            scores, detail, reason = {}, {}, f"{type(error).__name__}: {error}".splitlines()[0][:500]
        seconds = time.perf_counter() - start
        return Outcome(scores={} if reason else scores, seconds=seconds, reason=reason, detail=detail)

    @final
    def __call__(self, archs: Sequence[Arch]) -> list[Outcome]:
        """Outcomes in the order of the architectures, on the first rung."""
        self.ahead(archs)
        return [self.outcome(arch) for arch in archs]


@final
class FunctionEvaluator(Evaluator):
    """Any callable from an architecture to a number, or to numbers by name."""

    def __init__(self, function: Callable[[Arch], Any], names: str | Sequence[str] = "score") -> None:
        if not callable(function):
            refuse("an evaluator is a callable of one architecture", function, "lambda arch: ..., say")
        self.function = function
        self.names = (names,) if isinstance(names, str) else tuple(names)

    def scores(self, arch: Arch, rung: int = 0, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
        found = self.function(arch)
        return dict(found) if isinstance(found, Mapping) else {self.names[0]: found}

    def record(self) -> dict[str, Any]:
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return {**super().record(), "function": name}
