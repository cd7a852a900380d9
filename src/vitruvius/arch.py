"""The architecture record: everything about a network but its weights, its class count and its image size.

`Arch` is plain data: frozen, hashable, validated when it is made, JSON in and out. What a family cannot express is
refused here, so that everything behind this file may trust what it is given.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, NoReturn, TypeAlias, get_args

__all__ = [
    "FAMILIES",
    "MOST",
    "RELATIVE_CLAMP",
    "Arch",
    "AttnScale",
    "Block",
    "Family",
    "ImageSize",
    "Patch",
    "Pool",
    "Positions",
    "Stage",
    "grids_of",
    "image_shape",
    "refuse",
    "require_choice",
    "require_keys",
    "require_list",
    "require_positive",
    "token_grids",
    "width_follows",
]

VERSION = 1
RELATIVE_CLAMP = 14
"""AutoFormer's relative positions tell distances apart up to 14 tokens; farther pairs share the last row."""

Mixer: TypeAlias = Literal["global", "window", "shifted", "local", "subsampled"]
Positions: TypeAlias = Literal["absolute", "relative", "absolute+relative", "bias", "conv"]
Pool: TypeAlias = Literal["token", "mean"]
AttnScale: TypeAlias = Literal["head", "embed"]
ImageSize: TypeAlias = int | tuple[int, int]

_WINDOWED = ("window", "shifted", "local")


def refuse(rule: str, value: object, allowed: object) -> NoReturn:
    """One line: the rule, the value, what is allowed."""
    raise ValueError(f"{rule}; got {value!r}; allowed: {allowed}")


MOST = 10**6
"""No width, depth or side is larger, so that costs fit into 64 bits."""


def require_positive(what: str, value: object) -> None:
    if type(value) is not int or not 1 <= value <= MOST:
        refuse(f"{what} must be a positive whole number", value, f"1, 2, 3, ..., {MOST:,}")


def require_choice(what: str, value: object, allowed: Iterable[object]) -> None:
    if value not in (known := tuple(allowed)):
        close = difflib.get_close_matches(str(value), [str(k) for k in known], n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        refuse(f"unknown {what}{hint}", value, ", ".join(map(str, known)))


def require_keys(what: str, data: object, required: Iterable[str], optional: Iterable[str] = ()) -> dict[str, Any]:
    """The mapping `data`, once its keys are known to be the required ones and at most the optional ones."""
    if not isinstance(data, Mapping):
        refuse(f"{what} must be a mapping", data, "keys " + ", ".join([*required, *optional]))
    known = [*required, *optional]
    for key in data:
        require_choice(f"key in {what}", key, known)
    for key in required:
        if key not in data:
            refuse(f"{what} needs the key {key!r}", sorted(map(str, data)), ", ".join(known))
    return dict(data)


def require_list(what: str, value: object) -> list[Any]:
    if not isinstance(value, list | tuple):
        refuse(f"{what} must be a list", value, "a list")
    return list(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One transformer block: a token mixer and an MLP, both residual.

    `qk` and `v` are the widths of the query (and of the key) and of the value, all heads together.
    """

    mixer: Mixer = "global"
    heads: int
    qk: int
    v: int
    mlp: int
    window: int | None = None
    reduction: int | None = None

    def __post_init__(self) -> None:
        require_choice("mixer", self.mixer, get_args(Mixer))
        for name in ("heads", "qk", "v", "mlp"):
            require_positive(f"block {name}", getattr(self, name))
        for name in ("qk", "v"):
            width = getattr(self, name)
            if width % self.heads:
                refuse(f"block {name} must be a multiple of its {self.heads} heads", width, f"{self.heads} x n")
        if self.mixer in _WINDOWED:
            require_positive(f"a {self.mixer} block's window", self.window)
            if self.mixer == "shifted" and self.window == 1:
                refuse("a window of 1 cannot shift", 1, "a window of 2 or more, or the mixer 'window'")
        elif self.window is not None:
            refuse(f"a {self.mixer} block has no window", self.window, "none")
        if self.mixer == "subsampled":
            require_positive("a subsampled block's reduction", self.reduction)
            if self.reduction == 1:
                refuse("a subsampled block with reduction 1 is a global block", 1, "2 or more, or the mixer 'global'")
        elif self.reduction is not None:
            refuse(f"a {self.mixer} block has no reduction", self.reduction, "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Blocks of one embedding width. A stage may be empty: every layer of it is the identity."""

    dim: int
    blocks: tuple[Block, ...]

    def __post_init__(self) -> None:
        require_positive("stage dim", self.dim)
        object.__setattr__(self, "blocks", tuple(require_list("a stage's blocks", self.blocks)))
        for block in self.blocks:
            if not isinstance(block, Block):
                refuse("a stage's blocks must be Block records", block, "Block")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """How pixels become tokens: a convolution of this size and stride, after `stem` 3x3 channels where stem > 0.

    The stem (ViT-ResNAS 2.4) is three 3x3 convolutions, the first with stride 2; `size` counts that stride in.
    """

    size: int
    stride: int = 0
    stem: int = 0

    def __post_init__(self) -> None:
        require_positive("patch size", self.size)
        if self.stride == 0:
            object.__setattr__(self, "stride", self.size)
        require_positive("patch stride", self.stride)
        if type(self.stem) is not int or self.stem < 0:
            refuse("patch stem must be a number of channels", self.stem, "0 (none) or more")
        if self.stride > self.size:
            refuse(f"a patch of {self.size} pixels cannot stride farther", self.stride, f"1 to {self.size}")
        if self.stem and (self.size % 2 or self.stride != self.size):
            refuse(
                "behind a stem the patch must be even and not overlap", (self.size, self.stride), "size = stride = 2n"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What a family of networks can express."""

    mixers: tuple[str, ...]
    positions: tuple[str, ...]
    pools: tuple[str, ...]
    class_token: tuple[bool, ...]
    stages: tuple[int, int]
    stem: bool = False
    overlap: bool = False
    widths: Literal["any", "growing", "multiples"] = "any"
    """How a stage's width may follow the width before it."""


FAMILIES: dict[str, Family] = {
    "vit": Family(
        mixers=("global",),
        positions=("absolute", "relative", "absolute+relative"),
        pools=("token", "mean"),
        class_token=(True, False),
        stages=(1, 1),
    ),
    "swin": Family(
        mixers=("window", "shifted"), positions=("bias",), pools=("mean",), class_token=(False,), stages=(1, 8)
    ),
    "twins": Family(
        mixers=("local", "subsampled", "global"),
        positions=("conv",),
        pools=("mean",),
        class_token=(False,),
        stages=(1, 8),
    ),
    # The main branch of a spatial reduction pads the width with zeros, so that widths can only grow.
    "resvit": Family(
        mixers=("global",),
        positions=("absolute",),
        pools=("token",),
        class_token=(True,),
        stages=(1, 8),
        stem=True,
        widths="growing",
    ),
    # Pooling is a depthwise convolution, so that each width is a multiple of the one before.
    "pit": Family(
        mixers=("global",),
        positions=("absolute",),
        pools=("token",),
        class_token=(True,),
        stages=(1, 8),
        overlap=True,
        widths="multiples",
    ),
}


def width_follows(family: str, before: int, after: int) -> bool:
    """Whether a stage of width `after` may follow one of width `before`."""
    match FAMILIES[family].widths:
        case "growing":
            return after >= before
        case "multiples":
            return after % before == 0
    return True


@dataclass(frozen=True, kw_only=True)
class Arch:
    """A network. Equal networks are equal records with equal `id`, whatever path led to them."""

    family: str
    patch: Patch
    stages: tuple[Stage, ...]
    positions: Positions
    class_token: bool
    pool: Pool
    attn_scale: AttnScale = "head"
    """Attention logits are divided by the root of qk / heads ("head") or of dim // heads ("embed": ViTAS v1 Eq. 3)."""
    norm_eps: float = 1e-6
    main_branch: bool = True
    """Of spatial reductions (family "resvit"): whether a pooled copy is added to them (ViT-ResNAS, Table 1)."""
    version: int = field(default=VERSION, compare=False)

    def __post_init__(self) -> None:
        if type(self.version) is not int or self.version != VERSION:
            refuse("unknown Arch format version", self.version, VERSION)
        require_choice("family", self.family, FAMILIES)
        rules = FAMILIES[self.family]
        if type(self.class_token) is not bool:
            refuse("class_token must be true or false", self.class_token, "true, false")
        for name, value, allowed in (
            ("positions", self.positions, rules.positions),
            ("pool", self.pool, rules.pools),
            ("class_token", self.class_token, rules.class_token),
        ):
            require_choice(f"{name} of family {self.family!r}", value, allowed)
        require_choice("attn_scale", self.attn_scale, get_args(AttnScale))
        if type(self.norm_eps) is not float or not 0 < self.norm_eps < 0.1:
            refuse("norm_eps must be a small positive number", self.norm_eps, "above 0, below 0.1")
        if self.pool == "token" and not self.class_token:
            refuse(
                "pooling by the class token needs a class token", self.class_token, "class_token=True or pool='mean'"
            )
        if type(self.main_branch) is not bool or not (self.main_branch or self.family == "resvit"):
            refuse("main_branch is true or false, and false only in family 'resvit'", self.main_branch, "true")
        self._check_patch(rules)
        self._check_stages(rules)
        if self.attn_scale == "embed" and all(
            stage.dim // block.heads == block.qk // block.heads for stage in self.stages for block in stage.blocks
        ):
            object.__setattr__(self, "attn_scale", "head")  # one network, one record
        if len(self.stages) == 1:
            object.__setattr__(self, "main_branch", True)  # there is no reduction

    def _check_patch(self, rules: Family) -> None:
        if not isinstance(self.patch, Patch):
            refuse("patch must be a Patch record", self.patch, "Patch")
        if self.patch.stem and not rules.stem:
            refuse(f"family {self.family!r} has no convolutional stem", self.patch.stem, 0)
        if self.patch.stride != self.patch.size and not rules.overlap:
            refuse(f"patches of family {self.family!r} do not overlap", self.patch.stride, self.patch.size)

    def _check_stages(self, rules: Family) -> None:
        object.__setattr__(self, "stages", tuple(require_list("stages", self.stages)))
        low, high = rules.stages
        if not low <= len(self.stages) <= high:
            refuse(f"family {self.family!r} has {low} to {high} stages", len(self.stages), f"{low}..{high}")
        for stage in self.stages:
            if not isinstance(stage, Stage):
                refuse("stages must be Stage records", stage, "Stage")
            for block in stage.blocks:
                require_choice(f"mixer of family {self.family!r}", block.mixer, rules.mixers)
                if self.attn_scale == "embed" and stage.dim < block.heads:
                    refuse("attn_scale 'embed' needs at least one channel a head", stage.dim, f"{block.heads} or more")
        for before, after in zip(self.stages, self.stages[1:], strict=False):
            if not width_follows(self.family, before.dim, after.dim):
                relation = {"growing": "not shrink below", "multiples": "be a multiple of"}[rules.widths]
                refuse(
                    f"in family {self.family!r} a stage's dim must {relation} the one before ({before.dim})",
                    after.dim,
                    f"{before.dim} x n" if rules.widths == "multiples" else f"{before.dim} or more",
                )
        if "relative" in self.positions and not self.depth:
            refuse("relative positions live in blocks, and there are none", self.positions, "'absolute', or a block")

    @property
    def depth(self) -> int:
        """The number of blocks."""
        return sum(len(stage.blocks) for stage in self.stages)

    @cached_property
    def id(self) -> str:
        """Short and stable: the family and 64 bits of the SHA-256 of the canonical JSON."""
        return f"{self.family}-{hashlib.sha256(self.to_json().encode()).hexdigest()[:16]}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, keys in a fixed order, unset fields of blocks left out."""
        return {
            "family": self.family,
            "version": self.version,
            "patch": _plain(self.patch),
            "positions": self.positions,
            "class_token": self.class_token,
            "pool": self.pool,
            "attn_scale": self.attn_scale,
            "norm_eps": self.norm_eps,
            **({} if self.main_branch else {"main_branch": False}),
            "stages": [{"dim": s.dim, "blocks": [_plain(b) for b in s.blocks]} for s in self.stages],
        }

    def to_json(self, indent: int | None = None) -> str:
        """The canonical JSON text (with `indent`, the same data for people)."""
        return json.dumps(self.to_dict(), indent=indent, separators=(",", ":") if indent is None else None)

    @classmethod
    def from_dict(cls, data: object) -> Arch:
        required = ("family", "version", "patch", "stages", "positions", "class_token", "pool")
        data = require_keys("an architecture", data, required, ("attn_scale", "norm_eps", "main_branch"))
        patch = Patch(**require_keys("a patch", data["patch"], ("size",), ("stride", "stem")))
        stages = tuple(
            _stage_from(f"stages[{i}]", stage) for i, stage in enumerate(require_list("stages", data["stages"]))
        )
        return cls(**{**data, "patch": patch, "stages": stages})

    @classmethod
    def from_json(cls, text: str) -> Arch:
        try:
            data = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:  # bad JSON, no text, too deep, too many digits
            raise ValueError(f"an architecture must be JSON text; {error}; allowed: what Arch.to_json writes") from None
        return cls.from_dict(data)


def _stage_from(where: str, data: object) -> Stage:
    stage = require_keys(where, data, ("dim", "blocks"))
    blocks = []
    for i, block in enumerate(require_list(f"{where}.blocks", stage["blocks"])):
        place = f"{where}.blocks[{i}]"
        block = require_keys(place, block, ("mixer", "heads", "qk", "v", "mlp"), ("window", "reduction"))
        try:
            blocks.append(Block(**block))
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
    return Stage(dim=stage["dim"], blocks=tuple(blocks))


def _plain(record: Block | Patch) -> dict[str, Any]:
    values = {f.name: getattr(record, f.name) for f in fields(record)}
    return {name: value for name, value in values.items() if value is not None}


def image_shape(img_size: ImageSize) -> tuple[int, int]:
    """Height and width in pixels."""
    shape = tuple(img_size) if isinstance(img_size, list | tuple) else (img_size, img_size)
    if len(shape) != 2 or any(type(side) is not int or not 1 <= side <= MOST for side in shape):
        refuse("an image size is one positive whole number, or a height and a width", img_size, "224, or (192, 256)")
    return shape


def token_grids(arch: Arch, img_size: ImageSize) -> list[tuple[int, int]]:
    """Height and width of each stage's token grid, or a ValueError where the family does not allow the image."""
    grids = grids_of(arch.family, arch.patch, len(arch.stages), img_size)
    for stage, grid in zip(arch.stages, grids, strict=True):
        for block in stage.blocks:
            if block.reduction is not None and block.reduction > min(grid):
                refuse(f"a reduction must fit the {grid[0]}x{grid[1]} token grid", block.reduction, f"2..{min(grid)}")
    return grids


def grids_of(family: str, patch: Patch, stages: int, img_size: ImageSize) -> list[tuple[int, int]]:
    """`token_grids`, from the parts of an architecture that decide it."""
    shape = image_shape(img_size)
    overlap = FAMILIES[family].overlap
    for side in shape:
        if side < patch.size or (side % patch.size and not overlap):
            allowed = f"{patch.size} or more" if overlap else f"multiples of {patch.size}"
            refuse(f"an image side must fit patches of {patch.size} pixels", side, allowed)
    grid = ((shape[0] - patch.size) // patch.stride + 1, (shape[1] - patch.size) // patch.stride + 1)
    grids = [grid]
    for stage in range(1, stages):
        if family in ("twins", "resvit") and (grid[0] % 2 or grid[1] % 2):
            step = patch.size * 2 ** (stages - 1)
            refuse(
                f"family {family!r} halves the token grid before stage {stage}, so its sides must be even",
                grid,
                f"image sides that are multiples of {step}",
            )
        grid = ((grid[0] + 1) // 2, (grid[1] + 1) // 2)
        grids.append(grid)
    return grids
