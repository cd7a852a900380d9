"""What a person would have built at the same cost: a network of DeiT's shape, scaled.

Every block is alike: as many channels in queries, keys and values as in the stage, an MLP of four times that, a class
token, absolute positions. DeiT goes from Ti to S and B in width, at a depth of 12; below Ti's width of 16 channels a
layer, the depth shrinks along. The MLPs take what is left of the budget, so that costs are equal and not only close.
"""

from __future__ import annotations

from collections.abc import Callable

from vitruvius import costs
from vitruvius.arch import MOST, Arch, Block, ImageSize, Patch, Stage, image_shape, refuse

__all__ = ["SMALL", "hand_made", "patch_for", "tokens_a_side"]

SMALL = 96
"""Images with a shorter side below so many pixels are small."""

_DEPTH, _CHANNELS_A_LAYER, _RATIO = 12, 16, 4
_STEP = 8
"""Widths are multiples of this."""


def patch_for(found: Arch, img_size: ImageSize) -> int:
    """The found network's own patch; of a pyramid, the divisor of the image with the grid that is nearest to what plain
    transformers have."""
    if len(found.stages) == 1:
        return found.patch.size
    sides = image_shape(img_size)
    goal = tokens_a_side(min(sides))
    divisors = [size for size in range(1, min(sides) + 1) if not any(side % size for side in sides)]
    return min(divisors, key=lambda size: (abs(min(sides) / size - goal), size))


def tokens_a_side(pixels: int) -> int:
    """Of a plain transformer: DeiT's 14, and 4 to 8 of small images."""
    return 14 if pixels >= SMALL else min(8, max(4, pixels // 4))


def hand_made(macs: float, *, patch: int, img_size: ImageSize, num_classes: int, in_chans: int = 3) -> Arch:
    """The network of DeiT's shape with no more MACs than these, and as near to them as an MLP's channel allows."""
    counting = {"img_size": img_size, "num_classes": num_classes, "in_chans": in_chans}

    def cost(depth: int, dim: int, mlp: int) -> int:
        return costs.macs(_deit(patch, depth, dim, mlp), **counting)

    best: tuple[float, int, int] | None = None
    for depth in range(1, _DEPTH + 1):
        dim = _largest(lambda steps, d=depth: cost(d, steps * _STEP, steps * _STEP * _RATIO) <= macs) * _STEP
        if dim:
            ranked = (abs(dim / depth - _CHANNELS_A_LAYER), depth, dim)
            best = ranked if best is None else min(best, ranked)
    if best is None:
        least = cost(1, _STEP, _STEP * _RATIO)
        refuse("no network of DeiT's shape is so small", f"{macs:,.0f} MACs", f"{least:,} MACs or more")
    _, depth, dim = best
    return _deit(patch, depth, dim, _largest(lambda mlp: mlp <= MOST and cost(depth, dim, mlp) <= macs))


def _largest(fits: Callable[[int], bool]) -> int:
    """The largest whole number that fits, where all below one that does fit too; 0 where 1 does not."""
    low, high = 0, 1
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _deit(patch: int, depth: int, dim: int, mlp: int) -> Arch:
    # Heads as near to DeiT's 64 channels as divides the width; narrow networks have them of 16.
    goal = 64 if dim >= 128 else 16
    heads = min((h for h in range(1, dim + 1) if dim % h == 0), key=lambda h: (abs(dim / h - goal), h))
    block = Block(heads=heads, qk=dim, v=dim, mlp=mlp)
    return Arch(
        family="vit",
        patch=Patch(size=patch),
        stages=(Stage(dim=dim, blocks=(block,) * depth),),
        positions="absolute",
        class_token=True,
        pool="token",
    )
