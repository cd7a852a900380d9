"""Imports point one way: the rooms of docs/architecture.md, top to bottom. And who may know torch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import vitruvius

SOURCE = Path(vitruvius.__file__).parent
ROOMS = (
    *("arch", "arrays", "registry", "files", "extras", "costs", "spaces", "zoo", "recipes", "search", "correlation"),
    *("models", "costs/latency", "superformer", "data", "training", "proxies", "evaluation", "export", "pipeline"),
    *("report", "testing", "cli"),
)
"""A file's room is the last of these that it is in."""
WITHOUT_TORCH = ROOMS[: ROOMS.index("models")]


def room_of(module: str) -> str | None:
    """Of vitruvius.costs._budget, "costs"; the package itself is in no room."""
    path = module.removeprefix("vitruvius").lstrip(".").replace(".", "/")
    found = [room for room in ROOMS if path == room or path.startswith(room + "/")]
    return found[-1] if found else None


def imported(file: Path) -> Iterator[tuple[str, bool]]:
    """What a file imports, wherever in it but for its types, and whether as soon as it is imported itself."""
    tree = ast.parse(file.read_text())
    at_once = set(tree.body)
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
    for_types = [block for block in blocks if ast.unparse(block.test) == "TYPE_CHECKING"]
    unseen = {node for block in for_types for statement in block.body for node in ast.walk(statement)}
    for node in ast.walk(tree):
        if node in unseen:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node in at_once) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module, node in at_once
            yield from ((f"{node.module}.{alias.name}", node in at_once) for alias in node.names)


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_above_it(room: str) -> None:
    above = ROOMS[: ROOMS.index(room) + 1]
    own = [file for file in FILES if room_of(module_of(file)) == room]
    assert own, f"there is no room {room}"
    for file in own:
        for module, _ in imported(file):
            theirs = room_of(module) if module.startswith("vitruvius") else None
            assert theirs is None or theirs in above, f"{file.relative_to(SOURCE)} imports {module}"


def test_a_package_is_read_by_its_public_names() -> None:
    """A private module (`_name.py`) is its own package's, and of packages within it."""
    for file in FILES:
        own = module_of(file).split(".")[: None if file.stem == "__init__" else -1]
        for module, _ in imported(file):
            names = module.split(".")
            private = next((place for place, name in enumerate(names[:-1]) if name.startswith("_")), None)
            if module.startswith("vitruvius.") and private is not None:
                assert own[:private] == names[:private], f"{file.relative_to(SOURCE)} imports {module}"


@pytest.mark.parametrize("room", WITHOUT_TORCH)
def test_rooms_that_know_no_torch(room: str) -> None:
    for file in FILES:
        if room_of(module_of(file)) == room:
            names = {module.partition(".")[0] for module, at_once in imported(file) if at_once}
            assert not names & {"torch", "torchvision", "timm"}, file.relative_to(SOURCE)


def module_of(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(["vitruvius", *(parts[:-1] if parts[-1] == "__init__" else parts)])


def test_every_file_has_a_room() -> None:
    without = {module_of(file) for file in FILES if room_of(module_of(file)) is None}
    assert without == {"vitruvius", "vitruvius.__main__"}
