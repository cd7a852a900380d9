"""What the evolution of a space is told: checked whole before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from vitruvius import recipes
from vitruvius.arch import refuse
from vitruvius.costs import Budget
from vitruvius.search import Domain, make_searcher
from vitruvius.search.space_evolution import Rules, resolve_steps
from vitruvius.spaces import Space
from vitruvius.training import SuperformerConfig, read_config
from vitruvius.training.config import read_as, read_yaml

__all__ = ["EvolveSpaceConfig", "read_evolve_config"]

_OWN = ("space", "start", "seed", "device")
_NESTED = ("superformer", "steps", "search")
_SANDWICH = {"strategy": "sandwich", "sharing": "ordinal", "private": ()}


class EvolveSpaceConfig(BaseModel):
    """S3's Algorithm 1, and the search in the space that it ends in."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    recipe: str | None = None
    """Settings of this name are the defaults (`vitruvius.recipes`); what is given here beside it wins."""
    seed: int = Field(default=0, ge=0)
    space: str
    """The first space: a name or a YAML file."""
    superformer: dict[str, Any] = {}
    """How every superformer is trained: settings of `vitruvius train`, its recipe among them. A sandwich, the first
    channels shared and nothing private, unless a recipe or a setting says otherwise."""
    warm_start: bool = False
    """A space's superformer begins with the weights of the one before, where channels coincide."""
    budget: str | None = None
    """What architectures may cost wherever they are drawn: "macs <= 4M"."""
    images: int | float | None = None
    """So many images of search-validation (or such a part of them) score an architecture; all unless said otherwise."""
    iterations: int = Field(default=3, ge=0)
    """T: how often the space moves."""

    # the E-T error and the move (`vitruvius.search.space_evolution`)
    archs: int = 1000
    """N: architectures drawn at random from a space."""
    top: int = 50
    """The top tier, of N."""
    least: int = 50
    """A subspace with fewer scored architectures is widened to so many."""
    blocks: Literal["alike", "free"] = "alike"
    """Draw stages of like blocks, which tell about all dimensions, or blocks one by one."""
    tau: float = 0.4
    steps: dict[str, float] = {}
    """By parameter (qkv) or dimension (stage1.qkv); one gap between choices, two of widths, unless said otherwise."""
    units: Literal["steps", "choices"] = "steps"
    rounding: Literal["toward-zero", "floor"] = "toward-zero"
    most_steps: int | None = 4
    most_networks: int | float | None = None
    """M."""
    confident: bool = False
    """Only slopes whose interval leaves zero out move anything."""
    level: float = 0.95
    resamples: int = 1000

    # the search in the last space (Algorithm 3)
    search: dict[str, Any] = {}
    """Settings of the searcher "evolution"; S3's unless said otherwise."""
    search_every: bool = False
    """Search in every space on the way too, to compare them (Table 5)."""

    device: str | None = None

    @property
    def rules(self) -> Rules:
        """How spaces are measured and moved."""
        names = ("archs", "top", "least", "blocks", "tau", "steps", "units", "rounding", "most_steps", "confident")
        own = {name: getattr(self, name) for name in (*names, "level", "resamples")}
        return Rules(**own, most_networks=None if self.most_networks is None else int(self.most_networks))

    def superformer_config(self, space: str, start: str | None = None) -> SuperformerConfig:
        """How the superformer of a space is trained."""
        recipe = self.superformer.get("recipe")
        defaults = {} if recipe else _SANDWICH
        own = {"space": space, "seed": self.seed, "device": self.device, "start": start}
        return read_config(SuperformerConfig, {**defaults, **self.superformer, **own})

    def check(self, space: Space) -> None:
        """Refuses what can be seen to be wrong before anything is trained."""
        for name in _OWN:
            if name in self.superformer:
                refuse("the spaces of an evolution decide over this setting of superformer", name, "leave it out")
        self.superformer_config(self.space)
        resolve_steps(space, self.rules.steps)
        if self.budget is not None:
            Budget.of(self.budget)
        make_searcher("evolution", Domain(space), settings=self.search)


def read_evolve_config(given: Mapping[str, Any] | str | Path) -> EvolveSpaceConfig:
    """A configuration from a mapping or a YAML file, on top of the settings of the recipe that it names.

    What is given for the superformer, the steps and the search is on top of the recipe's too, key by key.
    """
    values = dict(given) if isinstance(given, Mapping) else read_yaml(Path(given))
    if isinstance(name := values.get("recipe"), str):
        settings = recipes.load(name, "evolve-space").settings
        for key in _NESTED:
            if isinstance(values.get(key), Mapping):
                values[key] = {**settings.get(key, {}), **values[key]}
    return read_as(EvolveSpaceConfig, "evolve-space", values)
