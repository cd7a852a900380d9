"""What one step trains."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor, nn

from vitruvius.arch import Arch
from vitruvius.arrays import IntArray
from vitruvius.spaces import Path, Space
from vitruvius.superformer import Superformer

_TOGETHER = 64
"""Steps whose architectures are drawn at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One forward and backward. The gradients of a step's passes add up."""

    archs: tuple[Arch, ...] = ()
    """One, or several that share the images evenly; none where the model is a plain one."""
    paths: tuple[Path, ...] = ()
    side: int = 0
    """Which of the sharing rule's sets of channels."""
    taught: bool = False
    """It learns from what the step's first pass said instead of from the labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How random architectures are drawn: every choice uniform, identities with the probability of the budget."""

    space: Space
    seed: int
    identity: float | None = None
    _kept: dict[tuple[int, int], list[tuple[Arch, Path]]] = field(default_factory=dict, repr=False, compare=False)

    def draw(self, step: int, n: int, least: IntArray | None = None) -> list[tuple[Arch, Path]]:
        """The architectures of a step, with the layers that their blocks use: a pure function of (seed, step)."""
        if least is None:
            block, place = divmod(step, _TOGETHER)
            return self._block(block, n)[place * n : (place + 1) * n]
        rng = np.random.default_rng((self.seed, step))
        return self._decoded(self.space.sample_vectors(rng, n, self.identity, least))

    def _block(self, block: int, n: int) -> list[tuple[Arch, Path]]:
        """What many steps draw: one by one they would take a tenth of a nano network's step."""
        if (block, n) not in self._kept:
            rng = np.random.default_rng((self.seed, block, n))
            self._kept.clear()
            self._kept[block, n] = self._decoded(self.space.sample_vectors(rng, _TOGETHER * n, self.identity))
        return self._kept[block, n]

    def _decoded(self, vectors: IntArray) -> list[tuple[Arch, Path]]:
        return list(zip(self.space.decode_many(vectors), map(self.space.path_of, vectors), strict=True))


class Strategy(ABC):
    """Stateless: what a step trains depends on (seed, step) alone, so that a resumed run is the same run."""

    def __init__(self, sampling: Sampling, sides: int) -> None:
        self.sampling = sampling
        self.sides = range(sides)

    @abstractmethod
    def passes(self, step: int) -> list[Pass]: ...

    def whole(self, arch: Arch, path: Path, taught: bool = False) -> list[Pass]:
        """One architecture on all of the images: a pass for every side of the sharing rule."""
        return [Pass(archs=(arch,), paths=(path,), side=side, taught=taught) for side in self.sides]


def run_pass(model: nn.Module, each: Pass, x: Tensor, how: Any = "auto", patch_logits: bool = False) -> Any:
    """The logits of a pass: of a superformer's architectures, or of a plain model."""
    options = {"patch_logits": True} if patch_logits else {}
    if not isinstance(model, Superformer):
        return model(x, **options)
    if len(each.archs) == 1:
        return model(x, each.archs[0], each.paths[0], each.side, **options)
    return model.several(x, each.archs, each.paths, each.side, how, **options)
