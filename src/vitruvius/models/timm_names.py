"""timm's weights in our names: DeiT and ViT, Swin and S3, Twins-SVT, PiT."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from vitruvius.arch import Arch, refuse

__all__ = ["from_timm"]

# Each family: patterns of timm's names, and ours. Applied in order, all that match.
_NAMES: dict[str, list[tuple[str, str]]] = {
    "vit": [(r"^blocks\.", "stages.0.blocks."), (r"^patch_embed\.proj\.", "patch_embed.")],
    "swin": [
        (r"^patch_embed\.proj\.", "patch_embed."),
        (r"^patch_embed\.norm\.", "patch_norm."),
        (r"^layers\.", "stages."),
        (r"^head\.fc\.", "head."),
        (r"relative_position_bias_table$", "bias_table"),
    ],
    "twins": [
        (r"^patch_embeds\.0\.proj\.", "patch_embed."),
        (r"^patch_embeds\.0\.norm\.", "patch_norm."),
        (r"^patch_embeds\.(\d+)\.", r"stages.\1.downsample."),
        (r"^pos_block\.(\d+)\.proj\.0\.", r"stages.\1.position."),
        (r"^blocks\.(\d+)\.(\d+)\.", r"stages.\1.blocks.\2."),
        (r"\.attn\.sr\.", ".attn.reduce."),
        (r"\.attn\.norm\.", ".attn.reduce_norm."),
    ],
    "pit": [
        (r"^patch_embed\.conv\.", "patch_embed."),
        (r"^transformers\.(\d+)\.blocks\.", r"stages.\1.blocks."),
        (r"^transformers\.(\d+)\.pool\.conv\.", r"stages.\1.downsample.conv."),
        (r"^transformers\.(\d+)\.pool\.fc\.", r"stages.\1.downsample.token."),
    ],
}
_FUSED = {"qkv": ("q", "k", "v"), "kv": ("k", "v")}
_NOT_OURS = ("relative_position_index", "attn_mask", "head_dist")


def from_timm(arch: Arch, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of our model of `arch`, from that of timm's model of the same network."""
    if arch.family not in _NAMES:
        refuse("timm has no networks of this family", arch.family, ", ".join(_NAMES))
    found = {}
    for name, tensor in weights.items():
        if any(part in name for part in _NOT_OURS):
            continue
        for pattern, ours in _NAMES[arch.family]:
            name = re.sub(pattern, ours, name)
        if name == "pos_embed" and tensor.ndim == 4:  # PiT keeps a map
            tensor = tensor.flatten(2).transpose(1, 2)
        if match := re.match(r"(.*\.attn\.)(qkv|kv)(\..*)", name):
            parts = _FUSED[match[2]]
            for part, piece in zip(parts, _split(arch, name, tensor, len(parts)), strict=True):
                found[f"{match[1]}{part}{match[3]}"] = piece
        else:
            found[name] = tensor
    return found


def _split(arch: Arch, name: str, tensor: Tensor, parts: int) -> tuple[Tensor, ...]:
    stage, block = (int(number) for number in re.findall(r"\d+", name)[:2])
    try:
        shape = arch.stages[stage].blocks[block]
    except IndexError:
        depths = [len(each.blocks) for each in arch.stages]
        refuse("the weights have a block that the architecture lacks", name, f"stages of {depths} blocks")
    widths = (shape.qk, shape.qk, shape.v)[-parts:]
    if len(tensor) != sum(widths):
        refuse(f"the weights {name!r} differ from the architecture's widths", len(tensor), sum(widths))
    return tensor.split(widths)
