"""One random architecture a step (ViTAS, AutoFormer); two passes where the sharing rule has two sides (BCNet)."""

from __future__ import annotations

from vitruvius.training.strategies._base import Pass, Strategy


class SinglePath(Strategy):
    def passes(self, step: int) -> list[Pass]:
        [(arch, path)] = self.sampling.draw(step, 1)
        return self.whole(arch, path)
