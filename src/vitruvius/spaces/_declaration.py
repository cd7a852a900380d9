"""What a space declares, and what a declaration must satisfy.

A parameter of blocks may be written on the whole space, on a stage, or on a stage's blocks. Where it is written is
where it is chosen: once for the network, once for the stage, or afresh for every block.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import product
from typing import Any, Literal, TypeAlias, get_args

from vitruvius.arch import (
    FAMILIES,
    MOST,
    AttnScale,
    ImageSize,
    Patch,
    Pool,
    Positions,
    grids_of,
    image_shape,
    refuse,
    require_choice,
    require_keys,
    require_list,
    require_positive,
)

Identity: TypeAlias = Literal["shifted", "anywhere"]
Choices: TypeAlias = tuple[Any, ...]

PARAMETERS = ("mixer", "heads", "head_dim", "qkv", "qk", "v", "mlp", "mlp_ratio", "window", "reduction")
_MOST_LAYERS = 1000
_WIDTHS = ({"heads", "head_dim"}, {"qkv", "head_dim"}, {"heads", "qkv"}, {"heads", "qk", "v"}, {"heads"})


def tenths(maximum: int) -> Choices:
    """{i/10} of a maximum, rounded (ViTAS: the ratios of every width)."""
    return tuple(round(maximum * i / 10) for i in range(1, 11))


def mlp_width(dim: Any, ratio: Any) -> Any:
    """floor(dim * ratio), safe against products such as 2.3 * 100 = 229.99999999999997; arrays too."""
    return (dim * ratio + 1e-6) // 1


def as_choices(what: str, value: Any) -> Choices:
    """One value or a list of them, as an ascending tuple without repeats (mixers keep their order)."""
    values = require_list(what, value) if isinstance(value, list | tuple | range) else [value]
    if isinstance(value, range):
        values = list(value)
    if not values:
        refuse(f"{what} needs at least one choice", values, "a value or a list of values")
    if len(set(map(str, values))) < len(values):
        refuse(f"{what} has a choice twice", values, "different values")
    return tuple(values) if isinstance(values[0], str) else tuple(sorted(values, key=_as_number(what)))


def _as_number(what: str) -> Any:
    def key(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            refuse(f"{what} must be numbers", value, "numbers")
        return float(value)

    return key


def _checked_parameters(where: str, parameters: object) -> dict[str, Choices]:
    known = {}
    for name, value in require_keys(where, parameters, (), PARAMETERS).items():
        choices = as_choices(f"{where} {name}", value)
        for choice in choices:
            if name == "mixer":
                for part in str(choice).split("+"):
                    require_choice("mixer", part, ("global", "window", "shifted", "local", "subsampled"))
            elif name == "mlp_ratio":
                if isinstance(choice, str | bool) or not 0 < choice <= MOST:
                    refuse(f"{where} mlp_ratio must be positive", choice, f"a number above 0, up to {MOST:,}")
            else:
                require_positive(f"{where} {name}", choice)
        known[name] = choices
    return known


@dataclass(frozen=True, kw_only=True)
class StageSpace:
    """What may vary in one stage.

    depth: the numbers of blocks it may have. With identity "shifted" (ViTAS v2) the blocks that are there are the
        first ones; with "anywhere" (v1) depth is the number of layers, and each one in `skippable` (all of them unless
        said otherwise, counted from 0) may be the identity on its own.
    """

    dim: Choices = ()
    depth: Choices
    identity: Identity = "shifted"
    skippable: Choices | None = None
    stage: Mapping[str, Choices] = field(default_factory=dict, hash=False)
    """Parameters chosen once for the stage."""
    block: Mapping[str, Choices] = field(default_factory=dict, hash=False)
    """Parameters chosen for every block."""

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        put("dim", () if self.dim == () else as_choices("stage dim", self.dim))
        for dim in self.dim:
            require_positive("stage dim", dim)
        put("depth", as_choices("stage depth", self.depth))
        for depth in self.depth:
            if type(depth) is not int or not 0 <= depth <= _MOST_LAYERS:
                refuse("a stage's depth must be a number of blocks", depth, f"0, 1, 2, ..., {_MOST_LAYERS:,}")
        require_choice("identity", self.identity, get_args(Identity))
        put("stage", _checked_parameters("a stage's", self.stage))
        put("block", _checked_parameters("a block's", self.block))
        if twice := sorted(set(self.stage) & set(self.block)):
            refuse("a parameter is written in one place", twice, "the stage or its blocks")
        self._check_identity(put)

    def _check_identity(self, put: Any) -> None:
        if self.identity == "shifted":
            if self.skippable is not None:
                refuse("skippable layers belong to identity 'anywhere'", self.skippable, "identity='anywhere'")
            return
        if len(self.depth) != 1 or self.depth[0] < 1:
            refuse("with identity 'anywhere' depth is the number of layers", self.depth, "one number, 1 or more")
        layers = range(self.depth[0])
        if self.skippable is not None:
            put("skippable", as_choices("skippable", self.skippable))
        for layer in self.skips:
            if type(layer) is not int or layer not in layers:
                refuse("a skippable layer must be one of the stage's", layer, f"0..{layers[-1]}")

    @property
    def layers(self) -> int:
        return int(self.depth[-1])

    @property
    def skips(self) -> tuple[int, ...]:
        """The layers that may be the identity on their own."""
        if self.identity == "shifted":
            return ()
        return tuple(range(self.layers)) if self.skippable is None else self.skippable


@dataclass(frozen=True, kw_only=True)
class Declaration(ABC):
    """A set of networks: what is fixed, what may vary and over which values. `Space` is its one kind."""

    name: str
    family: str
    stages: tuple[StageSpace, ...]
    patch: Choices
    stride: int | None = None
    stem: int = 0
    class_token: bool
    pool: Pool
    positions: Positions
    attn_scale: AttnScale = "head"
    norm_eps: float = 1e-6
    img_size: ImageSize = 224
    """The image size that the space is meant for, and that its costs are counted at unless said otherwise."""
    net: Mapping[str, Choices] = field(default_factory=dict, hash=False)
    """Parameters chosen once for the network; `dim` may stand here too."""
    source: str = ""
    """Which table of which paper this is."""

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        if not isinstance(self.name, str) or not self.name:
            refuse("a space needs a name", self.name, "a word")
        if not isinstance(self.source, str):
            refuse("a space's source must be text", self.source, "text")
        require_choice("family", self.family, FAMILIES)
        put("stages", tuple(require_list("stages", self.stages)))
        low, high = FAMILIES[self.family].stages
        if not low <= len(self.stages) <= high:
            refuse(f"family {self.family!r} has {low} to {high} stages", len(self.stages), f"{low}..{high}")
        put("patch", as_choices("patch", self.patch))
        image_shape(self.img_size)
        if isinstance(self.img_size, list):
            put("img_size", tuple(self.img_size))
        net = dict(require_keys("a space's net", self.net, (), ("dim", *PARAMETERS)))
        net_dim = {"dim": as_choices("net dim", net.pop("dim"))} if "dim" in net else {}
        put("net", {**net_dim, **_checked_parameters("a space's", net)})
        for index, stage in enumerate(self.stages):
            if not isinstance(stage, StageSpace):
                refuse("stages must be StageSpace declarations", stage, "StageSpace")
            self._check_stage(f"stage {index + 1} of space {self.name!r}", stage)

    def patches(self) -> tuple[Patch, ...]:
        return tuple(Patch(size=size, stride=self.stride or size, stem=self.stem) for size in self.patch)

    def stated(self, stage: StageSpace) -> dict[str, Choices]:
        """Every parameter of the stage's blocks with its choices, wherever it is written."""
        return {**self.net, **stage.stage, **stage.block, **({"dim": stage.dim} if stage.dim else {})}

    def _check_stage(self, where: str, stage: StageSpace) -> None:
        for name in (*stage.stage, *stage.block, *(("dim",) if stage.dim else ())):
            if name in self.net:
                refuse(f"{where}: {name} is written on the whole space already", name, "one place")
        stated = self.stated(stage)
        widths = {name for name in ("heads", "head_dim", "qkv", "qk", "v") if name in stated}
        if widths not in _WIDTHS:
            allowed = "; ".join(" + ".join(sorted(group)) for group in _WIDTHS)
            refuse(f"{where}: heads and widths must be given in one of these ways", sorted(widths), allowed)
        if ("mlp" in stated) == ("mlp_ratio" in stated):
            refuse(f"{where}: give the MLP by width or by ratio", sorted(stated), "mlp, or mlp_ratio")
        if "dim" not in stated and ({"heads", "head_dim"} & set(stage.block) or widths != {"heads", "head_dim"}):
            refuse(f"{where} has no dim", sorted(stated), "dim, or heads and head_dim chosen for the whole stage")
        if "dim" not in stated and stage.depth[0] == 0:
            refuse(f"{where}: a dim that follows from heads needs a block", stage.depth, "depths of 1 or more")
        if stage.identity == "anywhere" and any("+" in mixer for mixer in stated.get("mixer", ())):
            refuse(f"{where}: mixers that alternate need identity 'shifted'", stated["mixer"], "identity='shifted'")
        if self._may_be_empty(stage) and any(
            len(choices) > 1 for choices in (*stage.stage.values(), *self._net_of_blocks())
        ):
            refuse(
                f"{where}: what is chosen once for a stage's blocks needs a stage with blocks", stage.depth, "depth 1+"
            )
        self._check_combinations(where, stated)

    def _net_of_blocks(self) -> list[Choices]:
        return [choices for name, choices in self.net.items() if name != "dim"]

    @staticmethod
    def _may_be_empty(stage: StageSpace) -> bool:
        return stage.depth[0] == 0 or len(stage.skips) == stage.layers

    def _check_combinations(self, where: str, stated: Mapping[str, Choices]) -> None:
        """Every combination must be a valid block, and no two the same one."""
        self._check_widths(where, stated)
        dims = stated.get("dim") or tuple({h * d for h, d in product(stated["heads"], stated["head_dim"])})
        for dim in dims:
            hidden = [mlp_width(dim, ratio) for ratio in stated.get("mlp_ratio", ())]
            if len(set(hidden)) < len(hidden) or 0 in hidden:
                refuse(
                    f"{where}: MLP ratios must be different widths at dim {dim}", stated["mlp_ratio"], "other ratios"
                )
        most = max(stated.get("heads") or [q // d for q, d in product(stated["qkv"], stated["head_dim"])])
        if self.attn_scale == "embed" and min(dims) < most:
            refuse(f"{where}: attn_scale 'embed' needs a channel a head at the least", min(dims), f"{most} or more")
        self._check_mixers(where, stated)

    def _check_widths(self, where: str, stated: Mapping[str, Choices]) -> None:
        """Widths must be multiples of heads, or of a head's width."""
        for name, unit in (("qkv", "heads"), ("qkv", "head_dim"), ("qk", "heads"), ("v", "heads")):
            for width, part in product(stated.get(name, ()), stated.get(unit, ())):
                if width % part:
                    refuse(f"{where}: every {name} must be a multiple of every {unit}", width, f"{part} x n")
        if not {"head_dim", "qkv", "qk"} & set(stated):
            for dim, heads in product(stated["dim"], stated["heads"]):
                if dim % heads:
                    refuse(f"{where}: without qkv, every dim must be a multiple of heads", dim, f"{heads} x n")

    def _check_mixers(self, where: str, stated: Mapping[str, Choices]) -> None:
        choices = stated.get("mixer", ("global",))
        if len(choices) > 1 and any("+" in choice for choice in choices):
            refuse(f"{where}: mixers that alternate stand alone", choices, "one 'a+b', or mixers without '+'")
        mixers = {part for name in choices for part in name.split("+")}
        for mixer in sorted(mixers):
            require_choice(f"mixer of family {self.family!r} ({where})", mixer, FAMILIES[self.family].mixers)
        windowed, subsampled = mixers & {"window", "shifted", "local"}, mixers & {"subsampled"}
        for name, having in (("window", windowed), ("reduction", subsampled)):
            if not having and name in stated:
                refuse(f"{where}: no mixer has a {name}", sorted(mixers), f"no {name}")
            if having and name not in stated:
                refuse(f"{where}: mixer {min(having)!r} needs a {name}", sorted(stated), f"{name}: 4, say")
            if len(stated.get(name, ())) > 1 and mixers != having:
                refuse(f"{where}: {name} can vary only where every mixer has one", sorted(mixers), sorted(having))
        if "shifted" in mixers and min(stated["window"]) < 2:
            refuse(f"{where}: a window of 1 cannot shift", stated["window"], "windows of 2 or more")
        if subsampled and min(stated["reduction"]) < 2:
            refuse(f"{where}: a reduction of 1 is the mixer 'global'", stated["reduction"], "reductions of 2 or more")

    def _check_grids(self) -> None:
        """Every patch must fit the image, and every reduction the token grid."""
        for patch in self.patches():
            grids = grids_of(self.family, patch, len(self.stages), self.img_size)
            for index, (stage, grid) in enumerate(zip(self.stages, grids, strict=True), start=1):
                stated = self.stated(stage)
                most = max(stated.get("reduction", (1,))) if "subsampled" in stated.get("mixer", ()) else 1
                if most > min(grid) and stage.layers:
                    refuse(f"stage {index}: a reduction must fit the {grid[0]}x{grid[1]} token grid", most, min(grid))


def changed(stage: StageSpace, name: str, choices: Choices) -> StageSpace:
    """The stage with other choices for one of its own parameters."""
    values: dict[str, Any] = {f.name: getattr(stage, f.name) for f in fields(stage)}
    for level in ("stage", "block"):
        if name in values[level]:
            values[level] = {**values[level], name: choices}
            return StageSpace(**values)
    values[name] = choices
    return StageSpace(**values)


def dimension_names(declaration: Declaration) -> Iterator[tuple[str, Choices]]:
    """Every dimension of the space, "patch", "mlp_ratio", "stage1.dim" and so on, with its choices."""
    yield "patch", declaration.patch
    yield from declaration.net.items()
    for index, stage in enumerate(declaration.stages, start=1):
        own: Iterable[tuple[str, Choices]] = (
            ("dim", stage.dim),
            ("depth", stage.depth),
            *stage.stage.items(),
            *stage.block.items(),
        )
        for name, choices in own:
            if choices:
                yield f"stage{index}.{name}", choices
