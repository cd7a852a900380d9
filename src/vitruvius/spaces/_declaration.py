"""What a space declares, and what a declaration must satisfy.

A parameter of blocks may be written on the whole space, on a stage, or on a stage's blocks. Where it is written is
where it is chosen: once for the network, once for the stage, or afresh for every block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import product
from typing import Any, Literal, TypeAlias, get_args

from vitruvius.arch import (
    FAMILIES,
    AttnScale,
    ImageSize,
    Patch,
    Pool,
    Positions,
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
_WIDTHS = ({"heads", "head_dim"}, {"qkv", "head_dim"}, {"heads", "qkv"}, {"heads", "qk", "v"}, {"heads"})
_PATCH_FIELDS = ("stride", "stem")


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
                if isinstance(choice, str | bool) or choice <= 0:
                    refuse(f"{where} mlp_ratio must be positive", choice, "above 0")
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
            if type(depth) is not int or depth < 0:
                refuse("a stage's depth must be a number of blocks", depth, "0, 1, 2, ...")
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
            put("skippable", ())
            return
        if len(self.depth) != 1 or self.depth[0] < 1:
            refuse("with identity 'anywhere' depth is the number of layers", self.depth, "one number, 1 or more")
        layers = range(self.depth[0])
        put("skippable", tuple(layers) if self.skippable is None else as_choices("skippable", self.skippable))
        for layer in self.skippable or ():
            if layer not in layers:
                refuse("a skippable layer must be one of the stage's", layer, f"0..{layers[-1]}")

    @property
    def layers(self) -> int:
        return int(self.depth[-1])


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """A set of networks: what is fixed, what may vary and over which values."""

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
        return stage.depth[0] == 0 or len(stage.skippable or ()) == stage.layers

    def _check_combinations(self, where: str, stated: Mapping[str, Choices]) -> None:
        """Every combination must be a valid block, and no two the same one."""
        for qkv, heads in product(stated.get("qkv", ()), stated.get("heads", ())):
            if qkv % heads:
                refuse(f"{where}: every qkv must be a multiple of every number of heads", (qkv, heads), f"{heads} x n")
        for qkv, head_dim in product(stated.get("qkv", ()), stated.get("head_dim", ())):
            if qkv % head_dim:
                refuse(f"{where}: every qkv must be a multiple of head_dim", qkv, f"{head_dim} x n")
        for name, heads in product(("qk", "v"), stated["heads"] if "qk" in stated else ()):
            for width in stated[name]:
                if width % heads:
                    refuse(f"{where}: every {name} must be a multiple of every number of heads", width, f"{heads} x n")
        if {"heads", "head_dim", "qkv", "qk", "v"} & set(stated) == {"heads"}:
            for dim, heads in product(stated["dim"], stated["heads"]):
                if dim % heads:
                    refuse(f"{where}: without qkv, every dim must be a multiple of heads", (dim, heads), f"{heads} x n")
        for dim in stated.get("dim", ()):
            hidden = [mlp_width(dim, ratio) for ratio in stated.get("mlp_ratio", ())]
            if len(set(hidden)) < len(hidden) or 0 in hidden:
                refuse(f"{where}: two MLP ratios are one width at dim {dim}", stated["mlp_ratio"], "different widths")
        mixers = {part for name in stated.get("mixer", ("global",)) for part in name.split("+")}
        for name, having in (("window", {"window", "shifted", "local"}), ("reduction", {"subsampled"})):
            if len(stated.get(name, ())) > 1 and not mixers <= having:
                refuse(
                    f"{where}: {name} can vary only where every mixer has one",
                    sorted(mixers),
                    ", ".join(sorted(having)),
                )
        for mixer in (part for name in stated.get("mixer", ("global",)) for part in name.split("+")):
            require_choice(f"mixer of family {self.family!r} ({where})", mixer, FAMILIES[self.family].mixers)
            if mixer in ("window", "shifted", "local") and "window" not in stated:
                refuse(f"{where}: mixer {mixer!r} needs a window", sorted(stated), "window: 7, say")
            if mixer == "subsampled" and "reduction" not in stated:
                refuse(f"{where}: mixer 'subsampled' needs a reduction", sorted(stated), "reduction: 4, say")


def changed(stage: StageSpace, name: str, choices: Choices) -> StageSpace:
    """The stage with other choices for one of its own parameters."""
    values: dict[str, Any] = {f.name: getattr(stage, f.name) for f in fields(stage)}
    if stage.identity == "shifted":
        values["skippable"] = None
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
