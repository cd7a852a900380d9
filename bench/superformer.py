"""What the superformer costs over the same networks standing alone, and masked against sliced execution of several.

python bench/superformer.py                  # one thread
python bench/superformer.py --threads 2
python bench/superformer.py --clock cpu      # the process' own time, for a machine that others use too
python bench/superformer.py --pixels 32      # the small settings only
python bench/superformer.py --space s3-nano  # one space only
python bench/superformer.py --device cuda
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from vitruvius import Arch, Superformer, spaces


@dataclass(frozen=True)
class Setting:
    space: str
    sharing: str
    private: tuple[str, ...]
    img_size: int
    batch: int
    classes: int
    repeats: int


SETTINGS = (
    Setting("autoformer-tiny", "ordinal", (), 224, 8, 1000, 3),
    Setting("autoformer-tiny", "cyclic", (), 224, 8, 1000, 3),
    Setting("vitas-nano", "cyclic", ("class_token", "qk"), 32, 64, 10, 30),
    Setting("autoformer-nano", "ordinal", (), 32, 64, 10, 15),
    Setting("s3-nano", "cyclic", (), 32, 64, 10, 15),
)
SETTINGS_ON_A_GPU = (
    Setting("autoformer-tiny", "ordinal", (), 224, 256, 1000, 5),
    Setting("autoformer-tiny", "cyclic", (), 224, 256, 1000, 5),
)
SEVERAL_ON_A_GPU = (
    Setting("vit-resnas-tiny", "ordinal", (), 224, 256, 1000, 5),
    Setting("vit-resnas-tiny", "ordinal", (), 224, 512, 1000, 5),
    Setting("vit-resnas-tiny", "ordinal", (), 224, 1024, 1000, 5),
    Setting("autoformer-tiny", "ordinal", (), 224, 256, 1000, 5),
)
SEVERAL = (
    Setting("vit-resnas-tiny", "ordinal", (), 224, 16, 1000, 2),
    Setting("vit-resnas-tiny", "ordinal", (), 224, 64, 1000, 1),
    Setting("autoformer-nano", "ordinal", (), 32, 16, 10, 5),
    Setting("autoformer-nano", "ordinal", (), 32, 32, 10, 5),
    Setting("autoformer-nano", "ordinal", (), 32, 64, 10, 5),
    Setting("vit-resnas-nano", "ordinal", (), 32, 16, 10, 5),
    Setting("vit-resnas-nano", "ordinal", (), 32, 32, 10, 5),
    Setting("vit-resnas-nano", "ordinal", (), 32, 64, 10, 5),
    Setting("vit-resnas-nano", "cyclic", (), 32, 64, 10, 5),
)


def step(forward: Callable[[], Tensor], labels: Tensor, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad(set_to_none=True)
    nn.functional.cross_entropy(forward(), labels).backward()
    optimizer.step()


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def in_turns(works: list[Callable[[], None]], repeats: int, device: str, clock: Callable[[], float]) -> list[float]:
    """Seconds of the fastest run of each, run in turns so that all see the same machine."""
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(repeats + 1):
        for work, kept in zip(works, seconds, strict=True):
            start = clock()
            work()
            if device == "cuda":
                torch.cuda.synchronize()
            kept.append(clock() - start)
    return [min(kept[1:]) for kept in seconds]


class Bench:
    """One setting: a superformer, images and labels."""

    def __init__(self, setting: Setting, device: str, clock: Callable[[], float]) -> None:
        self.setting, self.device, self.clock = setting, device, clock
        options = {} if setting.img_size == 224 else {"img_size": setting.img_size}
        self.space = spaces.load(setting.space, **options)
        self.superformer = Superformer(
            self.space, sharing=setting.sharing, private=setting.private, num_classes=setting.classes, seed=0
        ).to(device)
        self.images = torch.randn(setting.batch, 3, setting.img_size, setting.img_size, device=device)
        self.labels = torch.randint(setting.classes, (setting.batch,), device=device)
        self.optimizer = torch.optim.SGD(self.superformer.parameters(), lr=1e-3)

    def sample(self, count: int, seed: int) -> list[Arch]:
        return [self.space.sample(np.random.default_rng(seed + i)) for i in range(count)]

    def shared_step(self, arch: Arch) -> None:
        """A training step whose plan is made anew, since a run rarely samples a network twice."""
        self.superformer.drop_plans()
        step(lambda: self.superformer(self.images, arch), self.labels, self.optimizer)

    def several_step(self, archs: list[Arch], how: str) -> None:
        self.superformer.drop_plans()
        forward = self.superformer.several
        step(lambda: forward(self.images, archs, how=how), self.labels, self.optimizer)

    def alone_step(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        step(lambda: model(self.images), self.labels, optimizer)

    def overhead(self) -> str:
        alone, shared, ratios = [], [], []
        for arch in self.sample(100, 1000):
            self.superformer.slices_of(arch)  # the kinds of blocks become known, as they do early in a run
        for arch in self.sample(4, 0):
            model = self.superformer.extract(arch)
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
            works = [lambda m=model, o=optimizer: self.alone_step(m, o), lambda a=arch: self.shared_step(a)]
            first, second = in_turns(works, self.setting.repeats, self.device, self.clock)
            alone.append(first)
            shared.append(second)
            ratios.append(second / first)
        fresh = self.sample(20, 5000)
        self.superformer.drop_plans()
        switch, again = (self._seconds(lambda: [self.superformer.slices_of(a) for a in fresh]) / 20 for _ in range(2))
        largest = sum(p.numel() for p in self.superformer.extract(self.space.largest).parameters())
        owned = sum(p.numel() for p in self.superformer.parameters())
        times = f"{np.mean(alone) * 1e3:>9.1f} ms{np.mean(shared) * 1e3:>9.1f} ms{np.mean(ratios):>8.3f}"
        return f"{times}{switch * 1e3:>9.2f} ms{again * 1e3:>8.3f} ms{largest / 1e6:>9.2f} M{owned / 1e6:>9.2f} M"

    def _seconds(self, work: Callable[[], object]) -> float:
        start = self.clock()
        work()
        return self.clock() - start

    def masked_against_sliced(self) -> str:
        archs = self.sample(16, 0)
        works = [lambda: self.several_step(archs, "sliced"), lambda: self.several_step(archs, "masked")]
        sliced, masked = in_turns(works, self.setting.repeats, self.device, self.clock)
        return f"{sliced * 1e3:>9.1f} ms{masked * 1e3:>9.1f} ms{masked / sliced:>8.2f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--pixels", type=int, help="only the settings of this image size")
    parser.add_argument("--space", help="only the settings of this space")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    gpu = given.device == "cuda"
    where = torch.cuda.get_device_name() if gpu else f"{given.threads} thread(s)"
    print(f"Training steps (forward, backward, SGD) of four sampled networks, {where}, float32, best of several")
    head = f"{'space':<17}{'sharing':<9}{'pixels':>7}{'batch':>7}"
    print(f"{head}{'alone':>12}{'shared':>12}{'ratio':>8}{'switch':>12}{'again':>11}{'largest':>11}{'shared':>11}")

    def rows(settings: tuple[Setting, ...], measure: Callable[[Bench], str]) -> None:
        for setting in settings:
            if given.pixels in (None, setting.img_size) and given.space in (None, setting.space):
                row = f"{setting.space:<17}{setting.sharing:<9}{setting.img_size:>7}{setting.batch:>7}"
                print(row + measure(Bench(setting, given.device, CLOCKS[given.clock])), flush=True)

    rows((*SETTINGS, *(SETTINGS_ON_A_GPU if gpu else ())), Bench.overhead)
    print(f"\nOne step of 16 architectures\n{head}{'sliced':>12}{'masked':>12}{'ratio':>8}")
    rows((*SEVERAL, *(SEVERAL_ON_A_GPU if gpu else ())), Bench.masked_against_sliced)


if __name__ == "__main__":
    main()
