"""How long a journey will take, from a few timed steps of one network on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from vitruvius import costs
from vitruvius.models import build
from vitruvius.pipeline._choices import load_space
from vitruvius.pipeline._journey_config import Phase
from vitruvius.pipeline.journey import Journey
from vitruvius.search import Domain, make_searcher, objectives_of
from vitruvius.training.config import Settings
from vitruvius.training.plan import make_plan

__all__ = ["estimate"]

_BATCH = 64
_REPEATS = 3


def estimate(journey: Journey) -> dict[Phase, float]:
    """Seconds by phase; only those that take long. Rough: a network's time is taken to grow with its MACs."""
    choices, data = journey.choices, journey.data.search
    counting = {"img_size": choices.img_size, "num_classes": len(data.classes), "in_chans": data.in_chans}
    space = load_space(choices.space)
    arch = space.sample(np.random.default_rng(0))
    model = build(arch, **counting, seed=0)
    device = torch.device(choices.latency["device"])
    x = torch.zeros(_BATCH, data.in_chans, choices.img_size, choices.img_size, device=device)
    model.to(device)
    macs = costs.macs(arch, **counting)

    def forward() -> None:
        with torch.no_grad():
            model(x)

    def step() -> None:
        model(x).sum().backward()

    forward_rate, train_rate = (_BATCH * macs / _seconds(work, device) for work in (forward, step))
    mean = space.mean_cost("macs", **counting)
    found: dict[Phase, float] = {"superformer": 0.0, "search": 0.0, "retrain": 0.0}
    if choices.superformer is not None:
        found["superformer"] = _training(journey.superformer_config(), train_rate)
    domain = Domain(space, **counting)
    searching = journey.search_settings()
    if choices.superformer is not None:
        searcher = make_searcher(
            searching.searcher, domain, objectives_of(searching.objectives), settings=searching.settings
        )
        images = searching.images if isinstance(searching.images, int) else len(data.val)
        found["search"] = searcher.planned * images * mean / forward_rate
    if choices.evolve is not None:
        config = journey.evolve_config()
        moves = config.iterations + 1
        found["superformer"] = moves * _training(config.superformer_config(config.space), train_rate)
        images = config.images if isinstance(config.images, int) else len(data.val)
        found["superformer"] += moves * config.archs * images * mean / forward_rate
    networks = 3 if journey.config.compare else 1
    found["retrain"] = networks * _training(journey.retrain_config(arch), train_rate)
    return found


def _training(config: Settings, rate: float) -> float:
    plan = make_plan(config)
    return plan.job.macs() * config.batch_size * plan.steps / rate


def _seconds(work: Callable[[], None], device: torch.device) -> float:
    """Of one call: the fastest of a few, after one that is not counted."""
    times = []
    for _ in range(1 + _REPEATS):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    return min(times[1:])
