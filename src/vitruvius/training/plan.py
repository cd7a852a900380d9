"""What a configuration comes to, before anything long starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vitruvius.arch import refuse
from vitruvius.costs import short
from vitruvius.data import Augment, Data, Images, MemoryImages
from vitruvius.training.config import KINDS, RetrainConfig, Settings, SuperformerConfig
from vitruvius.training.feed import Label, Order
from vitruvius.training.jobs import Job, check_early, job_of
from vitruvius.training.labels import augment_of, label_of, plain
from vitruvius.training.optim import peak_rate
from vitruvius.training.run import load_data

__all__ = ["Plan", "make_plan"]

_BACKWARD = 3
"""A training step computes about three times what a forward pass does."""


@dataclass(frozen=True)
class Plan:
    config: Settings
    data: Data
    images: Images
    """What it trains on."""
    order: Order
    job: Job
    augment: Augment
    label: Label
    processes: int = 1

    @property
    def steps(self) -> int:
        return self.config.epochs * self.order.steps_per_epoch

    @property
    def step_macs(self) -> float:
        return _BACKWARD * self.job.macs() * self.config.batch_size

    def stated(self) -> dict[str, Any]:
        """What several processes come to together, for the log."""
        batch = self.config.batch_size
        return {
            "processes": self.processes,
            "batch_size": batch,
            "images_at_once": batch // self.processes // self.config.accumulate,
            "learning_rate": peak_rate(self.config),
            "steps": self.steps,
        }

    def notes(self) -> list[str]:
        """What a user should know before it starts."""
        found = list(self.data.notes)
        if isinstance(self.config, SuperformerConfig) and self.config.distill and self.config.strategy == "sandwich":
            found.append("the largest network teaches the others: S3 (Section 2.3) warns that transformers collapse so")
        match self.images:
            case MemoryImages(array=array) if 2 * max(array.shape[1:3]) < min(self.size):
                small, large = ("x".join(map(str, sides)) for sides in (array.shape[1:3], self.size))
                found.append(f"images of {small} pixels are enlarged to {large}; img_size is the size that is wanted")
        return found

    def headline(self) -> str:
        shown = self.summary()
        return f"{shown['kind']} on {shown['data']}: {shown['steps']} steps; batch {shown['batch']}; learning rate " + (
            f"{shown['learning rate']}; {shown['MACs of the run']} MACs in all"
        )

    def summary(self) -> dict[str, Any]:
        """For people, and for `--dry-run --json`."""
        config, data, processes = self.config, self.data.summary(), self.processes
        each = config.batch_size // processes // config.accumulate
        return {
            "kind": KINDS[type(config)],
            "recipe": config.recipe or "none",
            "data": data["source"],
            "images": f"train {len(self.images):,}, search-validation {data['val']:,}, test {data['test']:,}",
            "split": data["hash"],
            "classes": data["classes"],
            "pixels": f"{data['in_chans']} x {' x '.join(map(str, self.size))}",
            "parameters": sum(p.numel() for p in self.job.model.parameters()),
            "batch": f"{config.batch_size} = {processes} process(es) x {config.accumulate} part(s) x {each} images",
            "learning rate": f"{peak_rate(config):.3g} at its peak",
            "steps": f"{self.steps:,} = {config.epochs} epochs x {self.order.steps_per_epoch:,}",
            "MACs of an image": short(self.job.macs()),
            "MACs of the run": short(self.step_macs * self.steps),
        } | ({"notes": "; ".join(notes)} if (notes := self.notes()) else {})

    @property
    def size(self) -> tuple[int, ...]:
        size = self.job.img_size
        return size if isinstance(size, tuple) else (size, size)


def make_plan(config: Settings, processes: int = 1) -> Plan:
    """Loads the data, makes the model, and refuses what cannot work."""
    parts = processes * config.accumulate
    if config.batch_size % parts:
        refuse(
            f"batch_size is shared by {processes} process(es) and {config.accumulate} part(s)",
            config.batch_size,
            f"{parts} x n",
        )
    check_early(config)
    data = load_data(config)
    images = data.search.whole() if isinstance(config, RetrainConfig) and config.whole else data.search.train
    order = Order(len(images), config.batch_size, config.seed, config.repeated_augmentation)
    job = job_of(config, data, config.epochs * order.steps_per_epoch)
    shares = max((len(each.archs) for step in (0, 2**31) for each in job.passes(step)), default=1) or 1
    if config.batch_size // parts % shares:
        refuse(
            f"{shares} architectures share each process's part of a step evenly",
            config.batch_size,
            f"{parts * shares} x n",
        )
    augment, label = augment_of(config, data.search, job.img_size), label_of(config, data.search, job)
    if not (label is plain or config.batch_size // processes % 2 == 0):
        refuse(
            "images are mixed in pairs, so each process' batch must be even", config.batch_size, f"{2 * processes} x n"
        )
    return Plan(config, data, images, order, job, augment, label, processes)
