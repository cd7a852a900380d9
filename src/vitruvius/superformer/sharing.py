"""Sharing rules: which channels of an axis the network of a given width uses. Pure functions of whole numbers.

An axis is known by its length and all the widths that it may have. Whatever the rule, the network of width k has k
channels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from math import gcd
from typing import TypeAlias

import numpy as np

from vitruvius.arch import refuse
from vitruvius.registry import Registry
from vitruvius.superformer._tables import CYCLIC
from vitruvius.superformer.cyclic import MOST_GROUPS, chained, free_use, optimal_starts

__all__ = ["RULES", "Bilateral", "Cyclic", "FreeCyclic", "Ordinal", "Pieces", "SharingRule", "rule_named"]

Pieces: TypeAlias = tuple[tuple[int, int], ...]
"""Contiguous pieces, each its start and its length, in the order in which the narrow network has them."""


class SharingRule(ABC):
    """One way for the widths of an axis to share its channels."""

    name: str
    sides: int = 1
    """How many sets of channels a width has. A step that trains all of them costs so many passes."""

    def pieces(self, widths: tuple[int, ...], width: int, side: int = 0) -> Pieces:
        """The channels of `width`, one of `widths`, of which the largest is the axis' length."""
        if width not in widths:
            refuse("an axis has only the widths of its space", width, ", ".join(map(str, widths)))
        if not 0 <= side < self.sides:
            refuse(f"sharing rule {self.name!r} has {self.sides} side(s)", side, f"0..{self.sides - 1}")
        return self._pieces(widths, width, side)

    @abstractmethod
    def _pieces(self, widths: tuple[int, ...], width: int, side: int) -> Pieces: ...

    def channels(self, widths: tuple[int, ...], width: int, side: int = 0) -> list[int]:
        """The channels themselves, in the narrow network's order."""
        return [start + i for start, length in self.pieces(widths, width, side) for i in range(length)]


def _run(length: int, start: int, width: int) -> Pieces:
    """A contiguous run that wraps around the end."""
    if width == length:
        return ((0, length),)
    if start + width <= length:
        return ((start, width),)
    return ((start, length - start), (0, start + width - length))


class Ordinal(SharingRule):
    """The first channels (AutoFormer, AutoSlim)."""

    name = "ordinal"

    def _pieces(self, widths: tuple[int, ...], width: int, side: int) -> Pieces:
        return ((0, width),)


class Bilateral(SharingRule):
    """The first channels on one side, the last on the other, both trained (BCNet): fair, for two passes a step."""

    name = "bilateral"
    sides = 2

    def _pieces(self, widths: tuple[int, ...], width: int, side: int) -> Pieces:
        return ((widths[-1] - width if side else 0, width),)


class Cyclic(SharingRule):
    """Runs around a circle, placed so that channels are trained equally often and with even influence (ViTAS v2).

    The groups are as wide as the widths' greatest common divisor, so that heads stay whole. Where that makes too many
    groups and the widths are a rounded ladder (tenths of a maximum), its rungs are the groups, and a run starts at its
    rung and has its exact number of channels. Other axes have runs whose unused arcs follow each other.
    """

    name = "cyclic"

    def _pieces(self, widths: tuple[int, ...], width: int, side: int) -> Pieces:
        return _run(widths[-1], _starts(widths)[widths.index(width)], width)


class FreeCyclic(SharingRule):
    """Channels that need not be neighbours, by an integer program: the evenest influence there is, for more gathers.

    The program grows with the number of subsets of the widths: an axis of more than 13 has the cyclic rule's runs.
    """

    name = "free"

    def _pieces(self, widths: tuple[int, ...], width: int, side: int) -> Pieces:
        if len(widths) > MOST_GROUPS:
            return _run(widths[-1], _starts(widths)[widths.index(width)], width)
        return _free_pieces(widths)[widths.index(width)]


def rungs_of(widths: tuple[int, ...]) -> tuple[int, tuple[int, ...]] | None:
    """The number of groups and each width in groups, if the widths are exactly or nearly whole groups of a few."""
    length, unit = widths[-1], gcd(*widths)
    if length // unit <= MOST_GROUPS:
        return length // unit, tuple(width // unit for width in widths)
    ladder = tuple(round(length * i / len(widths)) for i in range(1, len(widths) + 1))
    if len(widths) <= MOST_GROUPS and widths == ladder:
        return len(widths), tuple(range(1, len(widths) + 1))
    return None


@lru_cache(maxsize=4096)
def _starts(widths: tuple[int, ...]) -> tuple[int, ...]:
    """The first channel of each width's run."""
    length, unit = widths[-1], gcd(*widths)
    if (found := rungs_of(widths)) is None:
        return tuple(start * unit for start in chained(length // unit, [width // unit for width in widths]))
    groups, rungs = found
    whole = rungs == tuple(range(1, groups + 1))
    starts = CYCLIC[groups] if whole and groups in CYCLIC else optimal_starts(groups, rungs)
    return tuple(round(length * start / groups) for start in starts)


@lru_cache(maxsize=4096)
def _free_pieces(widths: tuple[int, ...]) -> tuple[Pieces, ...]:
    unit = gcd(*widths)
    use = free_use(widths[-1] // unit, [width // unit for width in widths])
    found = []
    for row in use:
        edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(int), [0]])))
        found.append(tuple((int(a) * unit, int(b - a) * unit) for a, b in edges.reshape(-1, 2)))
    return tuple(found)


RULES: Registry[SharingRule] = Registry("sharing rule")
for _rule in (Ordinal(), Bilateral(), Cyclic(), FreeCyclic()):
    RULES.add(_rule.name, _rule)


def rule_named(sharing: str | SharingRule) -> SharingRule:
    return sharing if isinstance(sharing, SharingRule) else RULES[sharing]
