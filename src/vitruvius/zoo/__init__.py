"""The published architectures: loadable by name, with the numbers that their papers print beside ours."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from vitruvius.arch import Arch, refuse
from vitruvius.costs import cost
from vitruvius.registry import Registry

__all__ = ["Entry", "entries", "entry", "load", "names", "read"]


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
    printed: dict[int, dict[str, str]]
    """By image size: "params" in millions, "macs" in billions, "top1" in percent, as the source prints them."""
    note: str
    """Where ours and theirs differ: what was found."""
    arch: Arch

    def numbers(self, img_size: int) -> dict[str, Printed]:
        """The printed parameters and MACs at an image size beside ours, with 1000 classes."""
        ours = cost(self.arch, img_size=img_size)
        units = {"params": 1e6, "macs": 1e9}
        printed = self.printed[img_size]
        return {m: Printed(printed[m], unit, getattr(ours, m)) for m, unit in units.items() if m in printed}

    @property
    def agrees(self) -> bool:
        """Whether every printed number is ours to the printed digit."""
        return all(number.agrees for img_size in self.printed for number in self.numbers(img_size).values())


@cache
def _registry() -> tuple[Registry[Entry], dict[str, str]]:
    """The entries by name, and the names that aliases stand for."""
    registry: Registry[Entry] = Registry("published architecture")
    aliases = {}
    files = resources.files(__name__) / "networks"
    for file in sorted(files.iterdir(), key=lambda file: file.name.removesuffix(".json")):
        data: dict[str, Any] = json.loads(file.read_text())
        printed = {int(img_size): numbers for img_size, numbers in data["printed"].items()}
        changed = {"arch": Arch.from_dict(data["arch"]), "aliases": tuple(data["aliases"]), "printed": printed}
        made = Entry(**{**data, **changed})
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


def read(text: str) -> Arch:
    """An architecture from a name of the zoo, a JSON file, or JSON text."""
    if text.lstrip().startswith("{"):
        return Arch.from_json(text)
    if any(mark in text for mark in "./\\"):  # no name has one
        try:
            return Arch.from_json(Path(text).read_text())
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not text"
            refuse(f"an architecture file cannot be read ({why})", text, "a JSON file")
    return load(text)


def entries() -> list[Entry]:
    return list(_registry()[0].values())
