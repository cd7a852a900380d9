"""Searching the search space (S3, Section 2.3): the E-T error of spaces, and spaces that move toward less of it.

A sample of a space is drawn (`draw_sample`) and scored by whatever scores architectures; `measure` makes the table of
E-T errors of the space and of each subspace {α_i = v}, with the line of Eq. 7 through those of each dimension; and
`evolve` moves every set of choices by Eq. 8. `search_the_space` repeats the three (Algorithm 1) with one evaluator.

The paper's code was never released. Where the paper is silent or cannot be taken at its word, this is what is done:

- *The unit of error* is percent, as in all of the paper's tables; it does not say. (`tau` is in the same unit.)
- *The unit of x in Eq. 7* is "the choices". One threshold of 0.4 for widths of hundreds of channels and for two to
  four blocks would mean 0.4 % an embedding channel and 0.4 % a block; and Eq. 8 multiplies w by a step anyway. So x
  is counted in steps γ of the dimension, and w is percent a step. `units="choices"` is the letter of Eq. 7.
- *The sign*: w above 0 says that the error grows with the choice, and v - ⌊w/τ⌋γ goes down, as it should. But the
  floor of any negative number is -1 at least: as printed, every dimension with a slope ever so little below zero goes
  up, and none ever stops. Here w/τ is rounded toward zero, so that both ways need a slope of τ. `rounding="floor"` is
  the letter.
- *How far*: the paper prints no bound, and a line through three points says little ten steps away. Its fourth stages
  go from {224, 256, 288} to the 768 of S3-T in two moves, which takes four steps of 64 each; four is `most_steps`.
- *Blocks* of a stage may differ (Section 2.2), yet a dimension of a stage is one set of choices (Eq. 6). α_i = v is
  read as: all blocks of the stage have v; and samples have stages of like blocks (`blocks="alike"`), so that every
  one of the N tells about every dimension. With `blocks="free"` blocks are drawn one by one, as the superformer is
  trained, the N tell about what is chosen once a stage, and `least` more are drawn for every choice of blocks.
- *The top tier* is "the top 50" of N = 1000. A subspace has a third of the N, say, and another a quarter: the best 50
  of the larger would be better for its size alone. So a subspace's top tier is as large a part of it as 50 is of N.
- *Thin subspaces* (fewer than `least` of the N, under a budget say) are widened by architectures drawn from them
  alone, which count for them alone.
- *Choices at or below zero* drop out ("less than zero" in the paper, but no network has no channels). *Where all
  would*, there are fewer steps. A dimension that is left with one choice has no slope, and stays.
- *A space that cannot be* (widths that heads do not divide, ViT-ResNAS's widths that shrink, a reduction beyond the
  grid): dimensions take their steps in turn, one at a time, the strongest tendency first. A step that makes no valid
  space waits until the others have moved, and is left out if need be. The same holds for |A| <= M (`most_networks`; the
  paper prints no M) and for a space with too few networks within the budget: of N drawn within it, half as many are
  to differ as of N drawn without it.
- *Windows* beyond the token grid are windows of the grid: {7, 14} on a grid of 14 moves to {14}, not to {14, 21}.
- *Layers that may be skipped one by one* (ViTAS v1, ViT-ResNAS): the choices of depth are the numbers of blocks, and
  a move adds or takes away layers that are never skipped.
- *Patch sizes and mixers* are left as they are. Heads follow from the q-k-v width where a space says so, 32 a head in
  S3.
- *Noise*: Eq. 8 looks at w alone. Intervals are by the bootstrap, over the architectures of each subspace on its own;
  `confident=True` moves only where the interval leaves zero out.
- *T*: Algorithm 1 moves the space T + 1 times as printed, Section 4.1 says three iterations, and Table 5's best
  network (that is S3-T) is from the space after two. Here T is the number of moves.
- *Steps* for other spaces: see `default_steps`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vitruvius.arch import Arch, refuse, require_choice
from vitruvius.search._domain import Domain
from vitruvius.search._et_error import ETError, ETTable, Subspace, Tendency, e_t_error, fit_line
from vitruvius.search._et_error import measure as _measure
from vitruvius.search._moves import Move, Rounding, default_steps, moved_by, resolve_steps, steps_asked, with_moves
from vitruvius.search._subspaces import Dimension, Sample, dimensions_of
from vitruvius.search._subspaces import draw_sample as _draw_sample
from vitruvius.spaces import Space

__all__ = [
    "Dimension",
    "ETError",
    "ETTable",
    "Evolved",
    "Iteration",
    "Move",
    "Rules",
    "Sample",
    "Subspace",
    "Tendency",
    "at_space",
    "default_steps",
    "dimensions_of",
    "draw_sample",
    "e_t_error",
    "evolve",
    "fit_line",
    "measure",
    "moved_by",
    "resolve_steps",
    "search_the_space",
    "steps_asked",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How spaces are measured and moved. The defaults are the paper's, where it prints them."""

    archs: int = 1000
    """N: architectures drawn at random from a space (1,000 in Section 4.2)."""
    top: int = 50
    """The top tier, of N."""
    least: int = 50
    """A subspace with fewer scored architectures is widened to so many."""
    blocks: Literal["alike", "free"] = "alike"
    tau: float = 0.4
    steps: Mapping[str, float] = field(default_factory=dict)
    """By parameter ("qkv") or by dimension ("stage1.qkv"); see `default_steps` for those that are not here."""
    units: Literal["steps", "choices"] = "steps"
    rounding: Rounding = "toward-zero"
    most_steps: int | None = 4
    """Of one move, either way; None for no bound."""
    most_networks: int | None = None
    """M, which a space's size must not pass."""
    confident: bool = False
    """Only slopes whose interval leaves zero out move anything."""
    level: float = 0.95
    """Of the intervals."""
    resamples: int = 1000

    def __post_init__(self) -> None:
        for name in ("archs", "top", "resamples"):
            if (value := getattr(self, name)) < 1:
                refuse(f"{name} of a space's evolution", value, "1 or more")
        if self.least < 0:
            refuse("least of a space's evolution", self.least, "0 or more")
        if self.top > self.archs:
            refuse("the top tier is a part of the architectures drawn", self.top, f"1..{self.archs}")
        require_choice("blocks", self.blocks, ("alike", "free"))
        require_choice("units", self.units, ("steps", "choices"))
        require_choice("rounding", self.rounding, ("toward-zero", "floor"))
        if not self.tau > 0:
            refuse("tau must be positive", self.tau, "0.4, say")
        if self.most_steps is not None and self.most_steps < 1:
            refuse("most_steps", self.most_steps, "1 or more, or null for no bound")
        if not 0 < self.level < 1:
            refuse("the level of intervals", self.level, "above 0, below 1: 0.95, say")


@dataclass(frozen=True, slots=True)
class Evolved:
    space: Space
    moves: tuple[Move, ...]

    @property
    def moved(self) -> bool:
        return any(move.taken for move in self.moves)


def draw_sample(domain: Domain, rules: Rules, seed: int = 0) -> Sample:
    """The architectures to be scored, a pure function of its arguments."""
    return _draw_sample(domain, seed, rules.archs, rules.least, rules.blocks == "alike")


def measure(
    domain: Domain,
    sample: Sample,
    errors: NDArray[np.float64] | Sequence[float],
    steps: Mapping[str, float],
    rules: Rules,
    seed: int = 0,
) -> ETTable:
    """The E-T errors of a scored sample; an architecture that could not be scored has the error NaN.

    steps: of every dimension (`resolve_steps` of the first space: steps stay what they were when choices drop out).
    """
    return _measure(
        sample,
        np.asarray(errors, dtype=np.float64),
        steps,
        top=rules.top,
        in_steps=rules.units == "steps",
        seed=seed,
        level=rules.level,
        resamples=rules.resamples,
        img_size=domain.counting["img_size"],
    )


def evolve(domain: Domain, table: ETTable, rules: Rules, name: str | None = None) -> Evolved:
    """The next space (under a name of its own), and what became of each dimension."""
    tendencies = {each.dimension: each for each in table.tendencies}
    asked = {dimension: _asked(tendency, rules) for dimension, tendency in tendencies.items()}
    alike = rules.blocks == "alike"
    space, moves = with_moves(domain, tendencies, asked, rules.most_networks, rules.archs, alike)
    return Evolved(replace(space, name=name) if name else space, tuple(moves))


def _asked(tendency: Tendency, rules: Rules) -> int:
    if tendency.slope is None or tendency.low is None or tendency.high is None:
        return 0
    if rules.confident and tendency.low <= 0 <= tendency.high:
        return 0
    return steps_asked(tendency.slope, rules.tau, rules.rounding, rules.most_steps)


@dataclass(frozen=True, slots=True)
class Iteration:
    """One space of Algorithm 1; `evolved` is None of the last."""

    domain: Domain
    sample: Sample
    errors: NDArray[np.float64]
    table: ETTable
    evolved: Evolved | None


def search_the_space(
    domain: Domain,
    errors_of: Callable[[Sequence[Arch]], Sequence[float]],
    rules: Rules,
    *,
    iterations: int = 3,
    seed: int = 0,
) -> Iterator[Iteration]:
    """Algorithm 1 with an evaluator that knows every space: so many moves, and the space that they end in.

    It ends early with a space that does not move. errors_of: the errors of architectures, in percent where `tau` is.
    """
    start, steps = domain.space.name, resolve_steps(domain.space, rules.steps)
    for t in range(iterations + 1):
        sample = draw_sample(domain, rules, seed + t)
        errors = np.asarray(errors_of(sample.archs), dtype=np.float64)
        table = measure(domain, sample, errors, steps, rules, seed + t)
        evolved = None if t == iterations else evolve(domain, table, rules, f"{start}-{t + 1}")
        yield Iteration(domain, sample, errors, table, evolved)
        if evolved is None or not evolved.moved:
            return
        domain = at_space(domain, evolved.space)


def at_space(domain: Domain, space: Space) -> Domain:
    """The same budget and counting in another space."""
    return Domain(space, domain.budget, measured=domain.measured, identity=domain.identity, **domain.counting)
