"""The published architectures: loadable by name, with the numbers that their papers print beside ours."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from vitruvius.arch import Arch
from vitruvius.costs import cost
from vitruvius.registry import Registry

__all__ = ["Entry", "entries", "entry", "load", "names"]


@dataclass(frozen=True, slots=True)
class Printed:
    """A number as a paper prints it, and ours."""

    text: str
    unit: float
    ours: int

    @property
    def agrees(self) -> bool:
        """Whether ours rounds to what is printed, at the printed number of digits."""
        digits = len(self.text.partition(".")[2])
        return f"{self.ours / self.unit:.{digits}f}" == self.text


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    aliases: tuple[str, ...]
    source: str
    """Which table of which paper the printed numbers come from."""
    printed: dict[str, str]
    """"params" in millions, "macs" in billions, "top1" in percent, as the source prints them."""
    note: str
    """Where ours and theirs differ: what was found."""
    img_size: int
    arch: Arch

    def numbers(self) -> dict[str, Printed]:
        """The printed parameters and MACs beside ours, with 1000 classes."""
        ours = cost(self.arch, img_size=self.img_size)
        units = {"params": 1e6, "macs": 1e9}
        return {
            metric: Printed(self.printed[metric], unit, getattr(ours, metric))
            for metric, unit in units.items()
            if metric in self.printed
        }


@cache
def _registry() -> tuple[Registry[Entry], dict[str, str]]:
    """The entries by name, and the names that aliases stand for."""
    registry: Registry[Entry] = Registry("published architecture")
    aliases = {}
    files = resources.files(__name__) / "networks"
    for file in sorted(files.iterdir(), key=lambda file: file.name.removesuffix(".json")):
        data: dict[str, Any] = json.loads(file.read_text())
        data["arch"] = Arch.from_dict(data["arch"])
        made = Entry(**{**data, "aliases": tuple(data["aliases"])})
        registry.add(made.name, made)
        aliases.update(dict.fromkeys(made.aliases, made.name))
    return registry, aliases


def names() -> list[str]:
    return list(_registry()[0])


def entry(name: str) -> Entry:
    registry, aliases = _registry()
    return registry[aliases.get(name, name)]


def load(name: str) -> Arch:
    """The architecture of this name (`vitruvius zoo` lists them)."""
    return entry(name).arch


def entries() -> list[Entry]:
    return list(_registry()[0].values())
