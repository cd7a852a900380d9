"""Mutation and crossover of encoded networks, thousands at a time.

The units that change together are choices, or whole blocks: S3 and AutoFormer redraw and swap blocks, ViT-ResNAS single
parameters. Children are not checked against a budget here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vitruvius.arch import refuse
from vitruvius.arrays import IntArray
from vitruvius.spaces import Space

__all__ = ["Rates", "Variation"]


@dataclass(frozen=True, slots=True)
class Rates:
    """With what probability each part of a network is drawn anew."""

    depth: float
    """Each stage's depth, and whether each layer that may be skipped is."""
    width: float
    """Every other choice made once for the network or for a stage: patch, widths, ..."""
    block: float
    """Each block, or each choice of it."""

    def __post_init__(self) -> None:
        for name in ("depth", "width", "block"):
            if not 0 <= getattr(self, name) <= 1:
                refuse(f"the mutation probability p_{name} must be between 0 and 1", getattr(self, name), "0..1")
        if not self.depth + self.width + self.block:
            refuse("mutation must change something", (self.depth, self.width, self.block), "a probability above 0")


class Variation:
    """The operators of a space.

    whole_blocks: a block is redrawn, or taken from one parent, as one; otherwise choice by choice.
    """

    def __init__(self, space: Space, rates: Rates | None = None, *, whole_blocks: bool = False) -> None:
        self.space = space
        genes = space.layout.genes
        parts = ["depth" if g.parameter in ("depth", "on") else "width" if g.layer < 0 else "block" for g in genes]
        self._rates = np.array([0.0 if rates is None else getattr(rates, part) for part in parts])
        units: dict[object, int] = {}
        keys = [
            (gene.stage, gene.layer) if whole_blocks and part == "block" else column
            for column, (gene, part) in enumerate(zip(genes, parts, strict=True))
        ]
        self._unit = np.array([units.setdefault(key, len(units)) for key in keys], dtype=np.int64)
        self._units = len(units)

    def mutated(self, rng: np.random.Generator, parents: IntArray) -> IntArray:
        """(n, G): each unit drawn anew with its probability. Blocks that a parent lacks are drawn at random."""
        layout = self.space.layout
        change = rng.random((len(parents), self._units))[:, self._unit] < self._rates
        fresh = rng.integers(0, layout.counts, size=parents.shape, dtype=np.int64)
        return self.packed(np.where(layout.used(parents) & ~change, parents, fresh))

    def crossed(self, rng: np.random.Generator, a: IntArray, b: IntArray) -> IntArray:
        """(n, G): each unit from one parent or the other, evenly; a block that only one has comes from that one."""
        used_a, used_b = self.space.layout.used(a), self.space.layout.used(b)
        from_a = rng.random((len(a), self._units))[:, self._unit] < 0.5
        return self.packed(np.where((from_a & used_a) | ~used_b, a, b))

    def packed(self, vectors: IntArray) -> IntArray:
        """The same networks on the first layers that can hold their blocks: equal networks are equal vectors."""
        layout, made = self.space.layout, vectors.copy()
        for s, stage in enumerate(self.space.stages):
            if not stage.skips:
                continue
            active = layout.active(vectors, s)
            skips = np.array(stage.skips)
            target = active.copy()
            target[:, skips] = np.arange(len(skips)) < active[:, skips].sum(axis=1, keepdims=True)
            source, place = (np.argsort(~mask, axis=1, kind="stable") for mask in (active, target))
            for name in stage.block:
                columns = [c for layer in range(stage.layers) if (c := layout.column(name, s, layer)) is not None]
                if not columns:  # there is no choice
                    continue
                moved = np.empty_like(source)
                np.put_along_axis(moved, place, np.take_along_axis(vectors[:, columns], source, axis=1), axis=1)
                made[:, columns] = moved
            made[:, [c for layer in stage.skips if (c := layout.column("on", s, layer)) is not None]] = target[:, skips]
        return layout.canonical(made)
