"""How many networks a space has, exactly."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from vitruvius.arch import width_follows
from vitruvius.spaces._declaration import Declaration, StageSpace


def count(space: Declaration, distinct: bool) -> int:
    total = 0
    for net in product(*(range(len(choices)) for choices in space.net.values())):
        chosen = dict(zip(space.net, net, strict=True))
        reached: dict[int, int] = {}
        for s, stage in enumerate(space.stages):
            now: dict[int, int] = {}
            for dim, states in _stage_widths(space, s, chosen).items():
                follows = [ways for before, ways in reached.items() if width_follows(space.family, before, dim)]
                now[dim] = states * _depths(stage, distinct) * (sum(follows) if s else 1)
            reached = now
        total += sum(reached.values())
    return total * len(space.patch)


def _stage_widths(space: Declaration, s: int, net: Mapping[str, int]) -> dict[int, int]:
    """For every width of a stage, how many choices of its own dimensions give it."""
    stage = space.stages[s]
    own = {**({"dim": stage.dim} if stage.dim else {}), **stage.stage}
    widths: dict[int, int] = {}
    for picks in product(*own.values()):
        value = {name: space.net[name][i] for name, i in net.items()} | dict(zip(own, picks, strict=True))
        dim = value["dim"] if "dim" in value else value["heads"] * value["head_dim"]
        widths[dim] = widths.get(dim, 0) + 1
    return widths


def _depths(stage: StageSpace, distinct: bool) -> int:
    """In how many ways a stage can be filled with blocks."""
    kinds = 1
    for choices in stage.block.values():
        kinds *= len(choices)
    if stage.identity == "shifted":
        return sum(kinds**depth for depth in stage.depth)
    skippable = len(stage.skips)
    kept = stage.layers - skippable
    if distinct:
        return int(sum(kinds**blocks for blocks in range(kept, stage.layers + 1)))
    return int(kinds**kept * (kinds + 1) ** skippable)
