"""The published training and search settings, as named, dated, sourced records: one YAML file each in `records/`.

Beside the keys of `Recipe`, a record may have

- `filled`: settings that the paper leaves open, chosen here (the notes say from where);
- `base`: another record, whose settings are taken for what neither this one's `settings` nor `filled` says;
- `variants`: settings that differ, by suffix. The record `a` with variants `x` and `y` is two recipes, `a-x` and `a-y`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, TypeAlias, get_args

import yaml

from vitruvius.arch import refuse, require_choice, require_keys
from vitruvius.registry import Registry

__all__ = ["Kind", "Recipe", "load", "names"]

Kind: TypeAlias = Literal["superformer", "retrain", "finetune", "search", "evolve-space"]

_SAID = ("name", "kind", "paper", "where", "date", "cost", "notes")
_REQUIRED, _OPTIONAL = (*_SAID, "settings"), ("filled", "base", "variants")


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
    sources: dict[str, str]
    """Of each setting: "paper", "filled", or the name of the record that it is taken from."""


@cache
def _records() -> Registry[dict[str, Any]]:
    records: Registry[dict[str, Any]] = Registry("recipe record")
    for file in sorted((resources.files(__name__) / "records").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".yaml"):
            text = file.read_text(encoding="utf-8")
            data = require_keys(f"recipe {file.name}", yaml.safe_load(text), _REQUIRED, _OPTIONAL)
            require_choice("kind of recipe", data["kind"], get_args(Kind))
            records.add(data["name"], data)
    return records


@cache
def _registry() -> Registry[Recipe]:
    registry: Registry[Recipe] = Registry("recipe")
    for name, record in _records().items():
        settings, sources = _merged(name)
        for suffix, own in record.get("variants", {"": {}}).items():
            said = {key: record[key] for key in _SAID} | {"name": f"{name}-{suffix}" if suffix else name}
            own_sources = sources | dict.fromkeys(own, "paper")
            registry.add(said["name"], Recipe(**said, settings=settings | own, sources=own_sources))
    return registry


def _merged(name: str) -> tuple[dict[str, Any], dict[str, str]]:
    """A record's settings on top of its base's, and where each is from."""
    record = _records()[name]
    settings: dict[str, Any] = {}
    sources: dict[str, str] = {}
    if base := record.get("base"):
        settings, sources = _merged(base)
        sources = {key: base if source in ("paper", "filled") else source for key, source in sources.items()}
    for source, given in (("filled", record.get("filled", {})), ("paper", record["settings"])):
        settings, sources = settings | given, sources | dict.fromkeys(given, source)
    return settings, sources


def names(kind: Kind | None = None) -> list[str]:
    return [name for name, recipe in _registry().items() if kind in (None, recipe.kind)]


def load(name: str, kind: Kind | None = None) -> Recipe:
    """The recipe of this name; with `kind`, only if it is one of that kind."""
    recipe = _registry()[name]
    if kind not in (None, recipe.kind):
        refuse(f"recipe {name!r} is one of another kind", recipe.kind, f"a {kind} recipe: {', '.join(names(kind))}")
    return recipe
