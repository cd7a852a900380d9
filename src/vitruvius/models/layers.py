"""What the families share: attention, blocks, stages.

Tokens travel as x_BNC with their grid (height, width) beside them; a class token, where there is one, stands first.

Every module declares in `axes`, once and beside its parameters, which channel axis each of their dimensions is (None:
the dimension never varies with a width), and in `follows` which parameters belong to a choice that is no width. Sharing
rules, extraction and masks read nothing else. Axes by name: "dim" and "before", the widths of the stage and of the one
before it; "qk", "v", "mlp", "heads", "qk_head", "v_head", of the block; "first" and "last", the widths of those stages;
"4 before", four times the one before, side by side; "offset", a table over the offsets inside a window.
Index tables and masks are buffers made from NumPy, so that they are real even where parameters are made on the meta
device (the superformer's skeletons).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
import torch.nn.functional as F
from timm.layers import drop_path
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vitruvius.arch import Arch, Block, Stage, refuse, require_choice

Grid = tuple[int, int]
Axes = dict[str, tuple[str | None, ...]]


def pair(name: str, *axes: str | None) -> Axes:
    """The axes of a layer's weight, and of its bias, which has the first of them."""
    return {f"{name}.weight": axes, f"{name}.bias": axes[:1]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drops:
    """Dropout rates, named as timm names them."""

    drop_rate: float = 0.0
    pos_drop_rate: float = 0.0
    proj_drop_rate: float = 0.0
    attn_drop_rate: float = 0.0
    drop_path_rate: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            rate = getattr(self, name)
            if not isinstance(rate, int | float) or not 0 <= rate < 1:
                refuse(f"{name} must be a probability", rate, "0 up to, but not including, 1")

    @classmethod
    def named(cls, rates: Mapping[str, float]) -> Drops:
        """The rates by name, once they are known to be names of rates."""
        for name in rates:
            require_choice("dropout rate or other option", name, cls.__slots__)
        return cls(**rates)


class Attention(nn.Module, ABC):
    """Queries, keys and values of their own widths; the families differ in who attends to whom."""

    axes: ClassVar[Axes] = {
        **pair("q", "qk", "dim"),
        **pair("k", "qk", "dim"),
        **pair("v", "v", "dim"),
        **pair("proj", "dim", "v"),
    }
    follows: ClassVar[dict[str, str]] = {}

    def __init__(self, dim: int, block: Block, scale: float, drops: Drops) -> None:
        super().__init__()
        self.heads = block.heads
        self.scale = scale
        self.q = nn.Linear(dim, block.qk)
        self.k = nn.Linear(dim, block.qk)
        self.v = nn.Linear(dim, block.v)
        self.proj = nn.Linear(block.v, dim)
        self.attn_drop = drops.attn_drop_rate
        self.proj_drop = drops.proj_drop_rate

    @abstractmethod
    def forward(self, x_BNC: Tensor, grid: Grid) -> Tensor: ...

    def split(self, x: Tensor) -> Tensor:
        """(..., N, heads * d) to (..., heads, N, d)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(-2, -3)

    def attend(self, q_BHND: Tensor, k_BHMD: Tensor, v_BHMD: Tensor, bias: Tensor | None = None) -> Tensor:
        drop = self.attn_drop if self.training else 0.0
        return F.scaled_dot_product_attention(q_BHND, k_BHMD, v_BHMD, attn_mask=bias, dropout_p=drop, scale=self.scale)

    def merge(self, x_BHND: Tensor) -> Tensor:
        """Heads together again, and the output projection."""
        x_BNHD = x_BHND.transpose(-2, -3)
        if torch.compiler.is_compiling():
            # A graph must not rely on how a fused kernel lays out its result, as a view of a single window's would.
            x_BNHD = x_BNHD.clone(memory_format=torch.contiguous_format)
        return F.dropout(self.proj(x_BNHD.flatten(-2)), self.proj_drop, self.training)


class GlobalAttention(Attention):
    """Every token attends to every token."""

    def forward(self, x_BNC: Tensor, grid: Grid) -> Tensor:
        q, k, v = (self.split(linear(x_BNC)) for linear in (self.q, self.k, self.v))
        return self.merge(self.attend(q, k, v))


class Mlp(nn.Module):
    """timm's MLP in fewer modules: dropouts are functions here, which halves the time that a skeleton takes."""

    def __init__(self, dim: int, hidden: int, drop: float) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)
        self.drop = drop

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(F.gelu(self.fc1(x)), self.drop, self.training)
        return F.dropout(self.fc2(x), self.drop, self.training)


class TransformerBlock(nn.Module):
    """Pre-norm attention and MLP, both residual."""

    axes: ClassVar[Axes] = {
        **pair("norm1", "dim"),
        **pair("norm2", "dim"),
        **pair("mlp.fc1", "mlp", "dim"),
        **pair("mlp.fc2", "dim", "mlp"),
    }
    follows: ClassVar[dict[str, str]] = {}

    def __init__(
        self, dim: int, block: Block, attention: Attention, drops: Drops, path_rate: float, eps: float
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=eps)
        self.attn = attention
        self.norm2 = nn.LayerNorm(dim, eps=eps)
        self.mlp = Mlp(dim, block.mlp, drops.proj_drop_rate)
        self.drop_path = path_rate

    def forward(self, x_BNC: Tensor, grid: Grid) -> Tensor:
        x_BNC = x_BNC + drop_path(self.attn(self.norm1(x_BNC), grid), self.drop_path, self.training)
        return x_BNC + drop_path(self.mlp(self.norm2(x_BNC)), self.drop_path, self.training)


class Downsample(nn.Module, ABC):
    """What stands before a stage's blocks and halves its token grid."""

    axes: ClassVar[Axes]
    follows: ClassVar[dict[str, str]] = {}

    @abstractmethod
    def forward(self, x_BNC: Tensor, grid: Grid) -> tuple[Tensor, Grid]: ...


class StageBlocks(nn.Module):
    """One stage: a downsampling (not the first stage) and its blocks."""

    axes: ClassVar[Axes] = pair("position", "dim", None, None, None)
    follows: ClassVar[dict[str, str]] = {}

    def __init__(
        self, blocks: list[TransformerBlock], downsample: Downsample | None, position: nn.Module | None
    ) -> None:
        super().__init__()
        self.downsample = downsample
        self.blocks = nn.ModuleList(blocks)
        self.position = position
        """Twins: a position convolution behind the first block."""
        self.grad_checkpointing = False

    def enter(self, x_BNC: Tensor, grid: Grid) -> tuple[Tensor, Grid]:
        return (x_BNC, grid) if self.downsample is None else self.downsample(x_BNC, grid)

    def run(self, index: int, x_BNC: Tensor, grid: Grid) -> Tensor:
        """Block `index`, and what follows it."""
        block = self.blocks[index]
        if self.grad_checkpointing and torch.is_grad_enabled():
            x_BNC = checkpoint(block, x_BNC, grid, use_reentrant=False)
        else:
            x_BNC = block(x_BNC, grid)
        return self.position(x_BNC, grid) if index == 0 and self.position is not None else x_BNC

    def forward(self, x_BNC: Tensor, grid: Grid) -> tuple[Tensor, Grid]:
        x_BNC, grid = self.enter(x_BNC, grid)
        for index in range(len(self.blocks)):
            x_BNC = self.run(index, x_BNC, grid)
        return x_BNC, grid


MakeAttention = Callable[[int, Block, float, Drops], Attention]


def attention_scale(arch: Arch, stage: Stage, block: Block) -> float:
    width = stage.dim if arch.attn_scale == "embed" else block.qk
    return (width // block.heads) ** -0.5


KEPT_BLOCKS: ContextVar[dict[object, TransformerBlock] | None] = ContextVar("KEPT_BLOCKS", default=None)
"""Where blocks of parameterless skeletons are kept, for a copy costs a tenth of making one; None keeps none."""


def make_blocks(arch: Arch, index: int, drops: Drops, attention: MakeAttention) -> list[TransformerBlock]:
    """The blocks of a stage; the drop path rate grows linearly over the whole network's depth."""
    stage = arch.stages[index]
    before = sum(len(earlier.blocks) for earlier in arch.stages[:index])
    step = drops.drop_path_rate / max(arch.depth - 1, 1)
    kept = KEPT_BLOCKS.get()

    def make(block: Block, rate: float) -> TransformerBlock:
        made = attention(stage.dim, block, attention_scale(arch, stage, block), drops)
        return TransformerBlock(stage.dim, block, made, drops, rate, arch.norm_eps)

    blocks = []
    for place, block in enumerate(stage.blocks):
        rate = step * (before + place)
        if kept is None:
            blocks.append(make(block, rate))
            continue
        key = (index, arch.patch, stage.dim, block, rate)
        if key not in kept:
            kept[key] = make(block, rate)
        blocks.append(shallow_copy(kept[key]))
    return blocks


def shallow_copy(module: TransformerBlock) -> TransformerBlock:
    """Modules of its own with the same parameters and buffers."""

    def copied(module: nn.Module) -> nn.Module:
        copy = module.__class__.__new__(module.__class__)
        # Dictionaries (parameters, buffers, hooks) are each module's own; what is in them may be shared.
        copy.__dict__.update({k: v.copy() if isinstance(v, dict) else v for k, v in module.__dict__.items()})
        copy.__dict__["_modules"] = {name: child and copied(child) for name, child in module._modules.items()}
        return copy

    copy = copied(module)
    assert isinstance(copy, TransformerBlock)
    return copy


def to_map(x_BNC: Tensor, grid: Grid) -> Tensor:
    """Patch tokens as a feature map (B, C, H, W)."""
    return x_BNC.transpose(1, 2).unflatten(2, grid)


def to_tokens(x_BCHW: Tensor) -> Tensor:
    return x_BCHW.flatten(2).transpose(1, 2)


def init_weights(module: nn.Module) -> None:
    """timm's ViT initialisation: linear layers from a normal of 0.02 cut at two units, biases zero."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


embedding = partial(nn.init.trunc_normal_, std=0.02)
"""How class tokens, position embeddings and relative tables start."""


@contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """Torch's generator at `seed` inside, and as it was afterwards; with None, nothing."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
