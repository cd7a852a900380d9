"""What a journey is told, and what it decides by itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from vitruvius.arch import require_choice
from vitruvius.costs import Budget
from vitruvius.pipeline.methods import METHODS
from vitruvius.training.config import read_yaml, validated

__all__ = ["PHASES", "JourneyConfig", "Phase", "read_journey_config"]

Phase = Literal["superformer", "search", "retrain", "analysis", "export"]
PHASES: tuple[Phase, ...] = ("superformer", "search", "retrain", "analysis", "export")


class JourneyConfig(BaseModel):
    """Images and a budget; all else is chosen by what they are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: str = "digits"
    """digits; a folder of images per class; idx:FOLDER; or a name of timm's create_dataset."""
    root: str | None = None
    in_chans: int | None = Field(default=None, ge=1)
    img_size: int | None = Field(default=None, ge=1)
    """The longest side of the first images if they are small, else 224."""
    val: float | int = 0.2
    """Held out of the training images for the search: a share, or a number of images per class."""
    split_seed: int = Field(default=0, ge=0)
    budget: str | None = None
    """"latency <= 5ms, params <= 6M"; the mean MACs of the space's networks unless said otherwise."""
    method: str = "vitruvius"
    space: str | None = None
    """A space's name or a YAML file; the method's own for images of this size and this budget."""
    seed: int = Field(default=0, ge=0)
    device: str | None = None
    threads: int | None = Field(default=None, ge=1)
    """Of the CPU, where latency is measured; 1 unless said otherwise."""

    # what is said here wins over what is chosen
    superformer: dict[str, Any] = {}
    """Settings of `vitruvius train`."""
    evolve: dict[str, Any] = {}
    """Settings of `vitruvius evolve-space` (method s3)."""
    search: dict[str, Any] = {}
    """Settings of `vitruvius search`."""
    retrain: dict[str, Any] = {}
    """Settings of `vitruvius retrain`, for the found network and for what it is compared with."""
    compare: bool = True
    """Train the hand-made network of equal cost and the best random one too."""
    onnx: bool | None = None
    """Export to ONNX beside safetensors; if its extra is installed, unless said otherwise."""


def read_journey_config(given: Mapping[str, Any] | str | Path) -> JourneyConfig:
    """A configuration from a mapping or a YAML file."""
    values = dict(given) if isinstance(given, Mapping) else read_yaml(Path(given))
    for key in values:
        require_choice("key of a run's configuration", key, JourneyConfig.model_fields)
    config = validated(JourneyConfig, "run", values)
    require_choice("method", config.method, METHODS)
    if config.budget is None:
        return config
    return config.model_copy(update={"budget": str(Budget.of(config.budget))})  # one spelling
