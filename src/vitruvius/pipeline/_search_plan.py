"""What a search's configuration comes to, before anything long starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vitruvius import spaces
from vitruvius.arch import Arch, ImageSize, refuse
from vitruvius.costs import MEASURED, Budget, written
from vitruvius.evaluation import Evaluator, InheritedAccuracy, Mixture, ProxyEvaluator, Several
from vitruvius.pipeline._search_config import SearchConfig
from vitruvius.pipeline.timing_bar import timing_bar
from vitruvius.search import COSTS, Domain, Objective, Searcher, make_searcher, objectives_of
from vitruvius.spaces import Space
from vitruvius.training.run import Run, open_run

__all__ = ["PREDICTOR", "SearchPlan", "check_reachable", "make_predictor", "make_search_plan", "with_predictor"]

PREDICTOR = "latency.json"
_HOPELESS = 2.0
"""So many times as much as the budget: no other network, and no quieter minute, makes up for that."""
_REFERENCE = 2**31
"""The step, as it were, whose random networks a mixture is standardised on."""


@dataclass(frozen=True)
class SearchPlan:
    config: SearchConfig
    searcher: Searcher
    evaluator: Evaluator
    data: dict[str, Any]
    """Summary of the images, where there are any."""
    predictor: Any = None

    @property
    def domain(self) -> Domain:
        return self.searcher.domain

    @property
    def budget(self) -> Budget | None:
        """All of it; that of the domain has no measured metrics until there is a predictor."""
        return None if self.config.budget is None else Budget.of(self.config.budget)

    @property
    def needs_predictor(self) -> bool:
        """Whether the budget or an objective names what only a device can say."""
        named = {objective.name for objective in self.searcher.objectives}
        named |= {metric for metric, _, _ in (self.budget.ends if self.budget else ())}
        return bool(named & set(MEASURED)) or self.config.latency is not None

    def record(self) -> dict[str, Any]:
        """What decides the result."""
        predictor = None if self.predictor is None else [float(c) for c in self.predictor.coefficients]
        parts = {**self.domain.record(), **self.searcher.record(), **self.evaluator.record()}
        ends = None if self.budget is None else [list(end) for end in self.budget.ends]
        return {**parts, "budget": ends, "split": self.evaluator.split, "predictor": predictor}

    def summary(self) -> dict[str, Any]:
        """For people."""
        domain, size = self.domain, self.domain.counting["img_size"]
        latency = "a file" if self.config.latency is not None else "a table of the space's parts, timed when it starts"
        return {
            "space": f"{domain.space.name}, {domain.space.networks:.3g} networks",
            "budget": str(self.budget or "none"),
            "objectives": ", ".join(map(str, self.searcher.objectives)),
            "searcher": self.config.searcher,
            "candidates": self.searcher.planned,
            "evaluation": self.evaluator.cost() or ", ".join(self.evaluator.names),
            **({"latency": latency} if self.needs_predictor else {}),
            "pixels": f"{domain.counting['in_chans']} x {size[0]} x {size[1]}",
            "split": self.evaluator.split or "none: no images are scored",
        }


def make_search_plan(config: SearchConfig) -> SearchPlan:
    """Checks what is cheap first, and then opens the superformer. A predictor that is not given comes later."""
    run = None if config.superformer is None else open_run(config.superformer)
    space, counting = _space_of(config, run)
    objectives = objectives_of(config.objectives)
    budget = None if config.budget is None else Budget.of(config.budget)
    domain = Domain(space, None if budget is None else budget.counted, **counting, identity=config.identity)
    searcher = _searcher(config, domain)
    evaluator, data = _evaluator(config, _scores(config, objectives, run), run, domain)
    if evaluator.rungs > 1 and objectives[0].name not in evaluator.names:
        refuse("successive halving goes by the first objective", str(objectives[0]), "accuracy first")
    plan = SearchPlan(config, searcher, evaluator, data)
    return plan if config.latency is None else with_predictor(plan, Path(config.latency))


def with_predictor(plan: SearchPlan, path: Path) -> SearchPlan:
    """The plan with what says the latency of thousands of candidates."""
    from vitruvius.costs.latency import Predictor

    config, space = plan.config, plan.domain.space
    predictor = Predictor.load(path)
    if predictor.space != space:
        refuse("the latency predictor is of another space", predictor.space.name, space.name)
    domain = Domain(space, plan.budget, measured=[predictor], **plan.domain.counting, identity=config.identity)
    return replace(plan, searcher=_searcher(config, domain), predictor=predictor)


def make_predictor(plan: SearchPlan, path: Path, quiet: bool = False) -> None:
    """Times the parts of the plan's space; what is there already is left as it is."""
    from vitruvius.costs.latency import build_predictor

    if path.exists():
        return
    space, setting = plan.domain.space, _setting(plan)
    say: Callable[[str], object] = (lambda text: None) if quiet else print
    say(f"timing the parts of space {space.name!r}, once ({setting})")
    with timing_bar(quiet) as progress:
        made = build_predictor(
            space, setting, say=lambda text: None, cache=path.with_name("latency-cache"), progress=progress
        )
    say(made.report())
    made.save(path)


def _setting(plan: SearchPlan) -> Any:
    from vitruvius.costs.latency import Setting

    return Setting.from_dict({**plan.domain.counting, **plan.config.latency_setting})


def check_reachable(plan: SearchPlan) -> None:
    """Before minutes of timing: whether the smallest network comes anywhere near what the budget says of a device."""
    from vitruvius.costs.latency import measure

    limits = None if plan.budget is None else plan.budget.measured
    if limits is None:
        return
    space, setting = plan.domain.space, _setting(plan)
    found = measure(space.smallest, setting, repeats=5)[0].costs()
    for metric, low, high in limits.ends:
        if metric not in found:
            refuse(f"nothing measures the {metric} that the budget names", str(setting), ", ".join(found))
        worse = low / found[metric] if COSTS[metric] else found[metric] / max(high, 1e-12)
        if worse > _HOPELESS:
            reached = (
                f"{'up to' if COSTS[metric] else 'from'} about {written(metric, found[metric])}: its smallest network"
            )
            refuse(f"no network of space {space.name!r} comes near the {metric} of the budget", str(limits), reached)


def _searcher(config: SearchConfig, domain: Domain) -> Searcher:
    objectives = objectives_of(config.objectives)
    return make_searcher(config.searcher, domain, objectives, seed=config.seed, settings=config.settings)


def _space_of(config: SearchConfig, run: Run | None) -> tuple[Space, dict[str, Any]]:
    """The space, and how the costs of its networks are counted."""
    if run is not None:
        if run.kind != "superformer":
            refuse("candidates inherit from a superformer", f"a {run.kind} run", "the run folder of a superformer")
        job = run.record["job"]
        own = Space.from_dict(job["space"])
        if config.space is not None and _named(config, tuple(job["img_size"])) != own:
            refuse("the superformer is of another space", config.space, f"{own.name!r}, or leave the space out")
        if config.data is not None:
            refuse("with a superformer the images are those of its run", config.data, "no data")
        return own, {"img_size": tuple(job["img_size"]), "num_classes": job["num_classes"], "in_chans": job["in_chans"]}
    if config.space is None:
        refuse("a search needs a space", "none", "--space NAME, or --superformer RUN")
    space = _named(config, config.img_size)
    size = space.img_size if config.img_size is None else config.img_size
    return space, {"img_size": size, "num_classes": config.num_classes, "in_chans": config.in_chans}


def _named(config: SearchConfig, img_size: ImageSize | None) -> Space:
    assert config.space is not None
    if config.space.endswith((".yaml", ".yml", ".json")):
        return Space.from_yaml(config.space)
    options = dict(config.space_options)
    if img_size is not None and config.space.endswith("-nano"):
        options = {"img_size": img_size if isinstance(img_size, int) else img_size[0], **options}
    return spaces.load(config.space, **options)


def _scores(config: SearchConfig, objectives: tuple[Objective, ...], run: Run | None) -> list[str]:
    """The scores that must be measured, each once."""
    names = [objective.name for objective in objectives if objective.name not in COSTS]
    if "mixture" in names and not config.weights:
        refuse("the objective 'mixture' needs weights", config.weights, "weights: {accuracy: 1, dss: 0.2}, say")
    if config.weights and "mixture" not in names:
        refuse("weights are of the objective 'mixture'", config.weights, "mixture among the objectives")
    wanted = list(dict.fromkeys([*(name for name in names if name != "mixture"), *config.weights]))
    if not wanted:
        refuse("a search needs a score beside costs", ", ".join(map(str, objectives)), "accuracy, or a proxy's name")
    if "accuracy" in wanted and run is None:
        refuse("inherited accuracy needs a superformer", "none", "--superformer RUN, or training-free objectives")
    return wanted


def _evaluator(
    config: SearchConfig, wanted: list[str], run: Run | None, domain: Domain
) -> tuple[Evaluator, dict[str, Any]]:
    parts: list[Evaluator] = []
    data, images = {}, None
    if run is not None:
        data, images = run.data.summary(), run.data
    elif config.data is not None:
        from vitruvius.data import load

        in_chans = config.in_chans
        images = load(config.data, val=config.val, split_seed=config.split_seed, in_chans=in_chans, root=config.root)
        data = images.summary()
    if "accuracy" in wanted:
        assert run is not None
        parts.append(
            InheritedAccuracy(
                run.superformer(),
                run.data.search,
                images=config.images,
                shares=config.shares,
                keep=config.keep,
                batch_size=config.batch_size,
                precision=config.precision,
                seed=config.seed,
            )
        )
    if proxies := [name for name in wanted if name != "accuracy"]:
        options = {**domain.counting, "seed": config.seed, "batch_size": config.proxy_batch, "data": images}
        parts.append(ProxyEvaluator(proxies, **options))
    if config.weights:
        rng = np.random.default_rng([config.seed, _REFERENCE])
        reference: list[Arch] = domain.space.decode_many(domain.draw(rng, config.reference))
        return Mixture(parts, config.weights, reference), data
    return parts[0] if len(parts) == 1 else Several(parts), data
