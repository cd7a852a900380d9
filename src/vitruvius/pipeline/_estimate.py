"""How long a journey will take, from a few timed steps of one network on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from vitruvius import costs
from vitruvius.costs import short
from vitruvius.evaluation import ProxyEvaluator
from vitruvius.models import build
from vitruvius.pipeline._choices import load_space, upper_macs
from vitruvius.pipeline._journey_config import Phase
from vitruvius.pipeline.journey import Journey
from vitruvius.search import COSTS, Domain, make_searcher, objectives_of
from vitruvius.superformer import Superformer
from vitruvius.training.config import Settings
from vitruvius.training.plan import make_plan

__all__ = ["Estimate", "estimate"]

_MACS = 5e9
"""On a CPU, so much goes through the network at once, so that a timed step takes no minute."""
_REPEATS = 3
_SCORED = 8
_VALIDATED = 4
"""Networks of a superformer that each of its validations measures."""


@dataclass(frozen=True)
class Estimate:
    seconds: dict[Phase, float]
    """By phase; only those that take long."""
    basis: str

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


class _Rates:
    """MACs a second, forwards and in training, of one of the space's networks."""

    def __init__(self, journey: Journey) -> None:
        choices, counting = journey.choices, journey.counting()
        self.space, self.counting = load_space(choices.space), counting
        self.arch = self.space.sample(np.random.default_rng(0))
        self.macs = costs.macs(self.arch, **counting)
        device = torch.device(choices.latency["device"])
        retrain = journey.retrain_config(self.arch)
        self.batch = retrain.batch_size // retrain.accumulate
        if device.type == "cpu":
            self.batch = max(1, min(self.batch, int(_MACS / self.macs)))
        model = build(self.arch, **counting, seed=0).to(device)
        self.x = torch.zeros(self.batch, counting["in_chans"], *[choices.img_size] * 2, device=device)

        def forward() -> None:
            with torch.no_grad():
                model(self.x)

        def step() -> None:
            model(self.x).sum().backward()

        self.forward, self.train = (self.batch * self.macs / _seconds(work, device) for work in (forward, step))

    def of_paths(self, superformer: Superformer) -> float:
        """MACs a second in training, where every step trains a network that was not seen before."""
        superformer.to(self.x.device)
        archs = [self.space.sample(np.random.default_rng(i)) for i in range(1 + _REPEATS)]
        seconds = _seconds(lambda: superformer(self.x, archs.pop()).sum().backward(), self.x.device)
        return self.batch * self.space.mean_cost("macs", **self.counting) / seconds

    def training(self, config: Settings, macs: float | None = None) -> float:
        """Seconds of a training run, of one network of so many MACs or of a superformer, with its validations."""
        plan = make_plan(config)
        each = plan.job.macs() if macs is None else macs
        images = len(plan.data.search.val) * (config.epochs // config.validate_every)
        if isinstance(plan.job.model, Superformer):
            validated = _VALIDATED * self.space.mean_cost("macs", **self.counting) * images
            rate = self.of_paths(plan.job.model)
        else:
            validated = each * (images + plan.data.summary()["test"])
            rate = self.train
        return each * config.batch_size * plan.steps / rate + validated / self.forward


def estimate(journey: Journey) -> Estimate:
    """Rough: a network's time is taken to grow with its MACs."""
    choices, data = journey.choices, journey.data.search
    rates = _Rates(journey)
    mean = rates.space.mean_cost("macs", **rates.counting)
    found: dict[Phase, float] = {"superformer": 0.0, "search": 0.0, "retrain": 0.0}
    searching = journey.search_settings()
    domain = Domain(rates.space, **rates.counting)
    searcher = make_searcher(
        searching.searcher, domain, objectives_of(searching.objectives), settings=searching.settings
    )
    if choices.evolve is not None:
        config = journey.evolve_config()
        spaces = config.iterations + 1
        found["superformer"] = spaces * rates.training(config.superformer_config(config.space))
        scored = spaces * config.archs + make_searcher("evolution", domain, settings=config.search).planned
        found["superformer"] += scored * _images(config.images, len(data.val)) * mean / rates.forward
    elif choices.superformer is not None:
        found["superformer"] = rates.training(journey.superformer_config())
        found["search"] = searcher.planned * _images(searching.images, len(data.val)) * mean / rates.forward
    else:
        names = [each.name for each in searcher.objectives if each.name not in COSTS]
        evaluator = ProxyEvaluator(names, **rates.counting, seed=0, batch_size=searching.proxy_batch)
        archs = [rates.space.sample(np.random.default_rng(i)) for i in range(_SCORED)]
        found["search"] = searcher.planned * _seconds(lambda: evaluator(archs), torch.device("cpu")) / _SCORED
    largest = upper_macs(costs.Budget.of(choices.budget), rates.space, rates.counting)
    networks = 3 if journey.config.compare else 1
    found["retrain"] = networks * rates.training(journey.retrain_config(rates.arch), largest)
    threads = f", {torch.get_num_threads()} thread(s)" if choices.latency["device"] == "cpu" else ""
    basis = (
        f"{_REPEATS} timed steps of one network ({short(rates.train)} MACs/s in training on the "
        f"{choices.latency['device']}{threads})"
    )
    return Estimate(found, basis)


def _images(wanted: float | int | None, most: int) -> int:
    """As many as `InheritedAccuracy` takes."""
    if wanted is None:
        return most
    return wanted if isinstance(wanted, int) else max(1, round(wanted * most))


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """Of one call: the median of a few, after one that is not counted."""
    times = []
    for _ in range(1 + _REPEATS):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    return float(np.median(times[1:]))
