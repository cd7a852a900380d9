"""What preparing a batch costs beside a training step of a nano network, one thread, measured side by side.

python bench/data.py
python bench/data.py --source digits
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import nn

from vitruvius import build, data, spaces

SPACES = ("vitas-nano", "autoformer-nano", "s3-nano")
WAYS = {
    "fitted": {},
    "padded, flipped": {"crop": "padded", "hflip": 0.5},
    "resized, flipped": {"crop": "resized", "hflip": 0.5},
    "RandAugment, erasing": {"crop": "resized", "auto_augment": "rand-m9-mstd0.5-inc1", "re_prob": 0.25},
}


def best(calls: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Of each call, taking turns, so that a busy machine is busy for all."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats):
        for call, taken in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            taken.append(time.perf_counter() - start)
    return [min(taken) for taken in times]


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, labels: np.ndarray) -> None:
    optimizer.zero_grad(set_to_none=True)
    nn.functional.cross_entropy(model(x), torch.from_numpy(labels[: len(x)])).backward()
    optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", default="idx:/usr/share/datasets/fashion-mnist")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    search = data.load(options.source).search
    indices = range(options.batch)
    keys = [(0, 0, position) for position in indices]
    print(f"{options.source}, batch {options.batch}, ms: a batch, a step, a batch over a step")
    for name in SPACES:
        space = spaces.load(name)
        model = build(space.largest, num_classes=len(search.classes), img_size=space.img_size, in_chans=search.in_chans)
        for way, settings in WAYS.items():
            augment = data.Augment(img_size=space.img_size, mean=search.mean, std=search.std, **settings)
            train = augment.prepare(search.train)
            make = partial(augment, train, indices, keys)
            step = partial(train_step, model, torch.optim.AdamW(model.parameters()), make(), train.labels)
            step()
            made, stepped = best((make, step), options.repeats)
            print(f"{name:16} {way:22} {1000 * made:7.2f} {1000 * stepped:7.1f} {made / stepped:8.4f}")


if __name__ == "__main__":
    main()
