"""The E-T error of a space and of its subspaces (S3, Eq. 5), and the line through them (Eq. 7), with intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitruvius.arch import refuse
from vitruvius.search._subspaces import Sample, chosen, dimensions_of

__all__ = ["ETError", "ETTable", "Subspace", "Tendency", "e_t_error", "fit_line", "measure"]

Floats = NDArray[np.float64]
_BATCH = 2**22
"""Numbers that are resampled at a time."""


@dataclass(frozen=True, slots=True)
class ETError:
    """In the units of the errors it was made from: percent, say."""

    error: float
    """The mean of the next two."""
    expected: float
    """Of all architectures."""
    top_tier: float
    """Of the best `top` of them."""
    low: float
    high: float
    """The interval of `error`, from resampled architectures."""
    count: int
    top: int


@dataclass(frozen=True, slots=True)
class Subspace:
    """Of one choice."""

    choice: float
    position: float
    """What the line is fitted on: in steps of the dimension, or in its own units."""
    widened: int
    """So many of the architectures were drawn for this subspace alone."""
    measured: ETError | None
    """None where no architecture of it was found within the budget."""


@dataclass(frozen=True, slots=True)
class Tendency:
    """How the error of a dimension follows its choices: error = slope * position + intercept."""

    dimension: str
    step: float
    subspaces: tuple[Subspace, ...]
    slope: float | None
    """None where fewer than two different positions were measured."""
    intercept: float | None
    low: float | None
    high: float | None
    """The interval of the slope."""


@dataclass(frozen=True, slots=True)
class ETTable:
    """What one sample says about a space."""

    space: str
    drawn: int
    level: float
    """Of the intervals."""
    whole: ETError
    tendencies: tuple[Tendency, ...]

    def __getitem__(self, dimension: str) -> Tendency:
        for tendency in self.tendencies:
            if tendency.dimension == dimension:
                return tendency
        refuse("the table has no such dimension", dimension, ", ".join(t.dimension for t in self.tendencies))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ETTable:
        def subspace(given: Mapping[str, Any]) -> Subspace:
            measured = given["measured"]
            return Subspace(**{**given, "measured": None if measured is None else ETError(**measured)})

        tendencies = tuple(
            Tendency(**{**given, "subspaces": tuple(map(subspace, given["subspaces"]))}) for given in data["tendencies"]
        )
        return cls(**{**data, "whole": ETError(**data["whole"]), "tendencies": tendencies})


def e_t_error(errors: Floats, top: int) -> Any:
    """Eq. 5: the mean error and that of the best `top`, averaged; over the last axis."""
    best = np.partition(errors, top - 1, axis=-1)[..., :top] if top < errors.shape[-1] else errors
    return (errors.mean(axis=-1) + best.mean(axis=-1)) / 2


def fit_line(x: Floats, y: Floats) -> tuple[Any, Any]:
    """Eq. 7 by least squares: slope and intercept; of y (..., n) over x (n,)."""
    centred = x - x.mean()
    slope = (y * centred).sum(axis=-1) / (centred**2).sum()
    return slope, y.mean(axis=-1) - slope * x.mean()


def measure(
    sample: Sample,
    errors: Floats,
    steps: Mapping[str, float],
    *,
    top: int = 50,
    in_steps: bool = True,
    seed: int = 0,
    level: float = 0.95,
    resamples: int = 1000,
    img_size: int | tuple[int, int] | None = None,
) -> ETTable:
    """The table of a scored sample; NaN is the error of an architecture that could not be scored.

    top: of as many architectures as were drawn. A subspace's best are the same part of its own architectures: taken by
        number, the best of a larger subspace would be better for no other reason than its size.
    """
    errors = np.asarray(errors, dtype=np.float64)
    if errors.shape != (len(sample.archs),):
        refuse("every architecture of a sample has an error", errors.shape, f"({len(sample.archs)},)")
    drawn = errors[: sample.drawn]
    sound = drawn[~np.isnan(drawn)]
    if not len(sound):
        refuse("a space's error needs scored architectures", "none was scored", "one or more")
    part = min(1.0, top / sample.drawn)
    tails = ((1 - level) / 2, (1 + level) / 2)
    whole, _ = _estimate(sound, part, np.random.default_rng((seed, 0)), resamples, tails)
    tendencies = []
    for place, dimension in enumerate(dimensions_of(sample.space, img_size)):
        step = steps[dimension.name]
        of = chosen(sample.space, dimension, sample.vectors)
        subspaces, resampled = [], []
        for choice, value in enumerate(dimension.choices):
            members = sample.members(dimension, choice)
            assert (of[members] == choice).all()
            found = errors[members]
            found = found[~np.isnan(found)]
            position = dimension.positions[choice] / (step if in_steps else 1)
            estimate = None
            if len(found):
                rng = np.random.default_rng((seed, 1, place, choice))
                estimate, again = _estimate(found, part, rng, resamples, tails)
                resampled.append(again)
            widened = int((members >= sample.drawn).sum())
            subspaces.append(Subspace(value, position, widened, estimate))
        tendencies.append(_tendency(dimension.name, step, subspaces, resampled, tails))
    return ETTable(sample.space.name, sample.drawn, level, whole, tuple(tendencies))


def _tendency(
    name: str, step: float, subspaces: list[Subspace], resampled: list[Floats], tails: tuple[float, float]
) -> Tendency:
    measured = [(each.position, each.measured.error) for each in subspaces if each.measured]
    x, y = np.array(measured, dtype=np.float64).reshape(-1, 2).T
    if len(set(x)) < 2:
        return Tendency(name, step, tuple(subspaces), None, None, None, None)
    slope, intercept = fit_line(x, y)
    slopes, _ = fit_line(x, np.stack(resampled, axis=-1))
    low, high = np.quantile(slopes, tails)
    return Tendency(name, step, tuple(subspaces), float(slope), float(intercept), float(low), float(high))


def _estimate(
    errors: Floats, part: float, rng: np.random.Generator, resamples: int, tails: tuple[float, float]
) -> tuple[ETError, Floats]:
    """The E-T error of scored architectures, and those of as many drawn from them again and again."""
    count = len(errors)
    top = max(1, round(part * count))
    rows = max(1, _BATCH // count)
    again = [
        e_t_error(errors[rng.integers(0, count, (min(rows, resamples - start), count))], top)
        for start in range(0, resamples, rows)
    ]
    resampled = np.concatenate(again)
    low, high = np.quantile(resampled, tails)
    best = np.sort(errors)[:top]
    error = float(e_t_error(errors, top))
    found = ETError(error, float(errors.mean()), float(best.mean()), float(low), float(high), count, top)
    return found, resampled
