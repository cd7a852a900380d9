"""The largest, the smallest and a few random architectures a step, their gradients fused (S3, Algorithm 2).

With `distill` the largest teaches the others in place, as BigNAS does; S3 warns that transformers collapse so
(Section 2.3).
"""

from __future__ import annotations

from vitruvius.training.strategies._base import Pass, Sampling, Strategy


class Sandwich(Strategy):
    def __init__(self, sampling: Sampling, sides: int, random_archs: int = 2, distill: bool = False) -> None:
        super().__init__(sampling, sides)
        self.random_archs, self.distill = random_archs, distill
        space = sampling.space
        self._ends = [(arch, space.path_of(space.encode(arch))) for arch in (space.largest, space.smallest)]

    def passes(self, step: int) -> list[Pass]:
        largest, *others = [*self._ends, *self.sampling.draw(step, self.random_archs)]
        taught = [each for arch, path in others for each in self.whole(arch, path, self.distill)]
        return self.whole(*largest) + taught
