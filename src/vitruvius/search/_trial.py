"""What is known of one candidate: what it is, what it scored and cost, and where it came from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from vitruvius.arch import Arch, refuse, require_choice, require_keys

__all__ = ["COSTS", "Objective", "State", "Trial", "objectives_of", "values_of"]

State: TypeAlias = Literal["complete", "failed"]

COSTS = {"params": False, "macs": False, "latency": False, "throughput": True, "memory": False}
"""What a network costs, and whether more of it is better. Latency is in seconds, throughput in images a second."""
_LOWER = ("loss", "error")


@dataclass(frozen=True, slots=True)
class Objective:
    """A score or a cost, and which way is better."""

    name: str
    maximise: bool

    @classmethod
    def of(cls, given: Objective | str) -> Objective:
        """From a name ("accuracy", "latency"), whose direction is known, or "min:NAME" and "max:NAME"."""
        if isinstance(given, Objective):
            return given
        if not isinstance(given, str) or not given.strip():
            refuse("an objective is a name", given, "accuracy, macs, params, latency, ..., min:NAME, max:NAME")
        way, colon, name = given.strip().rpartition(":")
        if colon:
            require_choice("direction of an objective", way, ("min", "max"))
            return cls(name, way == "max")
        return cls(name, COSTS.get(name, name not in _LOWER))

    def __str__(self) -> str:
        plain = Objective.of(self.name)
        return self.name if plain == self else f"{'max' if self.maximise else 'min'}:{self.name}"


def objectives_of(given: Iterable[Objective | str] | str) -> tuple[Objective, ...]:
    """Objectives from their names; text may join them by commas."""
    found = tuple(Objective.of(each) for each in (given.split(",") if isinstance(given, str) else given))
    names = [objective.name for objective in found]
    if not found or len(set(names)) < len(names):
        refuse("a search has objectives, each once", names, "accuracy, or accuracy,macs, ...")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One candidate that was evaluated, or could not be."""

    arch: Arch
    scores: Mapping[str, float] = field(default_factory=dict)
    """By name, accuracy in percent; none where it failed."""
    costs: Mapping[str, float] = field(default_factory=dict)
    number: int = -1
    """Its place in the order in which candidates were proposed; -1 of one that was not."""
    generation: int = 0
    parents: tuple[str, ...] = ()
    """Their ids."""
    made: str = ""
    """How it was proposed: "random", "mutation", "crossover", ..."""
    seed: int = 0
    split: str | None = None
    """The hash of the split that it was scored on, where it was one."""
    seconds: float = 0.0
    """What the evaluation took."""
    state: State = "complete"
    reason: str = ""
    """Why it failed."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """What else the evaluator said."""

    def __post_init__(self) -> None:
        require_choice("state of a trial", self.state, get_args(State))
        for name, value in self.scores.items():
            if not math.isfinite(value):
                refuse(f"a score ({name}) is a finite number", value, "a number, or a trial of state 'failed'")
        if self.state == "failed" and not self.reason:
            refuse("a failed trial has a reason", self.reason, "one line")

    @property
    def complete(self) -> bool:
        return self.state == "complete"

    def value(self, name: str) -> float:
        """A score, or a cost, by name."""
        for known in (self.scores, self.costs):
            if name in known:
                return float(known[name])
        refuse("a trial has no such score or cost", name, ", ".join([*self.scores, *self.costs]) or "none: it failed")

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `from_dict` reads."""
        return {
            "number": self.number,
            "id": self.arch.id,
            "state": self.state,
            **({"reason": self.reason} if self.reason else {}),
            "scores": dict(self.scores),
            "costs": dict(self.costs),
            "generation": self.generation,
            "parents": list(self.parents),
            "made": self.made,
            "seed": self.seed,
            "split": self.split,
            "seconds": self.seconds,
            **({"detail": dict(self.detail)} if self.detail else {}),
            "arch": self.arch.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: object) -> Trial:
        optional = ("id", "reason", "detail", "seconds", "made", "parents", "generation", "seed", "split", "number")
        given = require_keys("a trial", data, ("arch", "state", "scores", "costs"), optional)
        given.pop("id", None)
        parents = tuple(given.pop("parents", ()))
        return cls(**{**given, "arch": Arch.from_dict(given["arch"]), "parents": parents})


def values_of(trials: Sequence[Trial], objectives: Sequence[Objective]) -> NDArray[np.float64]:
    """(trials, objectives): every objective turned so that less is better."""
    signs = [-1.0 if objective.maximise else 1.0 for objective in objectives]
    rows = [
        [sign * trial.value(objective.name) for sign, objective in zip(signs, objectives, strict=True)]
        for trial in trials
    ]
    return np.array(rows, dtype=np.float64).reshape(len(trials), len(objectives))
