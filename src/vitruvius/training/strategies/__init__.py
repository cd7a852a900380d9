"""What one step of superformer training trains: one file a strategy."""

from __future__ import annotations

from collections.abc import Callable

from vitruvius.costs import Budget
from vitruvius.registry import Registry
from vitruvius.superformer import Superformer
from vitruvius.training.config import SuperformerConfig
from vitruvius.training.strategies._base import Pass, Sampling, Strategy, run_pass
from vitruvius.training.strategies.multi_architectural import MultiArchitectural
from vitruvius.training.strategies.sandwich import Sandwich
from vitruvius.training.strategies.single_path import SinglePath

__all__ = [
    "STRATEGIES",
    "MultiArchitectural",
    "Pass",
    "Sampling",
    "Sandwich",
    "SinglePath",
    "Strategy",
    "run_pass",
    "strategy_of",
]

Make = Callable[[SuperformerConfig, Sampling, int, int], Strategy]
"""From the configuration, the sampling, the sharing rule's sides and the run's number of steps."""

STRATEGIES: Registry[Make] = Registry("strategy")
STRATEGIES.add("single-path", lambda config, sampling, sides, steps: SinglePath(sampling, sides))
STRATEGIES.add(
    "sandwich", lambda config, sampling, sides, steps: Sandwich(sampling, sides, config.random_archs, config.distill)
)
STRATEGIES.add(
    "multi-architectural",
    lambda config, sampling, sides, steps: MultiArchitectural(
        sampling, sides, config.archs_per_step, config.release_until * steps
    ),
)


def strategy_of(config: SuperformerConfig, superformer: Superformer, steps: int) -> Strategy:
    space, identity = superformer.space, None
    if config.budget is not None:
        counting = {"img_size": superformer.img_size, "in_chans": superformer.in_chans}
        identity = space.identity_for(Budget.of(config.budget), num_classes=superformer.num_classes, **counting)
    sampling = Sampling(space=space, seed=config.seed, identity=identity)
    return STRATEGIES[config.strategy](config, sampling, superformer.rule.sides, steps)
