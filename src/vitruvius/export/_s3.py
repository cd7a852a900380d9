"""S3's published networks in our names: timm's files, and those of the original release.

Only single networks were published. Their shapes tell the whole architecture but the image size: widths, heads and
windows (from the bias tables), MLPs. Odd blocks shift. A window that was larger than its grid has a table of the grid's
size, so a network of the zoo is also known by its windows as the grids cut them. The original release keeps a stage's
downsampling at the end of the stage before, as early versions of timm did, and the masks of shifted windows, which tell
the image size.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from vitruvius import zoo
from vitruvius.arch import Arch, Block, ImageSize, Patch, Stage, refuse, token_grids
from vitruvius.models import Backbone, build, from_timm

__all__ = ["arch_of", "image_side", "is_s3", "network", "published"]


def is_s3(weights: Mapping[str, Tensor]) -> bool:
    return "layers.0.blocks.0.attn.relative_position_bias_table" in weights


def arch_of(weights: Mapping[str, Tensor]) -> Arch:
    patch = weights["patch_embed.proj.weight"]
    depths: dict[int, int] = {}
    for name in weights:
        if match := re.match(r"layers\.(\d+)\.blocks\.(\d+)\.", name):
            stage, block = int(match[1]), int(match[2])
            depths[stage] = max(depths.get(stage, 0), block + 1)
    stages = []
    for s, depth in sorted(depths.items()):
        blocks = tuple(_block(weights, f"layers.{s}.blocks.{b}", shifted=b % 2 == 1) for b in range(depth))
        stages.append(Stage(dim=len(weights[f"layers.{s}.blocks.0.norm1.weight"]), blocks=blocks))
    return Arch(
        family="swin",
        patch=Patch(size=patch.shape[2]),
        stages=tuple(stages),
        positions="bias",
        class_token=False,
        pool="mean",
        norm_eps=1e-5,
    )


def _block(weights: Mapping[str, Tensor], at: str, shifted: bool) -> Block:
    try:
        offsets, heads = weights[f"{at}.attn.relative_position_bias_table"].shape
        width = len(weights[f"{at}.attn.qkv.weight"]) // 3
        hidden = len(weights[f"{at}.mlp.fc1.weight"])
    except KeyError as error:
        refuse("an S3 checkpoint lacks a tensor", f"{len(weights)} tensors", f"{error.args[0]} among them")
    window = (math.isqrt(offsets) + 1) // 2
    if (2 * window - 1) ** 2 != offsets:
        refuse(f"the bias table of {at} must be of a square window", offsets, "(2 x window - 1)^2 rows")
    mixer = "shifted" if shifted and window > 1 else "window"
    return Block(mixer=mixer, heads=heads, qk=width, v=width, mlp=hidden, window=window)


def published(arch: Arch, img_size: ImageSize) -> zoo.Entry | None:
    """The network of the zoo that is this one at this image size."""
    alike = [entry for entry in zoo.entries() if entry.arch.family == "swin" and _cut(entry.arch, img_size) == arch]
    return min(alike, key=lambda entry: entry.arch != arch, default=None)


def _cut(arch: Arch, img_size: ImageSize) -> Arch:
    """With windows no larger than the grid."""
    try:
        grids = token_grids(arch, img_size)
    except ValueError:  # no images for this one
        return arch
    stages = []
    for stage, grid in zip(arch.stages, grids, strict=True):
        stages.append(replace(stage, blocks=tuple(_cut_block(block, min(grid)) for block in stage.blocks)))
    return replace(arch, stages=tuple(stages))


def _cut_block(block: Block, most: int) -> Block:
    window = min(block.window or 1, most)
    return replace(block, window=window, mixer=block.mixer if window > 1 else "window")


def image_side(weights: Mapping[str, Tensor]) -> int | None:
    """From a mask of shifted windows, where there is one: windows times tokens of each are the first stage's grid."""
    mask = weights.get("layers.0.blocks.1.attn_mask")
    if mask is None:
        return None
    return math.isqrt(mask.shape[0] * mask.shape[1]) * weights["patch_embed.proj.weight"].shape[2]


def network(weights: Mapping[str, Tensor], arch: Arch, img_size: ImageSize) -> Backbone:
    from vitruvius.export._bundle import load_strictly

    head = weights.get("head.fc.weight", weights.get("head.weight"))
    in_chans = weights["patch_embed.proj.weight"].shape[1]
    model = build(arch, num_classes=0 if head is None else len(head), img_size=img_size, in_chans=in_chans)
    assert isinstance(model, Backbone)
    load_strictly(model, from_timm(arch, _as_timm(weights)), "the checkpoint")
    return model.eval()


def _as_timm(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """With each downsampling at the start of the stage that it leads to."""
    if not any(name.startswith("layers.0.downsample.") for name in weights):
        return dict(weights)

    def moved(name: str) -> str:
        return re.sub(r"^layers\.(\d+)\.downsample\.", lambda m: f"layers.{int(m[1]) + 1}.downsample.", name)

    return {moved(name): tensor for name, tensor in weights.items()}
