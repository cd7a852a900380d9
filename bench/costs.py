"""Architectures a second of the closed-form costs, against counting on a built network, in one run on one thread.

python bench/costs.py
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import time
from collections.abc import Callable

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from vitruvius import Arch, costs, spaces
from vitruvius.models import build

torch.set_num_threads(1)


def best(work: Callable[[], object], repeats: int = 7) -> float:
    """Seconds of the fastest run."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def counted(arch: Arch, img_size: int) -> tuple[int, float]:
    """What a hook on the built network counts (meta device: no arithmetic, the fastest such count there is)."""
    with torch.device("meta"):
        model = build(arch, img_size=img_size).to("meta")
        images = torch.zeros(1, 3, img_size, img_size)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(images)
    return sum(parameter.numel() for parameter in model.parameters()), counter.get_total_flops() / 2


def main() -> None:
    print(f"{'space':<20}{'closed form':>16}{'one by one':>14}{'built network':>16}{'ratio':>12}")
    for name in ("vitas-v1", "s3", "autoformer-tiny", "vitas-twins-small", "vit-resnas-tiny", "pit-s"):
        space = spaces.load(name)
        vectors = space.sample_vectors(np.random.default_rng(0), 20_000)
        archs = space.decode_many(vectors[:8])
        vectorised = len(vectors) / best(lambda v=vectors, s=space: costs.cost(v, space=s))
        single = len(archs) / best(lambda a=archs: [costs.cost(arch) for arch in a])
        built = len(archs) / best(lambda a=archs: [counted(arch, 224) for arch in a], repeats=2)
        print(f"{name:<20}{vectorised:>14,.0f}/s{single:>12,.0f}/s{built:>14.1f}/s{vectorised / built:>11,.0f}x")


if __name__ == "__main__":
    main()
