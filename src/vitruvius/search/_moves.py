"""Eq. 8 of S3: how far each set of choices moves, and what a space can hold of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np

from vitruvius.arch import FAMILIES, refuse, require_choice
from vitruvius.search._domain import Domain
from vitruvius.search._et_error import Tendency
from vitruvius.search._subspaces import dimensions_of, draw, largest_side
from vitruvius.spaces import Space, StageSpace

__all__ = ["Move", "Rounding", "default_steps", "moved_by", "resolve_steps", "steps_asked", "with_moves"]

Rounding: TypeAlias = Literal["toward-zero", "floor"]

_WIDTHS = ("dim", "qkv", "qk", "v", "mlp")


@dataclass(frozen=True, slots=True)
class Move:
    """What became of one dimension."""

    dimension: str
    slope: float | None
    asked: int
    """Steps, by Eq. 8; above 0 to larger choices."""
    taken: int
    before: tuple[float, ...]
    after: tuple[float, ...]
    note: str = ""
    """Why fewer steps were taken than were asked for."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Move:
        return cls(**{**data, "before": tuple(data["before"]), "after": tuple(data["after"])})


def default_steps(space: Space) -> dict[str, float]:
    """One gap between neighbouring choices (the smallest), two of widths, one block of depth.

    Of S3's own space that gives the paper's 1, 64, 0.5, 64 and 7.
    """
    steps: dict[str, float] = {}
    for dimension in dimensions_of(space):
        gap = min(after - before for before, after in pairwise(dimension.choices))
        if dimension.parameter == "depth":
            gap = 1
        steps[dimension.name] = 2 * gap if dimension.parameter in _WIDTHS else gap
    return steps


def resolve_steps(space: Space, given: Mapping[str, float]) -> dict[str, float]:
    """The default steps with those given, for a parameter ("qkv") or for one dimension ("stage1.qkv"), which wins."""
    steps = default_steps(space)
    parameters = {name.rpartition(".")[2] for name in steps}
    for name, step in given.items():
        require_choice("dimension that moves", name, [*steps, *sorted(parameters)])
        if isinstance(step, bool) or not isinstance(step, int | float) or not 0 < step < math.inf:
            refuse(f"the step of {name} must be a positive number", step, "1, 0.5, 64, ...")
        if type(step) is float and not step.is_integer() and name.rpartition(".")[2] != "mlp_ratio":
            refuse(f"the step of {name} must be whole, as its choices are", step, "1, 2, 3, ...")
    for name in steps:
        parameter = name.rpartition(".")[2]
        step = given.get(name, given.get(parameter, steps[name]))
        steps[name] = step if parameter == "mlp_ratio" else int(step)
    return steps


def steps_asked(slope: float, tau: float, rounding: Rounding = "toward-zero", most: int | None = None) -> int:
    """Eq. 8's number of steps: -⌊w / τ⌋, toward zero or as printed, at most so many either way."""
    ratio = slope / tau
    # 1.2 / 0.4 is 2.9999999999999996.
    whole = round(ratio) if math.isclose(ratio, round(ratio), rel_tol=1e-9) else None
    if whole is None:
        whole = math.floor(ratio) if rounding == "floor" else math.trunc(ratio)
    return -whole if most is None else max(-most, min(most, -whole))


def moved_by(space: Space, dimension: str, by: float, img_size: int | tuple[int, int] | None = None) -> Space:
    """The space with one dimension's choices moved.

    Choices at or below zero drop out, as do those with which no stages can follow each other; windows end at the token
    grid; layers that may be skipped one by one have others beside them, or lose some, that may not.
    """
    where, _, parameter = dimension.rpartition(".")
    stage = int(where[5:]) - 1 if where else -1
    if parameter == "depth" and space.stages[stage].identity == "anywhere":
        stages = list(space.stages)
        stages[stage] = _relayered(stages[stage], int(by))
        return replace(space, stages=tuple(stages))
    if parameter == "window" and stage >= 0:
        side = largest_side(space, stage, img_size)
        moved = sorted({min(choice + by, side) for choice in space.dimensions[dimension] if choice + by > 0})
        if not moved:
            refuse(f"no choice of {dimension} is left after a move", by, "fewer steps")
        return space.with_choices(dimension, moved)
    found = space.moved(dimension, by)
    return found if FAMILIES[space.family].widths == "any" else _without_dead_ends(found, dimension)


def _relayered(stage: StageSpace, by: int) -> StageSpace:
    """More layers at the front that are never skipped, or fewer of those; then fewer of the others."""
    kinds = [layer in stage.skips for layer in range(stage.layers)]
    kinds = [False] * max(by, 0) + kinds
    for kind in [False] * kinds.count(False) + [True] * kinds.count(True):
        if stage.layers + by >= len(kinds):
            break
        kinds.remove(kind)
    if not kinds:
        refuse("a stage keeps a layer", stage.layers + by, "1 or more")
    return replace(stage, depth=(len(kinds),), skippable=tuple(layer for layer, skips in enumerate(kinds) if skips))


def _without_dead_ends(space: Space, dimension: str) -> Space:
    alive = []
    for choice in space.dimensions[dimension]:
        try:
            space.with_choices(dimension, (choice,))
        except ValueError:
            continue
        alive.append(choice)
    return space if len(alive) == len(space.dimensions[dimension]) else space.with_choices(dimension, alive)


def with_moves(
    domain: Domain,
    tendencies: Mapping[str, Tendency],
    asked: Mapping[str, int],
    most_networks: int | None = None,
    archs: int = 1000,
    alike: bool = True,
) -> tuple[Space, list[Move]]:
    """The space after as many of the asked steps as it can hold.

    In turn each dimension takes one of its steps, the strongest tendency first, until none can take another. A step
    that makes no valid space, or one of too many networks, or one with too few within the budget to draw `archs` of
    them, waits for the next turn.
    """
    start, space, img_size = domain.space, domain.space, domain.counting["img_size"]
    taken: dict[str, int] = dict.fromkeys(asked, 0)
    notes: dict[str, str] = {}
    waiting = sorted((name for name in asked if asked[name]), key=lambda name: (-abs(asked[name]), name))
    moved = True
    while moved:
        moved = False
        for name in list(waiting):
            sign = 1 if asked[name] > 0 else -1
            try:
                trial = moved_by(space, name, sign * tendencies[name].step, img_size)
                _check_size(trial, space, most_networks)
                _check_budget(trial, space, domain, archs, alike)
            except ValueError as error:
                notes[name] = str(error).partition(";")[0]
                continue
            space, moved = trial, True
            taken[name] += sign
            if taken[name] == asked[name]:
                waiting.remove(name)
    before = {each.name: each.choices for each in dimensions_of(start, img_size)}
    moves = []
    for name in asked:
        held = taken[name] != asked[name]
        slope = tendencies[name].slope
        after = _choices(space, name)
        moves.append(Move(name, slope, asked[name], taken[name], before[name], after, notes[name] if held else ""))
    return space, moves


def _choices(space: Space, name: str) -> tuple[float, ...]:
    """Of a dimension, those of depth as numbers of blocks."""
    for dimension in dimensions_of(space):
        if dimension.name == name:
            return dimension.choices
    return space.dimensions[name]


def _check_size(trial: Space, space: Space, most_networks: int | None) -> None:
    """A move that makes a too large space smaller is one that helps."""
    if most_networks is not None and max(most_networks, space.networks) < trial.networks:
        refuse("the space would have too many networks", f"{trial.networks:.3g}", f"M = {most_networks:.3g}")


def _check_budget(trial: Space, space: Space, domain: Domain, archs: int, alike: bool) -> None:
    """Of networks drawn within the budget half as many differ as of those drawn without one, or more than before."""
    counted = None if domain.budget is None else domain.budget.counted
    if counted is None:
        return
    for metric, low, high in counted.ends:
        least, most = trial.cost_range(metric, **domain.counting)
        if most < low or least > high:
            refuse(f"no network would be within the budget of {metric}", (least, most), str(counted))
    free, within, before = (
        _different(Domain(each, budget, identity=domain.identity, **domain.counting), archs, alike)
        for each, budget in ((trial, None), (trial, counted), (space, counted))
    )
    if within < free / 2 and within < before:
        refuse("too few networks would be within the budget", f"{within} different ones of {archs}", f"{free / 2:g}")


def _different(domain: Domain, archs: int, alike: bool) -> int:
    return len(np.unique(draw(domain, np.random.default_rng(0), archs, alike=alike), axis=0))
