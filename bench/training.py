"""Images a second of the training loop over the bare forward, backward and step of the same networks, side by side.

In turns of 20 steps, the fastest turn of each. Batches, augmentation, clipping and logging are the loop's; validation
is left out. The ratio is of seconds by the clock; "saving" has a turn's share of a checkpoint (the fastest of three)
added; "of CPU" is of CPU time, on a busy machine the fairer measure.

python bench/training.py                  # one thread
python bench/training.py --threads 2
python bench/training.py --device cuda --batch 1024
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitruvius import spaces
from vitruvius.data import eval_batches
from vitruvius.training import RetrainConfig, SuperformerConfig, read_config
from vitruvius.training.config import Settings
from vitruvius.training.loop import Loop
from vitruvius.training.optim import make_optimizer
from vitruvius.training.plan import make_plan
from vitruvius.training.processes import make_accelerator
from vitruvius.training.run import start_folder
from vitruvius.training.strategies import Pass, run_pass

STEPS = 20
SIZES = {"digits": 8, "fashion-mnist": 28}
RECIPES = {"one network": "retrain", "superformer": "superformer"}


def settings_of(source: str, what: str, given: argparse.Namespace) -> Settings:
    data = "digits" if source == "digits" else f"idx:{given.fashion}"
    settings: dict[str, Any] = {"recipe": f"{source}-{RECIPES[what]}", "data": data, "device": given.device}
    settings |= {"epochs": 10_000, "validate_every": 10_000}
    if given.batch:
        settings["batch_size"] = given.batch
    if what == "superformer":
        return read_config(SuperformerConfig, settings)
    largest = spaces.load("vitas-nano", img_size=SIZES[source], patch=4).largest
    return read_config(RetrainConfig, settings | {"arch": largest.to_json()})


class Bare:
    """Forward, backward and step on a batch that is there already: what no loop can do without."""

    def __init__(self, config: Settings) -> None:
        plan = make_plan(config)
        self.device = make_accelerator(config).device
        self.model = plan.job.model.to(self.device).train()
        self.optimizer = make_optimizer(self.model, config)
        self.passes = [plan.job.passes(step) for step in range(2000)]
        search, batch = plan.data.search, range(config.batch_size)
        options = {"img_size": plan.job.img_size, "mean": search.mean, "std": search.std, "device": self.device}
        [(self.x, self.labels)] = eval_batches(search.train, config.batch_size, indices=batch, **options)
        self.smoothing = config.label_smoothing
        self.done = 0

    def __call__(self) -> None:
        for _ in range(STEPS):
            self.step(self.passes[self.done % len(self.passes)])
            self.done += 1

    def step(self, passes: Sequence[Pass]) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch.zeros((), device=self.device)
        for each in passes:
            loss = nn.functional.cross_entropy(
                run_pass(self.model, each, self.x), self.labels, label_smoothing=self.smoothing
            )
            loss.backward()
        self.optimizer.step()
        return loss


def timed(work: Callable[[], object], device: str = "cpu") -> tuple[float, float]:
    """Seconds by the clock and of CPU time."""
    clock, cpu = time.perf_counter(), time.process_time()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - clock, time.process_time() - cpu


def in_turns(works: Sequence[Callable[[], object]], turns: int, device: str) -> list[tuple[float, float]]:
    """Of each, the least seconds by the clock and of CPU time."""
    kept: list[list[tuple[float, float]]] = [[] for _ in works]
    for _ in range(turns + 1):
        for work, seconds in zip(works, kept, strict=True):
            seconds.append(timed(work, device))
    return [(min(c for c, _ in seconds[1:]), min(p for _, p in seconds[1:])) for seconds in kept]


def measured(config: Settings, turns: int, device: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        accelerator = make_accelerator(config)
        plan = make_plan(config)
        start_folder(Path(folder), config, plan.data, plan.job.record())
        loop_of_run = Loop(plan, Path(folder), accelerator, quiet=True)
        steps = loop_of_run.steps()
        works = [Bare(config), lambda: [next(steps) for _ in range(STEPS)]]
        (bare, bare_cpu), (loop, loop_cpu) = in_turns(works, turns, device)
        saving = min(timed(loop_of_run._save)[0] for _ in range(3)) * STEPS / loop_of_run.save_every
        steps.close()
    images = STEPS * config.batch_size
    ratios = f"{bare / loop:>9.3f}{bare / (loop + saving):>10.3f}{bare_cpu / loop_cpu:>10.3f}"
    return f"{images / bare:>10,.0f}/s{images / loop:>10,.0f}/s{ratios}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--batch", type=int, help="instead of the recipes'")
    parser.add_argument("--fashion", default="/usr/share/datasets/fashion-mnist", help="its four files")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    where = torch.cuda.get_device_name() if given.device == "cuda" else f"{given.threads} thread(s)"
    print(f"Training of vitas-nano, {where}, float32: images a second, the fastest of {given.turns} turns")
    print(f"{'images':<15}{'what':<13}{'batch':>6}{'bare':>12}{'loop':>12}{'ratio':>9}{'saving':>10}{'of CPU':>10}")
    for source in SIZES:
        for what in RECIPES:
            config = settings_of(source, what, given)
            row = f"{source:<15}{what:<13}{config.batch_size:>6}"
            print(row + measured(config, given.turns, given.device), flush=True)


if __name__ == "__main__":
    main()
