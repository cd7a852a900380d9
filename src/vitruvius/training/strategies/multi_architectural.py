"""Several architectures a step, each on its share of the images (ViT-ResNAS, Section 2.3).

A run begins with the largest network only; widths and depths are released little by little until a quarter of it is
over (Appendix C). In what order the paper does not say: here the choices of every width are released from the largest
down, and in every stage the layers that may be skipped from the deepest up, all at an even pace.
"""

from __future__ import annotations

import numpy as np

from vitruvius.arrays import IntArray
from vitruvius.spaces import Space
from vitruvius.training.strategies._base import Pass, Sampling, Strategy

_RELEASED = ("dim", "depth", "heads", "head_dim", "qkv", "qk", "v", "mlp", "mlp_ratio")
"""Widths and depths; patches, mixers, windows and ratios have no largest first."""


class MultiArchitectural(Strategy):
    def __init__(self, sampling: Sampling, sides: int, archs_per_step: int = 16, release_steps: float = 0.0) -> None:
        super().__init__(sampling, sides)
        self.archs_per_step, self.release_steps = archs_per_step, release_steps
        self._span, self._rank = _pace(sampling.space)

    def passes(self, step: int) -> list[Pass]:
        drawn = self.sampling.draw(step, self.archs_per_step, self.least(step))
        archs, paths = zip(*drawn, strict=True)
        return [Pass(archs=archs, paths=paths, side=side) for side in self.sides]

    def least(self, step: int) -> IntArray | None:
        """(G,): the smallest choice that is released in every dimension; None once all are."""
        if step >= self.release_steps:
            return None
        most = self.sampling.space.layout.counts - 1
        released = np.floor(step / self.release_steps * self._span).astype(np.int64) - self._rank
        return np.where(self._span > 0, most - np.clip(released, 0, most), 0)


def _pace(space: Space) -> tuple[IntArray, IntArray]:
    """Of every dimension how many releases it shares in (0: all its choices are there from the start), and which of
    them is its first."""
    spans, ranks = [], []
    for gene in space.layout.genes:
        if gene.parameter == "on":
            skips = space.stages[gene.stage].skips
            spans.append(len(skips))
            ranks.append(sum(layer > gene.layer for layer in skips))
        else:
            spans.append(len(gene.choices) - 1 if gene.parameter in _RELEASED else 0)
            ranks.append(0)
    return np.array(spans, dtype=np.int64), np.array(ranks, dtype=np.int64)
