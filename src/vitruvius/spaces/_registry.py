"""Which spaces there are by name."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any

from vitruvius.arch import ImageSize, refuse, require_choice
from vitruvius.registry import Registry
from vitruvius.spaces._space import Space

SPACES: Registry[Callable[..., Space]] = Registry("space")


def publish(space: Space) -> None:
    """Registers a space without options."""

    def factory(**options: Any) -> Space:
        if options:
            refuse(f"space {space.name!r} has no options", sorted(options), "none; the nano spaces have some")
        return space

    SPACES.add(space.name, factory)


def load(name: str, **options: Any) -> Space:
    """The space of this name; the nano spaces take `img_size` and `patch`."""
    factory = SPACES[name]
    known = signature(factory).parameters
    if not any(parameter.kind is Parameter.VAR_KEYWORD for parameter in known.values()):
        for option in options:
            require_choice(f"option of space {name!r}", option, known)
    return factory(**options)


def nano_stages(img_size: ImageSize, patch: int, most: int) -> int:
    """How many stages of halving tokens a small image has room for (at least 2x2 tokens in the last)."""
    side = min(img_size) if isinstance(img_size, tuple) else img_size
    stages = 1
    while stages < most and side % (patch * 2**stages) == 0 and side // (patch * 2**stages) >= 2:
        stages += 1
    return stages
