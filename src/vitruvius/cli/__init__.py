"""The command line: parse, build the configuration, call, print. One private module a group of commands."""

from __future__ import annotations

from vitruvius.cli import _doctor, _export, _house, _recipes, _train  # noqa: F401 - importing a module registers its commands
from vitruvius.cli._common import app, main

__all__ = ["app", "main"]
