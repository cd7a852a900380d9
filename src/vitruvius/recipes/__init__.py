"""The published training and search settings, as named, dated, sourced records: one YAML file each in `records/`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, TypeAlias, get_args

import yaml

from vitruvius.arch import refuse, require_choice, require_keys
from vitruvius.registry import Registry

__all__ = ["Kind", "Recipe", "load", "names"]

Kind: TypeAlias = Literal["superformer", "retrain", "finetune", "search"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    name: str
    kind: Kind
    paper: str
    where: str
    """The section or table of the paper that each number is from."""
    date: str
    """Of the paper: year and month."""
    cost: str
    """What running it costs, as the paper prints it, or that it does not say."""
    notes: str
    """Why, and what the paper leaves open."""
    settings: dict[str, Any]
    """What the configuration of training (or of a searcher) takes, key by key."""


@cache
def _registry() -> Registry[Recipe]:
    registry: Registry[Recipe] = Registry("recipe")
    for file in sorted((resources.files(__name__) / "records").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".yaml"):
            keys = ("name", "kind", "paper", "where", "date", "cost", "notes", "settings")
            data = require_keys(f"recipe {file.name}", yaml.safe_load(file.read_text()), keys)
            require_choice("kind of recipe", data["kind"], get_args(Kind))
            registry.add(data["name"], Recipe(**data))
    return registry


def names(kind: Kind | None = None) -> list[str]:
    return [name for name, recipe in _registry().items() if kind in (None, recipe.kind)]


def load(name: str, kind: Kind | None = None) -> Recipe:
    """The recipe of this name; with `kind`, only if it is one of that kind."""
    recipe = _registry()[name]
    if kind not in (None, recipe.kind):
        refuse(f"recipe {name!r} is one of another kind", recipe.kind, f"a {kind} recipe: {', '.join(names(kind))}")
    return recipe
