"""What is trained: a superformer, or a plain model from scratch, from a superformer's slices or from a trained one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from os.path import isdir
from pathlib import Path
from typing import Any

from vitruvius import costs, spaces, zoo
from vitruvius.arch import Arch, ImageSize, refuse, require_choice, token_grids
from vitruvius.costs import Budget
from vitruvius.data import Data
from vitruvius.models import Backbone, build
from vitruvius.models.layers import seeded
from vitruvius.spaces import Space
from vitruvius.superformer import Superformer, carry
from vitruvius.superformer.private import check_parts
from vitruvius.superformer.sharing import rule_named
from vitruvius.training import _weights
from vitruvius.training.config import FinetuneConfig, RetrainConfig, Settings, SuperformerConfig
from vitruvius.training.evaluate import Judge
from vitruvius.training.resample import arch_at_size, at_size, with_new_head
from vitruvius.training.run import arch_of_run, open_run
from vitruvius.training.strategies import STRATEGIES, Pass, strategy_of

__all__ = ["Job", "ModelJob", "SuperformerJob", "check_early", "job_of"]

_IMG_SIZE = 224
"""Of a network from scratch, unless said otherwise."""

_HEALTH = 2**32
"""The step, as it were, whose random architectures the health line shows."""


class Job(ABC):
    model: Backbone | Superformer
    img_size: ImageSize

    @abstractmethod
    def passes(self, step: int) -> list[Pass]:
        """What a step runs forward and backward."""

    @abstractmethod
    def health(self, judge: Judge) -> dict[str, Any]:
        """What a validation measures, for the log; "summary" is for people."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """The trained weights, as what comes after takes them."""

    @abstractmethod
    def record(self) -> dict[str, Any]:
        """What is trained, as plain data."""

    @abstractmethod
    def macs(self) -> float:
        """Of an image, forward, over all passes of a step."""


class SuperformerJob(Job):
    def __init__(self, config: SuperformerConfig, data: Data, steps: int) -> None:
        space = load_space(config)
        self.model = Superformer(
            space,
            sharing=config.sharing,
            private=config.private,
            num_classes=len(data.search.classes),
            img_size=space.img_size if config.img_size is None else config.img_size,
            in_chans=data.search.in_chans,
            seed=config.seed,
            token_head=config.token_labeling != "off",
            drop_path_rate=config.drop_path_rate,
            drop_rate=config.drop_rate,
        )
        if config.start is not None:
            carry(Superformer.load(config.start), self.model)
        self.img_size = self.model.img_size
        for arch in (space.largest, space.smallest):
            token_grids(arch, self.img_size)
        self.strategy = strategy_of(config, self.model, steps)
        drawn = self.strategy.sampling.draw(_HEALTH, 2)
        ends = {"smallest": (space.smallest, None), "largest": (space.largest, None)}
        self._shown = {
            "smallest": ends["smallest"],
            "random 1": drawn[0],
            "random 2": drawn[1],
            "largest": ends["largest"],
        }

    def passes(self, step: int) -> list[Pass]:
        return self.strategy.passes(step)

    def health(self, judge: Judge) -> dict[str, Any]:
        """Accuracy of the smallest, of two random architectures and of the largest, which should be the best."""
        forwards = [partial(self.model, arch=arch, path=path) for arch, path in self._shown.values()]
        found = dict(zip(self._shown, judge.several(forwards), strict=True))
        healthy = found["largest"].top1 >= found["smallest"].top1
        text = "  ".join(f"{name} {accuracy.top1:.1f}" for name, accuracy in found.items())
        warning = "" if healthy else "  UNHEALTHY: the largest is worse than the smallest"
        return {
            "accuracy": {name: accuracy.rounded() for name, accuracy in found.items()},
            "healthy": healthy,
            "summary": f"top-1 of {text} %{warning}",
        }

    def save(self, folder: Path) -> None:
        self.model.save(folder)

    def record(self) -> dict[str, Any]:
        return self.model.record()

    def macs(self) -> float:
        counting = {"img_size": self.img_size, "num_classes": self.model.num_classes, "in_chans": self.model.in_chans}
        space, sampling = self.model.space, self.strategy.sampling
        mean = space.mean_cost("macs", sampling.identity, **counting)
        passes = self.strategy.passes(2**31)
        ends = {arch: costs.macs(arch, **counting) for arch in (space.largest, space.smallest)}
        return float(sum(ends.get(each.archs[0], mean) if len(each.archs) == 1 else mean for each in passes))


class ModelJob(Job):
    def __init__(self, model: Backbone) -> None:
        self.model = model
        self.img_size = model.img_size

    def passes(self, step: int) -> list[Pass]:
        return [Pass()]

    def health(self, judge: Judge) -> dict[str, Any]:
        found = judge(self.model)
        text = f"top-1 {found.top1:.2f} %  top-5 {found.top5:.2f} %  loss {found.loss:.4f}"
        return {"accuracy": found.rounded(), "summary": text}

    def save(self, folder: Path) -> None:
        _weights.write(folder, self.model)

    def record(self) -> dict[str, Any]:
        return _weights.record_of(self.model)

    def macs(self) -> float:
        model = self.model
        return float(
            costs.macs(model.arch, img_size=model.img_size, num_classes=model.num_classes, in_chans=model.in_chans)
        )


def job_of(config: Settings, data: Data, steps: int) -> Job:
    classes = len(data.search.classes)
    if config.num_classes not in (None, classes):
        refuse(
            f"the images of {data.name!r} are of {classes} classes", config.num_classes, f"{classes}, or leave it out"
        )
    match config:
        case SuperformerConfig():
            return SuperformerJob(config, data, steps)
        case RetrainConfig():
            return ModelJob(_model_to_retrain(config, data))
        case FinetuneConfig():
            return ModelJob(_model_to_finetune(config, data))
    raise AssertionError(f"no job for {type(config).__name__}")


def check_early(config: Settings) -> None:
    """Refuses what can be seen to be wrong without the images, which may take long to read."""
    match config:
        case SuperformerConfig():
            space = load_space(config)
            require_choice("strategy", config.strategy, STRATEGIES)
            rule_named(config.sharing)
            check_parts(config.private)
            if config.budget is not None:
                Budget.of(config.budget)
            for arch in (space.largest, space.smallest):
                token_grids(arch, space.img_size if config.img_size is None else config.img_size)
        case RetrainConfig():
            arch = arch_named(config.arch)
            if config.superformer is not None:
                open_run(config.superformer).require("superformer")
            else:
                token_grids(arch, _IMG_SIZE if config.img_size is None else config.img_size)
        case FinetuneConfig():
            run = open_run(config.start)
            size = tuple(run.record["job"]["img_size"])
            arch_at_size(run.arch, size, size if config.img_size is None else config.img_size, config.windows)


def arch_named(text: str) -> Arch:
    """An architecture by a zoo name, a JSON file, JSON text, or the folder of a run that led to one."""
    return arch_of_run(text) if isdir(text) else zoo.read(text)  # JSON may be longer than a path can be


def load_space(config: SuperformerConfig) -> Space:
    """The configured space; a nano space is made for the configured image size."""
    if config.space.endswith((".yaml", ".yml", ".json")):
        return Space.from_yaml(config.space)
    options = dict(config.space_options)
    if config.img_size is not None and config.space.endswith("-nano"):
        options = {"img_size": config.img_size, **options}
    return spaces.load(config.space, **options)


def _model_to_retrain(config: RetrainConfig, data: Data) -> Backbone:
    arch = arch_named(config.arch)
    drops = {"drop_path_rate": config.drop_path_rate, "drop_rate": config.drop_rate}
    token_head = config.token_labeling != "off"
    shape = {"num_classes": len(data.search.classes), "in_chans": data.search.in_chans}
    if config.superformer is None:
        img_size = _IMG_SIZE if config.img_size is None else config.img_size
        made = build(arch, **shape, img_size=img_size, seed=config.seed, token_head=token_head, **drops)
        assert isinstance(made, Backbone)
        return made
    return _carried(open_run(config.superformer).superformer().extract(arch), config, data)


def _model_to_finetune(config: FinetuneConfig, data: Data) -> Backbone:
    return _carried(open_run(config.start).model(), config, data)


def _carried(model: Backbone, config: RetrainConfig | FinetuneConfig, data: Data) -> Backbone:
    """The same weights at the configured image size, with a classifier of the data's classes."""
    classes, in_chans = len(data.search.classes), data.search.in_chans
    if in_chans != model.in_chans:
        refuse("the images have other channels than the weights", in_chans, f"in_chans={model.in_chans}")
    model.drop_token_head()
    img_size = model.img_size if config.img_size is None else config.img_size
    drops = {"drop_path_rate": config.drop_path_rate, "drop_rate": config.drop_rate}
    model = at_size(model, img_size, config.windows, **drops)
    if model.num_classes != classes:
        with_new_head(model, classes, config.seed)
    if config.token_labeling != "off":
        with seeded(config.seed):
            model.add_token_head()
    return model
