"""From an architecture to its vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from vitruvius.arch import Arch, Block, Stage, refuse, require_choice
from vitruvius.arrays import IntArray
from vitruvius.spaces._declaration import Choices, Declaration, mlp_width
from vitruvius.spaces._layout import NET

if TYPE_CHECKING:
    from vitruvius.spaces._space import Space

Path: TypeAlias = tuple[tuple[int, ...], ...]
"""For every stage, the layers of the superformer that the network's blocks use."""


def as_path(value: object) -> Path:
    """A path from tuples or lists, as JSON has them."""
    if not isinstance(value, list | tuple) or not all(isinstance(layers, list | tuple) for layers in value):
        refuse("a path names the layers of every stage", value, "((0, 2, 3),), say")
    return tuple(tuple(layers) for layers in value)


def encode(space: Space, arch: Arch, path: Path | None = None) -> IntArray:
    for name in ("family", "class_token", "pool", "positions", "norm_eps"):
        if getattr(arch, name) != getattr(space, name):
            refuse(f"{name} differs from that of space {space.name!r}", getattr(arch, name), getattr(space, name))
    if len(arch.stages) != len(space.stages):
        refuse(f"space {space.name!r} has {len(space.stages)} stages", len(arch.stages), len(space.stages))
    if path is None:
        path = tuple(first_path(space, s, len(stage.blocks)) for s, stage in enumerate(arch.stages))
    path = as_path(path)
    if len(path) != len(space.stages):
        refuse(f"a path of space {space.name!r} names the layers of {len(space.stages)} stages", path, "one tuple each")
    require_choice(f"patch of space {space.name!r}", arch.patch, space.patches())
    vector = np.zeros(len(space.layout.genes), dtype=np.int64)
    fitting: dict[int, set[int]] = {}
    if (column := space.layout.column("patch")) is not None:
        fitting[column] = {space.patches().index(arch.patch)}
    for s in range(len(space.stages)):
        _check_path(space, s, path[s], len(arch.stages[s].blocks))
        for layer in path[s]:
            if (column := space.layout.column("on", s, layer)) is not None:
                fitting[column] = {1}
        _fit_stage(space, s, arch.stages[s], path[s], fitting)
    for column, indices in fitting.items():
        vector[column] = min(indices)
    if space.decode(vector) != arch:
        refuse(f"the architecture is outside space {space.name!r}", arch.id, f"what {space.name!r} decodes to")
    return vector


def _fit_stage(space: Space, s: int, stage: Stage, path: Sequence[int], fitting: dict[int, set[int]]) -> None:
    """Narrows, column by column, which choices agree with the stage; one that several blocks share must fit all."""
    declared, where = space.stages[s], f"stage{s + 1}"

    def narrow(column: int | None, what: str, choices: Choices, fits: list[bool], value: object) -> None:
        indices = {i for i, fit in enumerate(fits) if fit}
        if column is not None:
            indices &= fitting.get(column, indices)
            fitting[column] = indices
        if not indices:
            refuse(f"{what} is outside space {space.name!r}", value, ", ".join(map(str, choices)))

    if declared.identity == "shifted":
        blocks = len(stage.blocks)
        fits = [depth == blocks for depth in declared.depth]
        narrow(space.layout.column("depth", s), f"{where}.depth", declared.depth, fits, blocks)
    for name, choices in space.stated(declared).items():
        shared = space.layout.column(name, s if name in declared.stage or (name == "dim" and declared.dim) else NET)
        if name == "dim":
            narrow(shared, f"{where}.dim", choices, [choice == stage.dim for choice in choices], stage.dim)
            continue
        for place, (layer, block) in enumerate(zip(path, stage.blocks, strict=True)):
            column = space.layout.column(name, s, layer) if name in declared.block else shared
            fits = [_fits(name, choice, stage.dim, block, place) for choice in choices]
            narrow(column, f"{where}.block{place + 1}.{name}", choices, fits, _observed(name, stage.dim, block))


def first_path(space: Declaration, s: int, blocks: int) -> tuple[int, ...]:
    """The path that keeps the layers that must stay, and of the others the first."""
    stage = space.stages[s]
    if stage.identity == "shifted":
        return tuple(range(blocks))
    skippable = stage.skips
    kept = [layer for layer in range(stage.layers) if layer not in skippable]
    return tuple(sorted(kept + list(skippable[: max(0, blocks - len(kept))])))


def _check_path(space: Declaration, s: int, path: Sequence[int], blocks: int) -> None:
    stage = space.stages[s]
    layers = set(path)
    must = set(range(stage.layers)) - set(stage.skips) if stage.identity == "anywhere" else set()
    if len(path) != blocks or list(path) != sorted(layers) or not must <= layers <= set(range(stage.layers)):
        low = len(must) if stage.identity == "anywhere" else stage.depth[0]
        refuse(f"stage{s + 1} cannot place {blocks} blocks on layers", tuple(path), f"{low}..{stage.layers} blocks")
    if stage.identity == "shifted" and tuple(path) != tuple(range(blocks)):
        refuse(f"stage{s + 1} shifts identities to the end", tuple(path), tuple(range(blocks)))


def _observed(name: str, dim: int, block: Block) -> Any:
    match name:
        case "head_dim":
            return block.qk // block.heads
        case "qkv":
            return block.qk if block.qk == block.v else (block.qk, block.v)
        case "mlp_ratio":
            return block.mlp / dim
    return getattr(block, name)


def _fits(name: str, choice: Any, dim: int, block: Block, place: int) -> bool:
    """Whether a choice of a parameter agrees with what the block has."""
    match name:
        case "mixer":
            parts = choice.split("+")
            return bool(parts[place % len(parts)] == block.mixer)
        case "mlp_ratio":
            return bool(mlp_width(dim, choice) == block.mlp)
        case "window" | "reduction":  # they speak only of the mixers that have one
            return getattr(block, name) in (None, choice)
    return bool(_observed(name, dim, block) == choice)
