"""DSS, the indicator of TF-TAS: synaptic diversity of attention plus synaptic saliency of MLPs, before any training.

`dss` follows the equations: every weight positive, all four linear layers of attention, signed saliency.
`dss-reference` is what the released code computes: signs stay but for class token and position embeddings, of attention
only the output projection counts (the gradients of q, k and v never reach the sum), and saliency is summed without
signs.

Where an image of ones makes equal patches (see `admits`), thousands of candidates run side by side as collapsed
networks; elsewhere each runs by itself, exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from math import sqrt
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from vitruvius.arch import Arch, token_grids
from vitruvius.proxies._base import PROXIES, Batch, Floats, Measured, Needs, Proxy
from vitruvius.proxies._candidate import network, steady
from vitruvius.proxies._dss_batch import Columns
from vitruvius.proxies._dss_exact import PAPER, RELEASED, Variant, exact_score
from vitruvius.proxies._dss_network import Collapsed, Tensors
from vitruvius.proxies._dss_norms import NuclearNorms
from vitruvius.proxies._setting import Setting

__all__ = ["Dss", "DssReference", "admits", "exact", "fast"]

_CHUNK_BYTES = 2**29
"""Of activations that wait for the backward pass, per thread."""
_TOGETHER = 1000
_PIT_SIDE = 6
"""PiT's pooling sees zeros at the edges; on smaller maps than this in the end, edges are too much of them."""


def admits(arch: Arch, setting: Setting) -> bool:
    """Whether one mean patch may stand for all patches of a network that sees an image of ones."""
    match arch.family:
        case "vit":
            return True
        case "pit":
            return min(token_grids(arch, setting.img_size)[-1]) >= _PIT_SIDE
        case "swin":
            return _tiled(arch, token_grids(arch, setting.img_size))
    return False


def _tiled(arch: Arch, grids: Sequence[tuple[int, int]]) -> bool:
    """Whether neither windows nor the merging of patches ever see padding; then patches are equal throughout."""
    for s, (stage, grid) in enumerate(zip(arch.stages, grids, strict=True)):
        for side in grid:
            if any(side % min(block.window or 1, side) for block in stage.blocks):
                return False
            if s + 1 < len(grids) and side % 2:
                return False
    return True


def exact(archs: Sequence[Arch], setting: Setting, variant: Variant, *, full_svd: bool = False) -> Floats:
    """(n,): scores by autograd, of any family.

    full_svd: of every matrix. Otherwise the norms of weights are kept, as `fast` keeps them, and gradients are reduced
        to their rank: the same numbers but for rounding, sooner.
    """
    norms = None if full_svd else _kept_norms(setting.seed, variant.positive, setting.device)
    with steady():
        return np.array([exact_score(network(arch, setting), variant, norms) for arch in archs], dtype=np.float64)


def fast(archs: Sequence[Arch], setting: Setting, variant: Variant, tensors: Tensors | None = None) -> Floats:
    """(n,): scores of collapsed networks; all architectures must be admitted.

    A score is the same to the bit whatever else is in the batch and in whatever order, on however many threads; another
    device or another BLAS may differ in the last digits of float64.

    tensors: the weights; those of the setting's seed unless said otherwise.
    """
    norms = NuclearNorms() if tensors else _kept_norms(setting.seed, variant.positive, setting.device)
    device = torch.device(setting.device)

    def run(chunk: list[int]) -> list[float]:
        with torch.no_grad():
            columns = Columns.of([archs[place] for place in chunk], setting.img_size)
            sizes = {"num_classes": setting.num_classes, "in_chans": setting.in_chans}
            made = Collapsed(columns, variant, tensors or _starts(setting), norms, device=device, **sizes)
            return made.run().tolist()

    threads = torch.get_num_threads() if device.type == "cpu" else 1
    chunks = list(_chunks(archs, threads))
    scores = np.empty(len(archs))
    with steady(), ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for chunk, found in zip(chunks, pool.map(run, chunks), strict=True):
            scores[chunk] = found
    return scores


@lru_cache(maxsize=4)
def _kept_norms(seed: int, positive: str, device: str) -> NuclearNorms:
    """Of the weights of a seed, with or without their signs."""
    return NuclearNorms()


def _starts(setting: Setting) -> Tensors:
    """The parameters of the plain network (see `_candidate.network`), by name and shape alone."""

    def tensor(name: str, shape: tuple[int, ...], inputs: int = 0) -> Tensor:
        own = name.rsplit(".", 1)[-1]
        if "norm" in name:
            return torch.ones(shape) if own == "weight" else torch.zeros(shape)
        if inputs:
            return setting.random.uniform(name, shape) / sqrt(inputs)
        return torch.zeros(shape) if own == "bias" else setting.random.normal(name, shape) * 0.02

    return tensor


def _chunks(archs: Sequence[Arch], threads: int) -> Iterator[list[int]]:
    """Places of architectures of one kind, similar ones together, as many as fit into memory; no thread is idle."""
    kinds: dict[tuple[object, ...], list[int]] = {}
    for place, arch in enumerate(archs):
        kind = (arch.family, arch.positions, arch.class_token, arch.pool, arch.norm_eps, len(arch.stages))
        kinds.setdefault(kind, []).append(place)
    for places in kinds.values():
        places.sort(key=lambda place: ([stage.dim for stage in archs[place].stages], archs[place].patch.size))
        most = max(_waiting_bytes(archs[place]) for place in places)
        size = max(min(_CHUNK_BYTES // max(most, 1), -(-len(places) // threads)), 1)
        yield from (places[start : start + size] for start in range(0, len(places), size))


def _waiting_bytes(arch: Arch) -> int:
    widths = sum(
        4 * stage.dim + 4 * block.qk + 4 * block.v + 2 * block.mlp for stage in arch.stages for block in stage.blocks
    )
    return 8 * (1 + arch.class_token) * widths


class _Indicator(Proxy):
    source = "Zhou et al. 2022 (TF-TAS)"
    passes = 3
    variant: ClassVar[Variant]

    def together(self, arch: Arch, setting: Setting) -> int:
        return _TOGETHER if admits(arch, setting) else 1

    def measure(self, batch: Batch, setting: Setting) -> Measured:
        archs = batch.archs
        admitted = np.array([admits(arch, setting) for arch in archs], dtype=bool)
        scores = np.empty(len(archs))
        for chosen, way in ((admitted, fast), (~admitted, exact)):
            places = np.flatnonzero(chosen)
            if len(places):
                scores[places] = way([archs[place] for place in places], setting, self.variant)
        return {self.name: scores}


class Dss(_Indicator):
    """Eq. 4 to 6."""

    name = "dss"
    needs = Needs(images="ones", gradients=1, init="positive")
    variant = PAPER


class DssReference(_Indicator):
    """What the released code computes."""

    name = "dss-reference"
    needs = Needs(images="ones", gradients=1, init="default")
    variant = RELEASED


for proxy in (Dss(), DssReference()):
    PROXIES.add(proxy.name, proxy)
