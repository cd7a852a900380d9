"""From the superformer of one space to that of another: weights where names and channels coincide."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vitruvius.arch import refuse
from vitruvius.superformer._slices import Dimension, Place, middle
from vitruvius.superformer.sharing import Ordinal
from vitruvius.superformer.superformer import Superformer

__all__ = ["Carried", "carry"]

Channels = list[int]


@dataclass(frozen=True, slots=True)
class Carried:
    """How much of a superformer came from another one."""

    tensors: int
    of_tensors: int
    numbers: int
    of_numbers: int


@torch.no_grad()
def carry(old: Superformer, new: Superformer) -> Carried:
    """Copies into `new` what `old` has for the same parameters and channels; the rest stays as it was made.

    Parameters coincide by name: layers by their place, private copies by the choice that they belong to. On an axis the
    first channels coincide under the ordinal rule. Another rule places a width's channels by all of the axis' widths:
    there it is the channels of the largest width that both spaces have, and where they have none, the first ones.
    Tables over window offsets coincide in their middle, four joined widths in each of the four.
    """
    if old.rule.name != new.rule.name:
        refuse("weights are carried between superformers of one sharing rule", old.rule.name, new.rule.name)
    theirs = {place.shared: place for place in old.places()}
    ours = {place.shared: place for place in new.places()}
    tensors = numbers = 0
    for name, place in ours.items():
        if (source := theirs.get(name)) is None:
            continue
        if (pairs := _pairs(old, source, new, place)) is None:
            continue
        target, origin = (each.shared[name.replace(".", "/")] for each in (new, old))
        before, after = ([torch.tensor(side) for side in sides] for sides in zip(*pairs, strict=True))
        target[torch.meshgrid(*after, indexing="ij")] = origin[torch.meshgrid(*before, indexing="ij")].to(target)
        tensors += 1
        numbers += origin[torch.meshgrid(*before, indexing="ij")].numel()
    whole = sum(parameter.numel() for parameter in new.parameters())
    buffers = dict(old.named_buffers())
    for name, buffer in new.named_buffers():
        if name in buffers and buffers[name].shape == buffer.shape:
            buffer.copy_(buffers[name])
    return Carried(tensors, len(ours), numbers, whole)


def _pairs(old: Superformer, source: Place, new: Superformer, target: Place) -> list[tuple[Channels, Channels]] | None:
    """Of every dimension the channels that coincide; None where a dimension that never varies is another."""
    if len(source.dimensions) != len(target.dimensions):
        return None
    pairs = [
        _coinciding(old, theirs, new, ours) for theirs, ours in zip(source.dimensions, target.dimensions, strict=True)
    ]
    return None if any(pair is None for pair in pairs) else [pair for pair in pairs if pair is not None]


def _coinciding(
    old: Superformer, theirs: Dimension, new: Superformer, ours: Dimension
) -> tuple[Channels, Channels] | None:
    if theirs.axis != ours.axis:
        return None
    match ours.axis:
        case None:
            same = theirs.size == ours.size
            return (list(range(ours.size)),) * 2 if same else None
        case "offset":
            sides = [each._widths.window(ours.stage) for each in (old, new)]
            common = (min(side[0] for side in sides), min(side[1] for side in sides))
            rows = [[i for start, n in middle(common, side) for i in range(start, start + n)] for side in sides]
            return rows[0], rows[1]
        case "4 before":
            before, after = (each._widths.of("before", ours.stage) for each in (old, new))
            first, second = _channels(old, before, after)
            return (
                [part * before[-1] + channel for part in range(4) for channel in first],
                [part * after[-1] + channel for part in range(4) for channel in second],
            )
    before, after = (each._widths.of(ours.axis, ours.stage, ours.heads) for each in (old, new))
    return _channels(old, before, after)


def _channels(old: Superformer, before: tuple[int, ...], after: tuple[int, ...]) -> tuple[Channels, Channels]:
    rule = old.rule
    common = set(before) & set(after)
    if isinstance(rule, Ordinal) or not common:
        leading = list(range(min(before[-1], after[-1])))
        return leading, leading
    return rule.channels(before, max(common)), rule.channels(after, max(common))
