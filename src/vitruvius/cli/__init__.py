"""The command line: parse, build the configuration, call, print. One private module a group of commands."""

from __future__ import annotations

from vitruvius.cli import (  # noqa: F401 - importing a module registers its commands
    _doctor,
    _evolve,
    _export,
    _house,
    _latency,
    _recipes,
    _run,
    _score,
    _search,
    _train,
)
from vitruvius.cli._common import app, main

__all__ = ["app", "main"]
