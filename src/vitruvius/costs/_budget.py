"""Budgets: what a network may cost, with a lower and an upper end."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitruvius.arch import refuse, require_choice
from vitruvius.costs._closed_form import Cost

METRICS = ("params", "macs")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_FORMS = '"macs: 1.2G..1.3G", "params <= 6M", "macs >= 900M", "macs = 1.3G +- 1%", joined by commas'
_NUMBER = r"([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([kKmMgGtT]?)"
_RANGE = re.compile(rf"^(?:{_NUMBER})?\s*\.\.\s*(?:{_NUMBER})?$")
_BOUND = re.compile(rf"^(<=|>=|<|>)\s*{_NUMBER}$")
_AROUND = re.compile(rf"^=?\s*{_NUMBER}\s*(?:\+-|±)\s*([0-9]*\.?[0-9]+)\s*%$")
_TERM = re.compile(r"^\s*([A-Za-z_]+)\s*[:=]?\s*(.*?)\s*$")


def _number(digits: str | None, unit: str | None) -> float | None:
    return None if digits is None else float(digits) * _UNITS[(unit or "").lower()]


def _ends(text: str) -> tuple[float, float]:
    """The lower and the upper end that a text such as "1.2G..1.3G" means."""
    if match := _RANGE.match(text):
        low, high = _number(match[1], match[2]), _number(match[3], match[4])
        if low is None and high is None:
            refuse("a budget needs an end", text, _FORMS)
        return low or 0.0, math.inf if high is None else high
    if match := _BOUND.match(text):
        value = _number(match[2], match[3]) or 0.0
        return (0.0, value) if match[1].startswith("<") else (value, math.inf)
    if match := _AROUND.match(text):
        value, spread = _number(match[1], match[2]) or 0.0, float(match[3]) / 100
        return value * (1 - spread), value * (1 + spread)
    refuse("a budget cannot be read", text, _FORMS)


@dataclass(frozen=True, slots=True)
class Budget:
    """The lower and upper end of each metric, both included."""

    ends: tuple[tuple[str, float, float], ...]

    def __post_init__(self) -> None:
        if not self.ends:
            refuse("a budget needs at least one metric", self.ends, ", ".join(METRICS))
        for metric, low, high in self.ends:
            require_choice("metric of a budget", metric, METRICS)
            if not 0 <= low <= high or math.isinf(low):
                ends = f"{low:.10g}..{high:.10g}"
                refuse(f"the {metric} budget's lower end must not pass its upper end", ends, "0 <= low <= high")
        if len({metric for metric, _, _ in self.ends}) < len(self.ends):
            refuse("a budget has a metric twice", [metric for metric, _, _ in self.ends], "each metric once")

    @classmethod
    def of(cls, given: Budget | str | Mapping[str, Any]) -> Budget:
        """A budget from text ("macs: 1.2G..1.3G, params <= 6M") or a mapping of metrics to texts or pairs of ends."""
        if isinstance(given, Budget):
            return given
        if isinstance(given, str):
            ends = []
            for term in given.split(","):
                if not (match := _TERM.match(term)):
                    refuse("a budget cannot be read", term, _FORMS)
                ends.append((match[1].lower(), *_ends(match[2])))
            return cls(tuple(ends))
        if isinstance(given, Mapping):
            return cls(tuple((metric, *_pair(metric, ends)) for metric, ends in given.items()))
        refuse("a budget is text or a mapping", given, _FORMS)

    def satisfied(self, cost: Cost) -> NDArray[np.bool_]:
        """(n,): whether each architecture is within every end."""
        inside: NDArray[np.bool_] = np.ones(np.shape(cost.params), dtype=bool)
        for metric, low, high in self.ends:
            value = getattr(cost, metric)
            inside &= (value >= low) & (value <= high)
        return inside

    def __str__(self) -> str:
        return ", ".join(f"{metric}: {short(low)}..{short(high)}" for metric, low, high in self.ends)


def _pair(metric: str, ends: Any) -> tuple[float, float]:
    if isinstance(ends, str):
        return _ends(re.sub(rf"^\s*{metric}\s*[:=]?", "", ends, flags=re.IGNORECASE).strip())
    if not isinstance(ends, list | tuple) or len(ends) != 2:
        refuse(f"the {metric} budget must be text or two ends", ends, "(1.2e9, 1.3e9), or '1.2G..1.3G'")
    for end in ends:
        if isinstance(end, bool) or not isinstance(end, Real | None):
            refuse(f"the {metric} budget's ends must be numbers", end, "numbers, or None for an open end")
    low, high = ends
    return 0.0 if low is None else float(low), math.inf if high is None else float(high)


def short(value: float) -> str:
    """A count as people write it: 1.265G, 5.72M."""
    if math.isinf(value):
        return ""
    for unit in ("T", "G", "M", "k"):
        if value >= _UNITS[unit.lower()]:
            return f"{value / _UNITS[unit.lower()]:.4g}{unit}"
    return f"{value:.4g}"
