"""What a network costs, without building it.

`params` and `macs` are exact and in closed form. They take one architecture (and give an int), a list of them, or a
space's encoded vectors with `space=` (and give an int64 array). MACs count every matrix product and convolution, the
two products of attention included, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from vitruvius.arch import Arch, ImageSize, refuse
from vitruvius.costs._budget import COUNTED, MEASURED, METRICS, Budget, short, written
from vitruvius.costs._closed_form import Cost, FamilyCost, blocks_cost, cost_of_archs, cost_of_arrays

if TYPE_CHECKING:
    from vitruvius.spaces import Space

__all__ = [
    "COUNTED",
    "MEASURED",
    "METRICS",
    "Budget",
    "Cost",
    "FamilyCost",
    "blocks_cost",
    "check_counting",
    "cost",
    "macs",
    "params",
    "short",
    "written",
]


def check_counting(num_classes: int, in_chans: int) -> None:
    if type(num_classes) is not int or num_classes < 0:
        refuse("num_classes must be a whole number", num_classes, "0 (no classifier), 1, 2, ...")
    if type(in_chans) is not int or in_chans < 1:
        refuse("in_chans must be a positive whole number", in_chans, "1, 2, 3, ...")


def cost(
    archs: Arch | Sequence[Arch] | NDArray[np.integer[Any]],
    *,
    img_size: ImageSize | None = None,
    num_classes: int = 1000,
    in_chans: int = 3,
    space: Space | None = None,
) -> Cost:
    """Parameters and MACs of one forward pass of one image (`img_size`: the space's, else 224)."""
    check_counting(num_classes, in_chans)
    if img_size is None:
        img_size = 224 if space is None else space.img_size
    if isinstance(archs, np.ndarray):
        if space is None:
            refuse("encoded architectures need their space", archs.shape, "space=...")
        vectors = space.checked(np.atleast_2d(archs))
        total = cost_of_arrays(space.arrays(vectors), img_size, num_classes, in_chans)
        return total if archs.ndim == 2 else Cost(int(total.params[0]), int(total.macs[0]))
    if isinstance(archs, Arch):
        total = cost_of_archs([archs], img_size, num_classes, in_chans)
        return Cost(int(total.params[0]), int(total.macs[0]))
    if not isinstance(archs, Sequence) or not all(isinstance(arch, Arch) for arch in archs):
        refuse("costs are counted of an Arch, a list of them, or a space's vectors", archs, "zoo.load('s3-tiny'), say")
    return cost_of_archs(archs, img_size, num_classes, in_chans)


@overload
def params(archs: Arch, **options: Any) -> int: ...
@overload
def params(archs: Sequence[Arch] | NDArray[np.integer[Any]], **options: Any) -> NDArray[np.int64]: ...
def params(archs: Any, **options: Any) -> Any:
    """The number of trained parameters; options as in `cost`."""
    return cost(archs, **options).params


@overload
def macs(archs: Arch, **options: Any) -> int: ...
@overload
def macs(archs: Sequence[Arch] | NDArray[np.integer[Any]], **options: Any) -> NDArray[np.int64]: ...
def macs(archs: Any, **options: Any) -> Any:
    """Multiply-accumulates of one image; options as in `cost`."""
    return cost(archs, **options).macs
