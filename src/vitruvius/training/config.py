"""What a training run is told: checked whole before anything starts. A recipe's settings are the same keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vitruvius import recipes
from vitruvius.arch import refuse, require_choice

__all__ = [
    "FinetuneConfig",
    "RetrainConfig",
    "Settings",
    "SuperformerConfig",
    "read_as",
    "read_config",
    "read_yaml",
    "validated",
]


class Settings(BaseModel):
    """What all kinds of training share. The defaults are weak augmentation and a short run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    recipe: str | None = None
    """Settings of this name are the defaults (`vitruvius.recipes`); what is given here beside it wins."""
    seed: int = Field(default=0, ge=0)

    # data
    data: str = "digits"
    root: str | None = None
    train_split: str | None = None
    test_split: str | None = None
    """With `root`, of timm's names; "train", and the one there is, unless said otherwise."""
    val: float | int = 0.1
    """The part of the training images held out for search-validation: a fraction, or a number of images per class."""
    split_seed: int = Field(default=0, ge=0)
    img_size: int | None = Field(default=None, ge=1)
    in_chans: int | None = Field(default=None, ge=1)
    num_classes: int | None = Field(default=None, ge=1)
    """Only to be checked against the data."""
    workers: int | None = Field(default=None, ge=0)
    """Processes that load images; chosen by where the images are unless said otherwise."""

    # length
    epochs: int = Field(default=20, ge=1)
    batch_size: int = Field(default=64, ge=1)
    """Images in a step, over all processes and accumulated parts."""
    accumulate: int = Field(default=1, ge=1)
    """A step's images go through the network in so many parts."""

    # optimiser
    optimizer: Literal["adamw", "sgd"] = "adamw"
    lr: float = Field(default=1e-3, gt=0)
    lr_reference_batch: int | None = Field(default=None, ge=1)
    """With it, `lr` is for so many images a step, and is scaled to those of this run (DeiT: 512)."""
    weight_decay: float = Field(default=0.05, ge=0)
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = Field(default=1e-8, gt=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Of SGD."""
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup_epochs: float = Field(default=1, ge=0)
    warmup_lr: float = Field(default=1e-6, ge=0)
    min_lr: float = Field(default=1e-5, ge=0)
    clip_grad: float | None = Field(default=None, gt=0)
    ema_decay: float | None = Field(default=None, gt=0, lt=1)

    # regularisation
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    drop_path_rate: float = Field(default=0.0, ge=0, lt=1)
    drop_rate: float = Field(default=0.0, ge=0, lt=1)

    # augmentation; weak unless said otherwise
    crop: Literal["resized", "padded", "none"] = "padded"
    """A random part of the image, resized (ImageNet); the image shifted by padding (small images); none."""
    crop_scale: tuple[float, float] = (0.08, 1.0)
    hflip: float = Field(default=0.0, ge=0, le=1)
    color_jitter: float = Field(default=0.0, ge=0)
    auto_augment: str | None = None
    """As timm names it: "rand-m9-mstd0.5-inc1"."""
    erasing: float = Field(default=0.0, ge=0, le=1)
    interpolation: Literal["bicubic", "bilinear", "random"] = "bicubic"
    repeated_augmentation: int = Field(default=1, ge=1)
    """So many differently augmented copies of an image are in the same step (3 in DeiT)."""
    mixup: float = Field(default=0.0, ge=0)
    cutmix: float = Field(default=0.0, ge=0)
    mix_probability: float = Field(default=1.0, ge=0, le=1)
    mix_switch: float = Field(default=0.5, ge=0, le=1)
    """Of the mixed batches, so many are CutMix where both are on."""
    token_labeling: Literal["off", "cutmix", "cutmix-mixup"] = "off"
    """Labels for patch tokens too (ViT-ResNAS, Section 2.4): by patch-wise CutMix, or that switched with Mixup."""

    # the machine
    mixed_precision: Literal["no", "fp16", "bf16"] = "no"
    device: str | None = None

    # the run folder
    validate_every: int = Field(default=1, ge=1)
    """Epochs."""
    checkpoint_every: int | None = Field(default=None, ge=1)
    """Steps; at the end of every epoch (of several, where they are seconds) unless said otherwise."""
    stop_after_bad_steps: int = Field(default=3, ge=1)
    """So many steps in a row with a loss that is not finite roll the run back."""
    most_rollbacks: int = Field(default=2, ge=0)


class SuperformerConfig(Settings):
    """Training a superformer."""

    space: str
    """A space's name or a YAML file."""
    space_options: dict[str, Any] = {}
    """Arguments of a nano space: img_size, patch."""
    sharing: str = "cyclic"
    private: tuple[str, ...] = ("class_token", "qk")
    strategy: str = "single-path"
    """What one step trains (`vitruvius.training.strategies`)."""
    budget: str | None = None
    """Sample so that the mean cost is this ("macs <= 1.3G"): v1's identity probability, v2's number of identities."""
    archs_per_step: int = Field(default=16, ge=1)
    """Of the multi-architectural strategy: N_a."""
    execution: Literal["auto", "sliced", "masked"] = "auto"
    release_until: float = Field(default=0.25, ge=0, le=1)
    """Multi-architectural: the part of the run over which widths and depths are released (Appendix C)."""
    random_archs: int = Field(default=2, ge=0)
    """Of the sandwich: random architectures beside the largest and the smallest."""
    start: str | None = None
    """A superformer's folder (a run's `final`): weights begin as its, where names and channels coincide."""
    distill: bool = False
    """Of the sandwich: the largest network teaches the others. S3 warns that transformers collapse so (Section 2.3)."""


class RetrainConfig(Settings):
    """Training one architecture, from scratch or from a superformer's slices."""

    arch: str
    """A zoo name, a JSON file, or JSON text."""
    superformer: str | None = None
    """A superformer's run folder: start from its slices."""
    windows: Literal["keep", "scale", "pad"] = "keep"
    """At another image size than the superformer's (`vitruvius.training.resample`)."""
    whole: bool = False
    """Train on the images of search-validation too, as the papers retrain; then only the test accuracy says much."""


class FinetuneConfig(Settings):
    """Going on from a trained network: at a larger resolution, or on another dataset with a new head."""

    start: str
    """The run folder of the trained network."""
    windows: Literal["keep", "scale", "pad"] = "keep"
    """At another image size (`vitruvius.training.resample`)."""


ConfigT = TypeVar("ConfigT", bound=Settings)
ModelT = TypeVar("ModelT", bound=BaseModel)

KINDS: dict[type[Settings], recipes.Kind] = {
    SuperformerConfig: "superformer",
    RetrainConfig: "retrain",
    FinetuneConfig: "finetune",
}


def read_config(kind: type[ConfigT], given: Mapping[str, Any] | str | Path) -> ConfigT:
    """A configuration from a mapping or a YAML file, on top of the settings of the recipe that it names."""
    return read_as(kind, KINDS[kind], given)


def read_as(model: type[ModelT], kind: recipes.Kind, given: Mapping[str, Any] | str | Path) -> ModelT:
    """`read_config` of a kind of run that is not (only) training. Its model has a field "recipe"."""
    values = dict(given) if isinstance(given, Mapping) else read_yaml(Path(given))
    for key in values:
        require_choice(f"key of a {kind} configuration", key, model.model_fields)
    settings: dict[str, Any] = {}
    if values.get("recipe") is not None:
        settings = recipes.load(values["recipe"], kind).settings
    return validated(model, kind, {**settings, **values})


def validated(model: type[ModelT], name: str, values: Mapping[str, Any]) -> ModelT:
    """A configuration of any kind, or one line on the first thing that is wrong with it."""
    try:
        return model(**values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        value = "nothing" if first["type"] == "missing" else first["input"]
        refuse(f"{where} of a {name} configuration: {first['msg'].lower()}", value, _allowed(model, where))


_PLAIN = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def _allowed(model: type[BaseModel], where: str) -> str:
    field = model.model_fields.get(where.split(".")[0])
    if field is None:
        return "the keys of the configuration"
    kind: Any = field.annotation
    return _PLAIN.get(kind) or str(kind).replace("typing.", "")


def read_yaml(path: Path) -> dict[str, Any]:
    if path.is_dir():
        refuse("a configuration is a file, and this is a folder", str(path), "a YAML file; images are given by --data")
    try:
        data = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        refuse(
            f"a configuration cannot be read ({str(error).splitlines()[0]})",
            str(path),
            "a YAML file of keys and values",
        )
    if not isinstance(data, dict):
        refuse("a configuration is keys and values", "nothing" if data is None else data, "a YAML mapping")
    return data
