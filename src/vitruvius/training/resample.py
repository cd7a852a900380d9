"""Weights carried to another image size or another set of classes.

Position embeddings are resampled (bicubic, class tokens kept), tables of window offsets by timm's geometric rule;
AutoFormer's relative tables are clamped, and serve any size as they are. Windows are part of an architecture: at
another size they are kept, and must tile the token grids as they did, or grow with the image, which makes another
record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, get_args

import torch.nn.functional as F
from timm.layers import resample_abs_pos_embed, resize_rel_pos_bias_table
from torch import Tensor

from vitruvius.arch import Arch, Block, ImageSize, image_shape, refuse, require_choice, require_positive, token_grids
from vitruvius.models import Backbone, build
from vitruvius.models.layers import Grid, seeded

__all__ = ["Windows", "arch_at_size", "at_size", "resampled", "side_step", "with_new_head"]

Windows = Literal["keep", "scale", "pad"]


# -- sizes -------------------------------------------------------------------------------------------------------------


def side_step(arch: Arch) -> int:
    """Image sides must be multiples of this: 56 for ViT-ResNAS, whose patches of 14 are halved twice."""
    if arch.family == "pit":  # overlapping patches and padded poolings take any side
        return 1
    halvings = len(arch.stages) - 1 if arch.family in ("twins", "resvit") else 0
    return arch.patch.size * 2**halvings


def arch_at_size(arch: Arch, old_size: ImageSize, new_size: ImageSize, windows: Windows = "keep") -> Arch:
    """The architecture for another image size, or one line that says which sizes it can go to.

    windows: "keep" them, where they tile the new grids as they did the old; "scale" them with the image (S3 at 384
        pixels: 7 to 12, 14 to 24); "pad", keep them and let zeros fill the last ones, as timm does.
    """
    require_choice("windows", windows, get_args(Windows))
    old, new = image_shape(old_size), image_shape(new_size)
    token_grids(arch, old)
    found = _fitted(arch, old, new, windows)
    if isinstance(found, Arch):
        return found
    step, wanted = side_step(arch), max(new)
    sides = range(max(step, arch.patch.size, wanted // 2 // step * step), 3 * wanted + step, step)
    near = sorted(
        (side for side in sides if isinstance(_fitted(arch, old, (side, side), windows), Arch)),
        key=(lambda side: abs(side - wanted)),
    )[:4]
    allowed = f"multiples of {step}" if step > 1 else f"sides of {arch.patch.size} or more"
    if near:
        allowed += f", such as {', '.join(map(str, sorted(near)))}"
    if windows == "keep" and "windows" in found:
        allowed += ", or windows='scale' or 'pad'"
    refuse(found, new, allowed)


def _fitted(arch: Arch, old: Grid, new: Grid, windows: Windows) -> Arch | str:
    """The architecture at the new size, or why there is none."""
    try:
        before, after = token_grids(arch, old), token_grids(arch, new)
    except ValueError as error:
        return str(error).split(";")[0]
    stages = []
    for s, stage in enumerate(arch.stages):
        blocks = []
        for block in stage.blocks:
            window = _window(block, before[s], after[s], windows)
            if window is None:
                verb = "grow to a whole number with" if windows == "scale" else "tile"
                return f"windows of {block.window} must {verb} stage {s + 1}'s grid of {after[s][0]}x{after[s][1]}"
            blocks.append(replace(block, window=window) if window else block)
        stages.append(replace(stage, blocks=tuple(blocks)))
    return replace(arch, stages=tuple(stages))


def _window(block: Block, before: Grid, after: Grid, windows: Windows) -> int | None:
    """The window on the new grid; 0 for a block without windows, None where the rule allows none."""
    if block.window is None:
        return 0
    if windows == "scale":
        grown = {block.window * new / old for old, new in zip(before, after, strict=True)}
        window = grown.pop()
        return None if grown or not window.is_integer() else int(window)
    if windows == "keep" and _tiles(block.window, before) and not _tiles(block.window, after):
        return None
    return block.window


def _tiles(window: int, grid: Grid) -> bool:
    """A window larger than the grid is cut to it (Swin) or has zeros around it (Twins) at any size."""
    return all(side % window == 0 or side < window for side in grid)


# -- weights -----------------------------------------------------------------------------------------------------------


def at_size(model: Backbone, img_size: ImageSize, windows: Windows = "keep", **drops: float) -> Backbone:
    """A new network of the same weights for another image size; `drops` as for `build`."""
    arch = arch_at_size(model.arch, model.img_size, img_size, windows)
    made = build(arch, num_classes=model.num_classes, img_size=img_size, in_chans=model.in_chans, seed=0, **drops)
    assert isinstance(made, Backbone)
    reference = next(model.parameters())
    made.to(device=reference.device, dtype=reference.dtype).train(model.training)
    made.load_state_dict(resampled(model.state_dict(), model, made))
    return made


def resampled(weights: Mapping[str, Tensor], old: Backbone, new: Backbone) -> dict[str, Tensor]:
    """The state dict of `new`, from one of `old`: the same architecture but for image size and windows.

    A token head, which is for one training only, is left behind.
    """
    made = {}
    for name, tensor in weights.items():
        if name.startswith("token_head."):
            continue
        *way, last = name.split(".")
        if last == "pos_embed":
            stage = int(way[1]) if way else 0
            made[name] = _positions(tensor, old.grids[stage], new.grids[stage])
        elif last == "bias_table":
            owners = [each.get_submodule(".".join(way)) for each in (old, new)]
            made[name] = _table(tensor, *(owner.window for owner in owners))
        else:
            made[name] = tensor
    return made


def _positions(embedding_1NC: Tensor, old: Grid, new: Grid) -> Tensor:
    prefix = embedding_1NC.shape[1] - old[0] * old[1]  # a class token has one too, but in PiT
    made: Tensor = resample_abs_pos_embed(embedding_1NC, list(new), old_size=list(old), num_prefix_tokens=prefix)
    return made


def _table(table: Tensor, old: Grid, new: Grid) -> Tensor:
    """(offsets, heads) of windows of another shape."""
    shape = ((2 * new[0] - 1) * (2 * new[1] - 1), table.shape[1])
    if 1 in old and old != new:  # a row or column of one offset has nothing to be spaced geometrically
        known = table.T.reshape(1, -1, 2 * old[0] - 1, 2 * old[1] - 1)
        sides = (2 * new[0] - 1, 2 * new[1] - 1)
        return F.interpolate(known, sides, mode="bilinear", align_corners=True).flatten(2)[0].T.contiguous()
    known_shape = {} if old[0] == old[1] else {"old_window_size": old}
    made: Tensor = resize_rel_pos_bias_table(table, new, shape, **known_shape)
    return made


def with_new_head(model: Backbone, num_classes: int, seed: int | None = None) -> Backbone:
    """The same network, the very tensors, with a new classifier: for transfer to other classes."""
    require_positive("num_classes", num_classes)
    model.drop_token_head()
    with seeded(seed):
        model.reset_classifier(num_classes)
    return model
