"""What a search is told: checked whole before anything long starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from vitruvius import recipes
from vitruvius.arch import require_choice
from vitruvius.search import SEARCHERS, settings_of
from vitruvius.training.config import read_yaml, validated

__all__ = ["SearchConfig", "read_search_config"]


class SearchConfig(BaseModel):
    """A search. In a file, the searcher's own settings stand beside these keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    recipe: str | None = None
    """Settings of this name are the defaults (`vitruvius.recipes`, kind search); what is given beside it wins."""
    seed: int = Field(default=0, ge=0)

    # where
    space: str | None = None
    """A space's name or a YAML file; the superformer's own where there is one."""
    space_options: dict[str, Any] = {}
    """Arguments of a nano space: img_size, patch."""
    superformer: str | None = None
    """A superformer's run folder, whose weights candidates inherit."""
    budget: str | None = None
    """"macs <= 1.3G, latency <= 8ms"."""
    identity: float | None = Field(default=None, ge=0, le=1)
    """With what probability a random network skips a layer that may be skipped."""

    # what for
    objectives: tuple[str, ...] = ("accuracy",)
    """accuracy, mixture, training-free scores, params, macs, latency, throughput, memory; or "min:NAME", "max:NAME"."""
    weights: dict[str, float] = {}
    """Of the objective "mixture": by score. Scores are standardised on `reference` random networks."""
    reference: int = Field(default=32, ge=2)

    # how
    searcher: str = "evolution"
    settings: dict[str, Any] = {}
    """The searcher's own."""

    # evaluation
    images: float | int | None = None
    """Of search-validation: a stratified part, or so many; all of it unless said otherwise."""
    shares: tuple[float, ...] = (1.0,)
    """Successive halving: all candidates of a generation on the first part of those images, the best on the next."""
    keep: float = Field(default=0.5, gt=0, le=1)
    """Of the candidates on a share, this part goes on to the next."""
    batch_size: int = Field(default=256, ge=1)
    precision: Literal["no", "fp16", "bf16"] = "no"
    proxy_batch: int = Field(default=16, ge=1)
    """Images that a training-free score sees."""

    # without a superformer
    data: str | None = None
    root: str | None = None
    val: float | int = 0.1
    split_seed: int = Field(default=0, ge=0)
    img_size: int | None = Field(default=None, ge=1)
    num_classes: int = Field(default=1000, ge=1)
    in_chans: int = Field(default=3, ge=1)

    # latency
    latency: str | None = None
    """A predictor's file (`vitruvius latency`); where one is needed and none is given, it is made in the run folder."""
    latency_setting: dict[str, Any] = {}
    """Of a predictor that is made: batch, device, dtype, threads, compiled, runtime."""

    # the machines
    executor: Literal["local", "ray"] = "local"
    workers: int | None = Field(default=None, ge=1)
    """Of Ray: actors; one a device unless said otherwise."""
    address: str | None = None
    """Of a Ray cluster that is there already."""
    threads: int | None = Field(default=None, ge=1)
    """CPU threads of each evaluation."""
    device: str | None = None

    # the record
    storage: str | None = None
    """An Optuna database (sqlite:///, postgresql://, ...); a journal in the run folder unless said otherwise."""
    study: str = "search"

    @field_validator("objectives", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(each.strip() for each in value.split(",")) if isinstance(value, str) else value


def read_search_config(given: Mapping[str, Any] | str | Path) -> SearchConfig:
    """A configuration from a mapping or a YAML file, on top of the settings of the recipe that it names."""
    values = dict(given) if isinstance(given, Mapping) else read_yaml(Path(given))
    if values.get("recipe") is not None:
        values = {**recipes.load(values["recipe"], "search").settings, **values}
    name = values.get("searcher", SearchConfig.model_fields["searcher"].default)
    require_choice("searcher", name, SEARCHERS)
    own = settings_of(name)
    settings = dict(values.get("settings") or {})
    for key in list(values):
        if key not in SearchConfig.model_fields:
            require_choice(f"key of a search configuration with searcher {name!r}", key, [*_KEYS, *own])
            settings[key] = values.pop(key)
    return validated(SearchConfig, "search", {**values, "settings": settings})


_KEYS = tuple(key for key in SearchConfig.model_fields if key != "settings")
