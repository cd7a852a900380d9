"""A journey's plan, for people: what will be done, why so, and how long it may take."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from vitruvius.extras import install_command
from vitruvius.pipeline._choices import load_space
from vitruvius.pipeline._estimate import estimate
from vitruvius.pipeline.journey import Journey
from vitruvius.pipeline.methods import METHODS

__all__ = ["accuracy_noise", "duration", "plan_lines"]


def plan_lines(journey: Journey) -> dict[str, str]:
    choices, summary = journey.choices, journey.data.summary()
    method, why = METHODS[choices.method], choices.why
    space = load_space(choices.space)
    estimated = estimate(journey)
    seconds = estimated.seconds
    lines = {
        "data": f"{summary['source']}: {summary['train']:,} images to train on, {summary['val']:,} to search on, "
        f"{summary['test']:,} to test on, {summary['classes']} classes, split {summary['hash']}",
        **({"notes": "; ".join(summary["notes"])} if summary["notes"] else {}),
        "pixels": _with(f"{choices.img_size}", why.get("pixels")),
        "method": f"{choices.method} (paper: {method.paper})",
        "space": _with(f"{space.name}, {space.networks:.3g} networks", why.get("space")),
        "budget": _with(choices.budget, why.get("budget")),
    }
    if choices.superformer is not None:
        config = journey.superformer_config()
        aligned = f", mean cost {config.budget}" if config.budget else ""
        lines["superformer"] = (
            f"{config.strategy}, {config.sharing} sharing, private {', '.join(config.private) or 'nothing'}{aligned}, "
            f"{config.epochs} epochs, batches of {config.batch_size}, recipe {config.recipe}: "
            f"{duration(seconds['superformer'])}"
        )
    elif choices.evolve is not None:
        evolution = journey.evolve_config()
        epochs = evolution.superformer_config(evolution.space).epochs
        lines["superformer"] = (
            f"of {evolution.iterations + 1} spaces in turn, {epochs} epochs "
            f"and {evolution.archs:,} networks scored in each, then the "
            f"search in the last: {duration(seconds['superformer'])}"
        )
    else:
        lines["superformer"] = "none: networks are scored untrained"
    if choices.evolve is None:
        search = journey.search_settings()
        on = "" if choices.superformer is None else f" on {search.images or summary['val']:,} images"
        lines["search"] = (
            f"{search.searcher} (recipe {search.recipe}) for {', '.join(search.objectives)}{on}: "
            f"{duration(seconds['search'])}"
        )
    retrain = journey.retrain_config(space.smallest)
    networks = (
        "the found network, a hand-made one of its cost, the best random one" if journey.config.compare else "one"
    )
    lines["retrain"] = (
        f"{networks}: {retrain.epochs} epochs, recipe {retrain.recipe}: {duration(seconds['retrain'])} in all"
    )
    onnx = ", ONNX" if journey.exports_onnx else f"; no ONNX: {install_command('onnx')}"
    lines["export"] = f"safetensors, timm's layout{onnx}"
    lines["time"] = f"about {duration(estimated.total)}, from {estimated.basis}; longer where other work goes on"
    return lines


def accuracy_noise(result: Mapping[str, Any]) -> str:
    """What a difference of test accuracies may be by the accident of which images are in the test part."""
    images = result["test_images"]
    # Agresti and Coull's: two hits and two misses more, so that a few images of which all are right say little.
    share = (result["rows"][0]["test"] / 100 * images + 2) / (images + 4)
    error = 100 * math.sqrt(share * (1 - share) / (images + 4))
    return f"{images:,} test images, seen once by each at the end: an accuracy's standard error is {error:.1f} %."


def _with(value: str, reason: str | None) -> str:
    return value if reason is None else f"{value} ({reason})"


def duration(seconds: float) -> str:
    """As people say it."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    minutes = seconds / 60
    if minutes < 90:
        return f"{minutes:.0f} min"
    hours = minutes / 60
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} days"
