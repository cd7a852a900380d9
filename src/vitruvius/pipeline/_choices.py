"""What a journey decides by itself: image size, space, budget, recipes and how long, from the images and the machine.

Small images (below 96 pixels) get the nano form of a method: its strategy, sharing rule and search in a nano space,
with the project's own recipes for small images, so long that an hour of two cores is enough for 60,000 of them. Others
get the paper's space and recipes as they are, but for a batch that there are images for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vitruvius import recipes, spaces
from vitruvius.arch import refuse
from vitruvius.costs import COUNTED, Budget, short
from vitruvius.data import Data
from vitruvius.pipeline._journey_config import JourneyConfig
from vitruvius.pipeline.handmade import SMALL, tokens_a_side
from vitruvius.pipeline.methods import METHODS, Method
from vitruvius.spaces import Space

__all__ = ["Choices", "choose", "load_space", "upper_macs"]

_LOOKED_AT = 16
_TINY = 32
"""Sides of small images are made multiples of 4 up to here, and of 8 above, so that patches divide them."""
_FEW = 10_000
"""Below so many training images, a run has more epochs."""
_STEPS = {"superformer": (2_000, 8_000), "retrain": (1_500, 8_000)}
"""In the nano form on a CPU, at most so many steps, with few images and with more; but always a few epochs."""
_BATCH = 64
"""On a CPU, where more small steps cost no more than few large ones, and networks learn more from them."""
_WEAK: dict[recipes.Kind, dict[str, Any]] = {
    "superformer": {"crop": "none"},
    "retrain": {"crop": "none", "erasing": 0.0, "drop_path_rate": 0.0},
}
"""Of a training that has less than half of its recipe's epochs: what is seen so seldom need not be made harder."""
_LEAST_EPOCHS = 3
_VALIDATIONS = 10
_SEARCH_IMAGES = 1_000
_CPU_PART = 128
"""Images that go through a network at once on a CPU; larger batches are accumulated."""


@dataclass
class Choices:
    """Plain data: it stands in the run's record, and a run that is resumed reads it there."""

    method: str
    img_size: int
    space: dict[str, Any]
    """The settings that name it: space, space_options."""
    budget: str
    superformer: dict[str, Any] | None
    """Settings of its training; None where none is trained, or where the space is searched first."""
    evolve: dict[str, Any] | None
    search: dict[str, Any]
    retrain: dict[str, Any]
    latency: dict[str, Any]
    """The setting in which latency is measured."""
    why: dict[str, str] = field(default_factory=dict)


def choose(config: JourneyConfig, data: Data) -> Choices:
    method = METHODS[config.method]
    search = data.search
    why: dict[str, str] = {}
    img_size = _img_size(config, data, why)
    nano = img_size < SMALL or (config.space or "").endswith("-nano")
    counting = {"img_size": img_size, "num_classes": len(search.classes), "in_chans": search.in_chans}
    named, recipe = _space(config, method, nano, counting, why)
    space = load_space(named)
    budget = _budget(config, space, counting, why)
    images = {
        "data": config.data,
        "root": config.root,
        "val": config.val,
        "split_seed": config.split_seed,
        "in_chans": config.in_chans,
        "img_size": img_size,
    }
    own = {key: value for key, value in images.items() if value is not None}
    seeded = {**own, "seed": config.seed}
    superformer: dict[str, Any] | None = None
    evolve: dict[str, Any] | None = None
    if recipe is not None or (nano and next(iter(method.spaces.values())) is not None):
        superformer = {**_training("superformer", nano, recipe, method.structure, data, config), **seeded}
        if method.aligned and (aligned := _aligned(budget, space, counting)) is not None:
            superformer["budget"] = aligned
        superformer |= config.superformer
    elif config.superformer:
        refuse(f"method {config.method!r} trains no superformer", config.superformer, "no settings of one")
    latency = {**counting, "device": "cuda" if _on_gpu(config) else "cpu", "threads": config.threads or 1}
    searching: dict[str, Any] = {"recipe": method.search, "budget": str(budget), "seed": config.seed}
    if superformer is None:
        searching |= counting
    elif not _on_gpu(config) and len(search.val) > _SEARCH_IMAGES:
        searching["images"] = _SEARCH_IMAGES
        why["search images"] = f"{_SEARCH_IMAGES:,} of search-validation, of each class its share: enough to rank"
    if budget.measured is not None:
        searching["latency_setting"] = {key: latency[key] for key in ("device", "threads")}
    if method.evolves:
        _check_evolution(config, budget)
        evolve, superformer = _evolution(config, superformer or {}, budget, nano, searching), None
    elif config.evolve:
        refuse(f"method {config.method!r} does not search the space itself", config.evolve, "method s3")
    trained = _training("retrain", nano, method.retrain_recipe(upper_macs(budget, space, counting)), {}, data, config)
    return Choices(
        method=config.method,
        img_size=img_size,
        space=named,
        budget=str(budget),
        superformer=superformer,
        evolve=evolve,
        search={**searching, **config.search},
        retrain={**trained, **seeded, **config.retrain},
        latency=latency,
        why=why,
    )


def _on_gpu(config: JourneyConfig) -> bool:
    import torch

    return config.device == "cuda" or (config.device is None and torch.cuda.is_available())


# -- images, space, budget -------------------------------------------------------------------------------------------


def _img_size(config: JourneyConfig, data: Data, why: dict[str, str]) -> int:
    if config.img_size is not None:
        return config.img_size
    train = data.search.train
    looked = range(min(len(train), _LOOKED_AT))
    sides = sorted({max(pixels.shape[:2]) for pixels in train.pixels(looked)})
    if sides[-1] < SMALL:
        step = 4 if sides[-1] <= _TINY else 8
        nearest = min(max(round(int(sides[-1]) / step), 1) * step, SMALL - step)
        rounded = "" if nearest == sides[-1] else f", {sides[-1]}, made a multiple of {step}"
        why["pixels"] = f"the longest side of the first {len(looked)} images{rounded}"
        return nearest
    why["pixels"] = "what networks for photographs are built for"
    return 224


def load_space(named: dict[str, Any]) -> Space:
    if named["space"].endswith((".yaml", ".yml", ".json")):
        return Space.from_yaml(Path(named["space"]))
    return spaces.load(named["space"], **named.get("space_options", {}))


def _space(
    config: JourneyConfig, method: Method, nano: bool, counting: dict[str, Any], why: dict[str, str]
) -> tuple[dict[str, Any], str | None]:
    """The space by its settings, and the recipe of its superformer where there is one for it."""
    default = next(iter(method.spaces.values()))
    if config.space is not None:
        if config.space.endswith("-nano"):
            return _nano(config.space, counting["img_size"], why), None
        return {"space": config.space}, None if nano else method.spaces.get(config.space, default)
    if nano:
        return _nano(method.nano, counting["img_size"], why), None
    counted = None if config.budget is None else Budget.of(config.budget).counted
    ends = {metric: high for metric, _, high in counted.ends if math.isfinite(high)} if counted else {}
    if len(method.spaces) == 1 or not ends:
        why["space"] = f"the {'only' if len(method.spaces) == 1 else 'smallest'} one of method {config.method!r}"
        return {"space": next(iter(method.spaces))}, default

    def distance(name: str) -> float:
        means = {metric: spaces.load(name).mean_cost(metric, **counting) for metric in ends}
        return sum(abs(math.log(means[metric] / high)) for metric, high in ends.items() if high)

    nearest = min(method.spaces, key=distance)
    why["space"] = f"of method {config.method!r}, the one whose networks in the mean cost most nearly the budget"
    return {"space": nearest}, method.spaces[nearest]


def _nano(name: str, img_size: int, why: dict[str, str]) -> dict[str, Any]:
    """The nano space with the patch whose grid is nearest to a plain transformer's of small images; pyramids begin with
    twice that."""
    family = spaces.load(name).family
    goal = tokens_a_side(min(img_size, SMALL - 1)) * (2 if family in ("swin", "twins") else 1)
    tried: list[tuple[float, int]] = []
    for patch in range(1, img_size // 2 + 1):
        if img_size % patch == 0:
            try:
                spaces.load(name, img_size=img_size, patch=patch)
            except ValueError:
                continue
            tried.append((abs(math.log(img_size / patch / goal)), patch))
    if not tried:
        refuse(f"space {name!r} has no form for images of this size", img_size, "another img_size, or another space")
    _, patch = min(tried)
    why["space"] = f"the nano space of its family, patches of {patch} x {patch} pixels"
    if img_size / patch > 1.5 * goal:
        why["space"] += f"; {img_size} has no divisor that gives fewer: images of another size cost less"
    return {"space": name, "space_options": {"img_size": img_size, "patch": patch}}


def _budget(config: JourneyConfig, space: Space, counting: dict[str, Any], why: dict[str, str]) -> Budget:
    if config.budget is not None:
        return Budget.of(config.budget)
    why["budget"] = "none was given: the mean MACs of the space's networks"
    return Budget.of(f"macs <= {short(space.mean_cost('macs', **counting))}")


def _aligned(budget: Budget, space: Space, counting: dict[str, Any]) -> str | None:
    """The budget's MACs (or parameters), if paths can be sampled so that they cost so much in the mean."""
    counted = budget.counted
    for metric in ("macs", "params"):
        for end in () if counted is None else counted.ends:
            if end[0] == metric:
                part = Budget((end,))
                try:
                    space.identity_for(part, **counting)
                except ValueError:
                    return None
                return str(part)
    return None


def upper_macs(budget: Budget, space: Space, counting: dict[str, Any]) -> float:
    ends = {metric: high for metric, _, high in budget.ends if metric in COUNTED}
    return min(ends.get("macs", math.inf), space.cost_range("macs", **counting)[1])


# -- training --------------------------------------------------------------------------------------------------------


def _training(
    kind: recipes.Kind, nano: bool, recipe: str | None, structure: dict[str, Any], data: Data, config: JourneyConfig
) -> dict[str, Any]:
    n = len(data.search.train)
    if nano:
        recipe = f"{'digits' if n < _FEW else 'fashion-mnist'}-{kind}"
        settings = recipes.load(recipe, kind).settings
        batch, epochs = min(settings["batch_size"], _power_below(n // 4)), settings["epochs"]
        if not _on_gpu(config):
            batch = min(batch, _BATCH)
            epochs = min(epochs, max(_LEAST_EPOCHS, round(_STEPS[kind][n >= _FEW] * batch / n)))
        warmup = min(settings["warmup_epochs"], epochs / 5)
        said = (config.superformer if kind == "superformer" else config.retrain).get("epochs")
        short = (said if isinstance(said, int) else epochs) < settings["epochs"] / 2
        # Whether left and right may be exchanged depends on the images, which say nothing about it.
        return {
            "recipe": recipe,
            **structure,
            **_shares(structure, batch),
            "epochs": epochs,
            "batch_size": batch,
            "warmup_epochs": warmup,
            **(_WEAK[kind] if short else {}),
            "hflip": 0.0,
            "validate_every": max(1, epochs // _VALIDATIONS),
        }
    assert recipe is not None
    batch = min(recipes.load(recipe, kind).settings.get("batch_size", 1024), _power_below(n // 4))
    parts = 1 if _on_gpu(config) else max(1, batch // _CPU_PART)
    given = {"recipe": recipe, "batch_size": batch, "accumulate": parts}
    return {**given, **_shares(recipes.load(recipe, kind).settings, batch // parts)}


def _shares(settings: dict[str, Any], images: int) -> dict[str, Any]:
    """Of a multi-architectural step's images every architecture has one at least."""
    return {"archs_per_step": min(settings["archs_per_step"], images)} if "archs_per_step" in settings else {}


def _power_below(n: int) -> int:
    """The largest power of two that is at most n, and 2 at the least."""
    return 1 << max(n.bit_length() - 1, 1)


def _check_evolution(config: JourneyConfig, budget: Budget) -> None:
    """Refuses what the search in an evolved space would not heed."""
    if config.search:
        refuse(f"method {config.method!r} searches as it evolves", config.search, "evolve.search.KEY for that setting")
    if budget.measured is not None:
        rule = f"method {config.method!r} evolves its space under costs that are counted"
        refuse(rule, str(budget), ", ".join(COUNTED))


def _evolution(
    config: JourneyConfig, superformer: dict[str, Any], budget: Budget, nano: bool, searching: dict[str, Any]
) -> dict[str, Any]:
    """S3: superformers of a space that moves, and the search in the last one."""
    own = ("seed", "budget")
    settings: dict[str, Any] = {
        "recipe": None,
        "seed": config.seed,
        "superformer": {key: value for key, value in superformer.items() if key not in own},
        "budget": str(budget),
    }
    if nano:
        # Four superformers instead of one, in about the same time.
        settings |= {"archs": 200, "top": 20, "least": 20, "warm_start": True}
        settings["superformer"]["epochs"] = max(_LEAST_EPOCHS, superformer["epochs"] // 4)
    if "images" in searching:
        settings["images"] = searching["images"]
    merged = {**settings, **config.evolve}
    merged["superformer"] = {**settings["superformer"], **config.evolve.get("superformer", {})}
    return {key: value for key, value in merged.items() if value is not None}
