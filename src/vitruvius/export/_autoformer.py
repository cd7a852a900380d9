"""AutoFormer's released checkpoints in our names.

Facts of the released code, none of which its weights' shapes tell:

- A subnet takes the leading rows and columns of every tensor, and the leading blocks. Only q, k and v differ: rows of
  the fused weight take turns (row 0 is q's first, row 1 k's, row 2 v's, row 3 q's second), so that the leading 3n rows
  are n of each. The fused bias does not: its leading 3n entries are n of q, then n of k, then n of v. So the bias of v
  that a head count uses starts elsewhere for another head count.
- That of q is leading in any case, and that of k adds one number to all logits of a query, which the softmax forgets
  (the relative positions of keys see the query only). So private values (`private=("v",)`) with the ordinal rule make
  a superformer of ours that is theirs exactly, for every architecture.
- Networks that were retrained are saved in the largest network's shapes, of which they use a part: such a file needs
  its architecture beside it.
- The published AutoFormers pool patch tokens (`--gp`), and 14 is where relative distances are clamped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vitruvius import spaces
from vitruvius.arch import RELATIVE_CLAMP, Arch, Block, ImageSize, Patch, Stage, refuse
from vitruvius.models import Backbone, build
from vitruvius.spaces import Space
from vitruvius.superformer import Superformer

__all__ = ["Released", "is_autoformer"]

_NAMES = (
    (r"^patch_embed\.", "patch_embed_super.proj."),
    (r"^stages\.0\.", ""),
    (r"\.norm1\.", ".attn_layer_norm."),
    (r"\.norm2\.", ".ffn_layer_norm."),
    (r"\.mlp\.", "."),
    (r"\.relative_([kv])\.vertical_table$", r".rel_pos_embed_\1.embeddings_table_v"),
    (r"\.relative_([kv])\.horizontal_table$", r".rel_pos_embed_\1.embeddings_table_h"),
)
_QKV = re.compile(r"(.*\.attn\.)([qkv])\.(weight|bias)")
_LARGEST = {"autoformer-tiny": (256, 14), "autoformer-small": (448, 14), "autoformer-base": (640, 16)}
"""Width and depth of the released superformers. Their heads have 64 channels, their MLPs four times the width."""


def is_autoformer(weights: Mapping[str, Tensor]) -> bool:
    return "patch_embed_super.proj.weight" in weights


@dataclass(frozen=True)
class Released:
    """A checkpoint of the released code."""

    weights: Mapping[str, Tensor]

    def _of(self, name: str) -> Tensor:
        if name not in self.weights:
            refuse("an AutoFormer checkpoint lacks a tensor", f"{len(self.weights)} tensors", f"{name} among them")
        return self.weights[name]

    # -- what the shapes tell --------------------------------------------------------------------------------------

    @property
    def dim(self) -> int:
        return len(self._of("patch_embed_super.proj.weight"))

    @property
    def in_chans(self) -> int:
        return self._of("patch_embed_super.proj.weight").shape[1]

    @property
    def num_classes(self) -> int:
        return len(self.weights["head.weight"]) if "head.weight" in self.weights else 0

    @property
    def depth(self) -> int:
        found = {int(match[1]) for name in self.weights if (match := re.match(r"blocks\.(\d+)\.", name))}
        return len(found)

    @property
    def patch(self) -> int:
        return self._of("patch_embed_super.proj.weight").shape[2]

    @property
    def head_dim(self) -> int:
        table = self.weights.get("blocks.0.attn.rel_pos_embed_k.embeddings_table_v")
        return 64 if table is None else table.shape[1]

    @property
    def img_size(self) -> int | None:
        """The side of a square image, from its positions; None: there are none."""
        if "pos_embed" not in self.weights:
            return None
        return math.isqrt(self.weights["pos_embed"].shape[1] - 1) * self.patch

    def largest(self) -> Arch:
        """The network that uses all of the tensors."""
        relative = self.weights.get("blocks.0.attn.rel_pos_embed_k.embeddings_table_v")
        if relative is not None and len(relative) != 2 * RELATIVE_CLAMP + 2:
            refuse("relative positions are clamped at 14 tokens", f"tables of {len(relative)} rows", "30 rows")
        absolute = "pos_embed" in self.weights
        if relative is None and not absolute:
            refuse("an AutoFormer without positions cannot be expressed", "none", "absolute, relative, or both")
        blocks = []
        for index in range(self.depth):
            width, rest = divmod(len(self._of(f"blocks.{index}.attn.qkv.weight")), 3)
            if rest or width % self.head_dim:
                refuse(f"q, k and v of block {index} must be whole heads", 3 * width + rest, f"3 x {self.head_dim} x n")
            hidden = len(self._of(f"blocks.{index}.fc1.weight"))
            blocks.append(Block(heads=width // self.head_dim, qk=width, v=width, mlp=hidden))
        return Arch(
            family="vit",
            patch=Patch(size=self.patch),
            stages=(Stage(dim=self.dim, blocks=tuple(blocks)),),
            positions="relative" if not absolute else "absolute" if relative is None else "absolute+relative",
            class_token=True,
            pool="mean",
            norm_eps=1e-5,
        )

    def space(self) -> Space | None:
        """The released space that this is the superformer of, if its shapes are one's."""
        blocks = self.largest().stages[0].blocks
        for name, (dim, depth) in _LARGEST.items():
            shape = Block(heads=dim // 64, qk=dim, v=dim, mlp=4 * dim)
            if (self.dim, self.depth, self.head_dim) == (dim, depth, 64) and set(blocks) == {shape}:
                return spaces.load(name)
        return None

    # -- the weights -----------------------------------------------------------------------------------------------

    def tensor(self, name: str, heads: int) -> Tensor:
        """The tensor of our name, of the largest network; q, k and v as a block of so many heads takes them."""
        if match := _QKV.fullmatch(name):
            fused = self._of(_theirs(f"{match[1]}qkv.{match[3]}"))
            part, width = "qkv".index(match[2]), heads * self.head_dim
            if 3 * width > len(fused):
                refuse("the checkpoint's blocks have fewer heads", len(fused) // 3 // self.head_dim, f"{heads} or more")
            return fused[: 3 * width][part::3] if match[3] == "weight" else fused[part * width : (part + 1) * width]
        return self._of(_theirs(name))

    def _check(self, arch: Arch) -> None:
        """What leading rows and columns cannot tell apart."""
        own = self.largest()
        for key in ("family", "positions", "class_token", "patch"):
            if getattr(arch, key) != getattr(own, key):
                refuse(f"the checkpoint is of another {key}", getattr(arch, key), getattr(own, key))
        if len(arch.stages[0].blocks) > self.depth:
            refuse("the checkpoint has fewer blocks", len(arch.stages[0].blocks), f"at most {self.depth}")

    def network(self, arch: Arch, img_size: ImageSize) -> Backbone:
        """The network of an architecture, which may be a part of the largest."""
        self._check(arch)
        model = build(arch, num_classes=self.num_classes, img_size=img_size, in_chans=self.in_chans)
        assert isinstance(model, Backbone)
        made = {}
        for name, own in model.state_dict().items():
            match = re.match(r"stages\.0\.blocks\.(\d+)\.", name)
            heads = arch.stages[0].blocks[int(match[1])].heads if match else 1
            made[name] = self._leading(name, heads, own)
        model.load_state_dict(made)
        return model.eval()

    def superformer(self, space: Space, img_size: ImageSize) -> Superformer:
        """The superformer of a space that lies within the largest network."""
        self._check(space.largest)
        made = Superformer(
            space,
            sharing="ordinal",
            private=("v",),
            num_classes=self.num_classes,
            img_size=img_size,
            in_chans=self.in_chans,
            seed=0,
        )
        most = max(block.heads for block in space.largest.stages[0].blocks)
        with torch.no_grad():
            for stored, parameter in made.shared.items():
                name, _, heads = stored.replace("/", ".").partition("@heads=")
                name = name.partition("@")[0]  # a copy that a patch size must have
                parameter.copy_(self._leading(name, int(heads or most), parameter))
        return made.eval()

    def _leading(self, name: str, heads: int, own: Tensor) -> Tensor:
        """As much of a tensor as one of ours takes."""
        found = self.tensor(name, heads)
        whole = name == "pos_embed" or name.startswith("patch_embed.")
        fits = found.ndim == own.ndim and all(a >= b for a, b in zip(found.shape, own.shape, strict=True))
        if not fits or (whole and found.shape[1:-1] != own.shape[1:-1]):
            refuse(f"the checkpoint's {_theirs(name)} has no part of the shape needed", tuple(found.shape), own.shape)
        return found[tuple(slice(0, size) for size in own.shape)]


def _theirs(name: str) -> str:
    for ours, theirs in _NAMES:
        name = re.sub(ours, theirs, name)
    return name
