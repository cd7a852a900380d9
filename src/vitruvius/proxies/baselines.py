"""What every proxy is shown beside: the number of parameters, MACs, depth, and no information at all."""

from __future__ import annotations

import hashlib

import numpy as np

from vitruvius import costs
from vitruvius.proxies._base import PROXIES, Batch, Measured, Needs, Proxy
from vitruvius.proxies._setting import Setting

__all__ = ["BASELINES", "Depth", "Macs", "Params", "Random"]

BASELINES = ("params", "macs", "random")
"""Always printed beside other proxies."""


def _counted(metric: str, batch: Batch, setting: Setting) -> Measured:
    counting = {"img_size": setting.img_size, "num_classes": setting.num_classes, "in_chans": setting.in_chans}
    total = costs.cost(batch.given, space=batch.space, **counting)
    return {metric: np.asarray(getattr(total, metric), dtype=np.float64)}


class Params(Proxy):
    name = "params"
    source = "baseline"
    needs = Needs()
    passes = 0

    def measure(self, batch: Batch, setting: Setting) -> Measured:
        return _counted(self.name, batch, setting)


class Macs(Proxy):
    name = "macs"
    source = "baseline"
    needs = Needs()
    passes = 0

    def measure(self, batch: Batch, setting: Setting) -> Measured:
        return _counted(self.name, batch, setting)


class Depth(Proxy):
    """The number of blocks."""

    name = "depth"
    source = "baseline"
    needs = Needs()
    passes = 0

    def measure(self, batch: Batch, setting: Setting) -> Measured:
        return {self.name: np.array([arch.depth for arch in batch.archs], dtype=np.float64)}


class Random(Proxy):
    """A uniform number that is the architecture's own for a seed, so that it too does not depend on the others."""

    name = "random"
    source = "baseline"
    needs = Needs()
    passes = 0

    def measure(self, batch: Batch, setting: Setting) -> Measured:
        keys = (f"{setting.seed}:{arch.id}".encode() for arch in batch.archs)
        words = [int.from_bytes(hashlib.blake2b(key, digest_size=7).digest(), "little") for key in keys]
        return {self.name: np.array(words, dtype=np.float64) / 2**56}


for proxy in (Params(), Macs(), Depth(), Random()):
    PROXIES.add(proxy.name, proxy)
