"""Which searchers there are by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import signature
from typing import Any

from vitruvius.arch import require_choice
from vitruvius.registry import Registry
from vitruvius.search._domain import Domain
from vitruvius.search._searcher import Searcher
from vitruvius.search._trial import Objective

__all__ = ["SEARCHERS", "make_searcher", "settings_of"]

SEARCHERS: Registry[type[Searcher]] = Registry("searcher")
_COMMON = ("self", "domain", "objectives", "seed")


def settings_of(name: str) -> dict[str, Any]:
    """The settings of a searcher, with their defaults."""
    found = signature(SEARCHERS[name].__init__).parameters.items()
    return {key: each.default for key, each in found if key not in _COMMON}


def make_searcher(
    name: str,
    domain: Domain,
    objectives: Iterable[Objective | str] | str = "accuracy",
    *,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> Searcher:
    """The searcher of this name with its own settings."""
    known = settings_of(name)
    for key in settings or {}:
        require_choice(f"setting of searcher {name!r}", key, known)
    return SEARCHERS[name](domain, objectives, seed=seed, **dict(settings or {}))
