"""The only registry: names to things, refusing duplicates, and naming what it knows on a miss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from vitruvius.arch import refuse, require_choice

__all__ = ["Registry"]

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._things: dict[str, T] = {}

    def add(self, name: str, thing: T) -> T:
        if name in self._things:
            refuse(f"a {self._kind} of this name is registered already", name, "another name")
        self._things[name] = thing
        return thing

    def __getitem__(self, name: str) -> T:
        require_choice(self._kind, name, self._things)
        return self._things[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._things)

    def __len__(self) -> int:
        return len(self._things)
