"""What the superformer costs over the same network standing alone, in one run.

python bench/superformer.py            # one thread
python bench/superformer.py --threads 2
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

from vitruvius import Superformer, spaces

SETTINGS = (
    ("autoformer-tiny", "ordinal", (), 224, 8, 3, 1000),
    ("autoformer-tiny", "cyclic", (), 224, 8, 3, 1000),
    ("vitas-nano", "cyclic", ("class_token", "qk"), 32, 64, 30, 10),
    ("autoformer-nano", "ordinal", (), 32, 64, 20, 10),
    ("s3-nano", "cyclic", (), 32, 64, 20, 10),
)


def interleaved(first: Callable[[], None], second: Callable[[], None], repeats: int) -> tuple[float, float]:
    """Seconds of the fastest of each, run in turns so that both see the same machine."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats + 1):
        for work, kept in zip((first, second), seconds, strict=True):
            start = time.perf_counter()
            work()
            kept.append(time.perf_counter() - start)
    return min(seconds[0][1:]), min(seconds[1][1:])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    torch.set_num_threads(parser.parse_args().threads)
    print(f"Training step (forward, backward, SGD) of sampled networks, {torch.get_num_threads()} thread(s)")
    print(f"{'space':<17}{'sharing':<10}{'pixels':>7}{'batch':>7}{'alone':>11}{'shared':>11}{'ratio':>8}", end="")
    print(f"{'switch':>10}{'again':>10}{'largest':>10}{'shared':>10}")
    for name, sharing, private, img_size, batch, repeats, classes in SETTINGS:
        space = spaces.load(name, **({} if img_size == 224 else {"img_size": img_size}))
        superformer = Superformer(space, sharing=sharing, private=private, num_classes=classes, seed=0).train()
        images, labels = torch.randn(batch, 3, img_size, img_size), torch.randint(classes, (batch,))
        archs = [space.sample(np.random.default_rng(seed)) for seed in range(4)]
        ratios, times = [], []
        optimizer = torch.optim.SGD(superformer.parameters(), lr=1e-3)
        for arch in archs:
            model = superformer.extract(arch)
            alone = torch.optim.SGD(model.parameters(), lr=1e-3)

            def step(forward: Callable[[], torch.Tensor], optimizer: torch.optim.Optimizer) -> None:
                optimizer.zero_grad(set_to_none=True)
                torch.nn.functional.cross_entropy(forward(), labels).backward()
                optimizer.step()

            # The plan of each shared step is made anew: a real run rarely samples a network twice.
            def shared(arch: object = arch) -> None:
                superformer.forget()
                step(lambda: superformer(images, arch), optimizer)

            bare, sliced = interleaved(
                lambda model=model, alone=alone: step(lambda: model(images), alone), shared, repeats
            )
            ratios.append(sliced / bare)
            times.append((bare, sliced))
        fresh = [space.sample(np.random.default_rng(100 + seed)) for seed in range(20)]
        start = time.perf_counter()
        for arch in fresh:
            superformer.slices_of(arch)
        switch = (time.perf_counter() - start) / len(fresh)
        start = time.perf_counter()
        for arch in fresh:
            superformer.slices_of(arch)
        again = (time.perf_counter() - start) / len(fresh)
        most = sum(p.numel() for p in superformer.extract(space.largest).parameters())
        owned = sum(p.numel() for p in superformer.parameters())
        bare, sliced = (sum(column) / len(times) for column in zip(*times, strict=True))
        print(f"{name:<17}{sharing:<10}{img_size:>7}{batch:>7}{bare * 1e3:>8.1f} ms{sliced * 1e3:>8.1f} ms", end="")
        print(f"{np.mean(ratios):>8.3f}{switch * 1e3:>7.2f} ms{again * 1e3:>7.3f} ms", end="")
        print(f"{most / 1e6:>8.2f} M{owned / 1e6:>8.2f} M")


if __name__ == "__main__":
    main()
