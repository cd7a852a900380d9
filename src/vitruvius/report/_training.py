"""The report's sections on training: a superformer's health, and the curves of single networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vitruvius.report._figures import lines
from vitruvius.report._page import Part, Section, plot, table, text
from vitruvius.report._read import Contents, Training
from vitruvius.report._summary import percent

__all__ = ["health", "retraining"]


def health(contents: Contents) -> Section | None:
    """Accuracy of a superformer's smallest, random and largest networks while it was trained, and its loss."""
    parts: list[Part] = []
    for training in contents.trainings:
        if training.kind != "superformer" or not training.epochs:
            continue
        key = f"health-{training.name or 'run'}"
        if not training.measured:
            parts.append(text(f"{training.said}: not validated yet."))
        else:
            parts.append(plot(key, _accuracies(training), _health_said(training), half=True))
        caption = f"{training.said}: training loss, the mean of an epoch."
        parts.append(plot(f"{key}-loss", _loss([training]), caption, half=True))
    return Section("superformer", "The superformer's health", parts) if parts else None


def _accuracies(training: Training) -> dict[str, Any]:
    epochs = [event["epoch"] for event in training.measured]
    names = list(training.measured[0]["accuracy"])
    series = {name: (epochs, [event["accuracy"][name]["top1"] for event in training.measured]) for name in names}
    return lines(series, "epoch", "top-1 (%)", markers=True)


def _health_said(training: Training) -> str:
    sick = [str(event["epoch"]) for event in training.measured if not event["healthy"]]
    said = (
        f"The largest network was worse than the smallest after epoch {', '.join(sick)}."
        if sick
        else "After every validation the largest network was at least as good as the smallest."
    )
    count = len(training.measured[0]["accuracy"])
    return f"{training.said}: top-1 on search-validation of {count} networks with shared weights. {said}"


def _loss(trainings: Sequence[Training]) -> dict[str, Any]:
    # An epoch all of whose steps were skipped has no loss.
    series = {}
    for training in trainings:
        sound = [event for event in training.epochs if event["loss"] is not None]
        series[training.said] = ([event["epoch"] for event in sound], [event["loss"] for event in sound])
    return lines(series, "epoch", "loss", markers=True)


def retraining(contents: Contents) -> Section | None:
    """Accuracy of single networks while they were trained."""
    trainings = [t for t in contents.trainings if t.kind != "superformer" and t.epochs]
    if not trainings:
        return None
    series = {
        training.said: (
            [event["epoch"] for event in training.measured],
            [event["accuracy"]["top1"] for event in training.measured],
        )
        for training in trainings
        if training.measured
    }
    parts = []
    if series:
        figure = lines(series, "epoch", "top-1 (%)", markers=True)
        parts.append(plot("retraining", figure, "Top-1 on search-validation while training.", half=True))
    parts.append(plot("retraining-loss", _loss(trainings), "Training loss, the mean of an epoch.", half=True))
    rows = [
        {
            "run": training.said,
            "kind": training.kind,
            "recipe": training.record["config"].get("recipe") or "none",
            "network": training.arch.id,
            "search-validation": percent(training.result["validation"]["accuracy"]["top1"]),
            "test": percent(training.result["test"]["accuracy"]["top1"]),
        }
        for training in trainings
        if training.result
    ]
    return Section("retraining", "Training of single networks", [*parts, *([table(rows)] if rows else [])])
