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

COUNTED = ("params", "macs")
"""What is known in closed form."""
MEASURED = ("latency", "throughput", "memory")
"""What a device says: seconds a batch, images a second, bytes at the peak."""
METRICS = COUNTED + MEASURED

_COUNTS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_TIMES = {"us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0}
_RATES = {prefix + per: factor for prefix, factor in (("", 1.0), ("k", 1e3)) for per in ("", "/s", "img/s", "images/s")}
_BYTES = {"b": 1.0} | {
    f"{letter}{kind}": float(base ** (power + 1))
    for power, letter in enumerate("kmgt")
    for kind, base in (("b", 1000), ("ib", 1024))
}
_UNITS = {"params": _COUNTS, "macs": _COUNTS, "latency": _TIMES, "throughput": _RATES, "memory": _BYTES}
"""By metric and in lower case. What has no empty unit needs one, since a bare number could mean several things."""
_ALLOWED = {"latency": "us, ms, s", "throughput": "images/s, k", "memory": "B, KB, MB, GB, TB, KiB, MiB, GiB, TiB"}
_FORMS = (
    '"macs: 1.2G..1.3G", "params <= 6M", "macs >= 900M", "macs = 1.3G +- 1%", "latency <= 8ms", "throughput >= 200", '
    '"memory <= 512MB", joined by commas'
)
_NUMBER = r"([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([a-zµμ]*(?:/s)?)"
_RANGE = re.compile(rf"^(?:{_NUMBER})?\s*\.\.\s*(?:{_NUMBER})?$", re.IGNORECASE)
_BOUND = re.compile(rf"^(<=|>=|<|>)\s*{_NUMBER}$", re.IGNORECASE)
_AROUND = re.compile(rf"^=?\s*{_NUMBER}\s*(?:\+-|±)\s*([0-9]*\.?[0-9]+)\s*%$", re.IGNORECASE)
_TERM = re.compile(r"^\s*([A-Za-z_]+)\s*[:=]?\s*(.*?)\s*$")


def _number(metric: str, digits: str | None, unit: str | None) -> float | None:
    if digits is None:
        return None
    value, unit = float(digits), (unit or "").lower()
    if not value and not unit:
        return 0.0
    units = _UNITS[metric]
    if unit not in units:
        rule = f"{metric} is not in {unit!r}" if unit else f"the {metric} budget needs a unit"
        refuse(rule, f"{digits}{unit}", _ALLOWED.get(metric, "k, M, G, T"))
    return value * units[unit]


def _ends(metric: str, text: str) -> tuple[float, float]:
    """The lower and the upper end that a text such as "1.2G..1.3G" means."""
    if match := _RANGE.match(text):
        low, high = _number(metric, match[1], match[2]), _number(metric, match[3], match[4])
        if low is None and high is None:
            refuse("a budget needs an end", text, _FORMS)
        return low or 0.0, math.inf if high is None else high
    if match := _BOUND.match(text):
        value = _number(metric, match[2], match[3]) or 0.0
        return (0.0, value) if match[1].startswith("<") else (value, math.inf)
    if match := _AROUND.match(text):
        value, spread = _number(metric, match[1], match[2]) or 0.0, float(match[3]) / 100
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
                ends.append((metric := _metric(match[1]), *_ends(metric, match[2])))
            return cls(tuple(ends))
        if isinstance(given, Mapping):
            return cls(tuple((metric := _metric(name), *_pair(metric, ends)) for name, ends in given.items()))
        refuse("a budget is text or a mapping", given, _FORMS)

    @property
    def counted(self) -> Budget | None:
        """The part in closed form, which sampling within a budget takes; None where there is none."""
        return self._part(COUNTED)

    @property
    def measured(self) -> Budget | None:
        """The part that a device, or a predictor of it, must say; None where there is none."""
        return self._part(MEASURED)

    def _part(self, metrics: tuple[str, ...]) -> Budget | None:
        ends = tuple(end for end in self.ends if end[0] in metrics)
        return Budget(ends) if ends else None

    def only_counted(self, what: str) -> Budget:
        """This budget, where `what` can do nothing with a measured metric."""
        if self.measured is not None:
            refuse(f"{what} knows only what is counted in closed form", str(self), ", ".join(COUNTED))
        return self

    def satisfied(self, cost: Cost | Mapping[str, Any]) -> NDArray[np.bool_]:
        """(n,): whether each architecture is within every end. Measured metrics come by name, in a mapping."""
        values = {metric: _value(cost, metric) for metric, _, _ in self.ends}
        inside: NDArray[np.bool_] = np.ones(np.broadcast_shapes(*map(np.shape, values.values())), dtype=bool)
        for metric, low, high in self.ends:
            inside &= (values[metric] >= low) & (values[metric] <= high)
        return inside

    def __str__(self) -> str:
        return ", ".join(_end_text(*end) for end in self.ends)


def _end_text(metric: str, low: float, high: float) -> str:
    """An end that is open is not written."""
    if not low and not math.isinf(high):
        return f"{metric} <= {written(metric, high)}"
    return f"{metric}: {written(metric, low)}..{written(metric, high)}"


def _metric(name: Any) -> str:
    metric = name.lower() if isinstance(name, str) else name
    require_choice("metric of a budget", metric, METRICS)
    return str(metric)


def _value(cost: Cost | Mapping[str, Any], metric: str) -> NDArray[Any]:
    if isinstance(cost, Cost):
        if metric not in COUNTED:
            refuse(f"{metric} is not counted in closed form but measured", "a Cost", "a mapping of metrics to values")
        return np.asarray(getattr(cost, metric))
    if metric not in cost:
        refuse(f"the budget needs the {metric} of every architecture", sorted(cost), ", ".join(METRICS))
    return np.asarray(cost[metric])


def _pair(metric: str, ends: Any) -> tuple[float, float]:
    if isinstance(ends, str):
        return _ends(metric, re.sub(rf"^\s*{metric}\s*[:=]?", "", ends, flags=re.IGNORECASE).strip())
    if not isinstance(ends, list | tuple) or len(ends) != 2:
        refuse(f"the {metric} budget must be text or two ends", ends, "(1.2e9, 1.3e9), or '1.2G..1.3G'")
    for end in ends:
        if isinstance(end, bool) or not isinstance(end, Real | None):
            refuse(f"the {metric} budget's ends must be numbers", end, "numbers, or None for an open end")
    low, high = ends
    return 0.0 if low is None else float(low), math.inf if high is None else float(high)


def short(value: float) -> str:
    """A count as people write it: 1.265G, 5.72M."""
    return "" if math.isinf(value) else _scaled(value, _COUNTS, ("T", "G", "M", "k"))


def written(metric: str, value: float) -> str:
    """A metric's value as people write it, and as a budget reads it: 1.265G, 8ms, 512MB; an open end is nothing."""
    require_choice("metric", metric, METRICS)
    if math.isinf(value):
        return ""
    match metric:
        case "latency":
            return _scaled(value, _TIMES, ("s", "ms", "us"))
        case "throughput":
            return _scaled(value, _RATES, ("k",))
        case "memory":
            return _scaled(value, _BYTES, ("TB", "GB", "MB", "KB", "B"))
    return short(value)


def _scaled(value: float, units: Mapping[str, float], names: tuple[str, ...]) -> str:
    for name in names:
        if value >= units[name.lower()]:
            return f"{value / units[name.lower()]:.4g}{name}"
    smallest = "" if not value or "" in units else names[-1]
    return f"{value / units[smallest.lower()]:.4g}{smallest}" if value else "0"
