"""The parts that a network's time is the sum of, and the parts that a space's networks can have.

A part is a kind and a row of whole numbers. A block is two parts, its attention and its MLP, each with its norm and its
residual sum: they share nothing but the stage's width, so that a space with 4,000 different blocks has 500 parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from vitruvius.arch import Arch, Block, Patch, Stage, grids_of, image_shape, width_follows
from vitruvius.arrays import MIXERS, ArchArrays, IntArray, StageArrays
from vitruvius.costs.latency._setting import Setting
from vitruvius.spaces import Space

FIELDS: dict[str, tuple[str, ...]] = {
    "entry": ("size", "stride", "stem", "dim"),
    "between": ("high", "wide", "before", "after"),
    "attention": ("high", "wide", "dim", "mixer", "heads", "qk", "v", "window", "reduction"),
    "mlp": ("high", "wide", "dim", "mlp"),
    "position": ("high", "wide", "dim"),
    "exit": ("high", "wide", "dim"),
}
"""What decides each kind of part; "high" and "wide" are the sides of the token grid that it is given."""

Rows = dict[str, IntArray]


@dataclass(frozen=True, slots=True)
class Use:
    """Parts of one kind in n architectures: (m, F) rows, whose they are, and bytes that are held beside them.

    `held` counts channels of tokens: what the network keeps of earlier tokens while the part runs.
    """

    rows: IntArray
    owner: IntArray
    held: IntArray


def uses_of(arrays: ArchArrays, img_size: Any) -> dict[str, list[Use]]:
    """Every part of every architecture."""
    n, token = len(arrays.patch), int(arrays.class_token)
    grids = [grids_of(arrays.family, patch, len(arrays.stages), img_size) for patch in arrays.patches]
    sides = np.array(grids, dtype=np.int64).transpose(1, 2, 0)[:, :, arrays.patch]
    shapes = np.array([(p.size, p.stride, p.stem) for p in arrays.patches], dtype=np.int64)[arrays.patch]
    everyone, nothing = np.arange(n), np.zeros(n, dtype=np.int64)
    found: dict[str, list[Use]] = {kind: [] for kind in FIELDS}
    first = arrays.stages[0].dim
    found["entry"].append(Use(np.column_stack([shapes, first]), everyone, nothing))
    for s, stage in enumerate(arrays.stages):
        high, wide = sides[s]
        if s:
            before = arrays.stages[s - 1].dim
            rows = np.column_stack([*sides[s - 1], before, stage.dim])
            found["between"].append(Use(rows, everyone, nothing))
        held = nothing
        if s:  # the tokens that entered the stage live until it ends
            held = (sides[s - 1][0] * sides[s - 1][1] + token) * arrays.stages[s - 1].dim
        _add_blocks(found, arrays, stage, (high, wide), held, s > 0)
    last = arrays.stages[-1].dim
    found["exit"].append(Use(np.column_stack([*sides[-1], last]), everyone, nothing))
    return found


def _add_blocks(
    found: dict[str, list[Use]],
    arrays: ArchArrays,
    stage: StageArrays,
    grid: tuple[IntArray, IntArray],
    held: IntArray,
    entered: bool,
) -> None:
    owner, layer = np.nonzero(stage.active)
    tokens = (grid[0] * grid[1] + arrays.class_token) * stage.dim
    # The first stage's own tokens are what its first block works on; later blocks have tokens of their own.
    place = (np.cumsum(stage.active, axis=1) - 1)[owner, layer]
    beside = held[owner] if entered else np.where(place > 0, tokens[owner], 0)
    shared = (grid[0][owner], grid[1][owner], stage.dim[owner])
    columns = (getattr(stage, name)[owner, layer] for name in ("mixer", "heads", "qk", "v", "window", "reduction"))
    found["attention"].append(Use(np.column_stack([*shared, *columns]), owner, beside))
    found["mlp"].append(Use(np.column_stack([*shared, stage.mlp[owner, layer]]), owner, beside + tokens[owner]))
    if arrays.positions == "conv":
        some = np.flatnonzero(stage.active.any(axis=1))
        rows = np.column_stack([grid[0], grid[1], stage.dim])[some]
        found["position"].append(Use(rows, some, (held + tokens)[some]))


def parts_of_space(space: Space, img_size: Any) -> Rows:
    """Every part that a network of the space can have, once each, in order."""
    patches, stages = space.patches(), range(len(space.stages))
    grids = [grids_of(space.family, patch, len(space.stages), img_size) for patch in patches]
    found: dict[str, list[tuple[int, ...]]] = {kind: [] for kind in FIELDS}
    configs = len(space.layout.combinations(-1))
    dims = [
        space.stage_arrays(rows, s).dim.reshape(configs, -1) for s in stages for rows in [space.layout.full_rows(s)]
    ]
    for patch, grid in zip(patches, grids, strict=True):
        for dim in np.unique(dims[0]).tolist():
            found["entry"].append((patch.size, patch.stride, patch.stem, dim))
        for s in stages:
            choices = space.stage_choices(s)
            dim = choices["dim"]
            names = ("mixer", "heads", "qk", "v", "window", "reduction")
            attention = np.unique(np.column_stack([dim, *(choices[name] for name in names)]), axis=0)
            mlp = np.unique(np.column_stack([dim, choices["mlp"]]), axis=0)
            found["attention"] += [(*grid[s], *row) for row in attention.tolist()]
            found["mlp"] += [(*grid[s], *row) for row in mlp.tolist()]
            if space.positions == "conv":
                found["position"] += [(*grid[s], width) for width in np.unique(dim).tolist()]
            if s:
                for config in range(configs):
                    pairs = product(np.unique(dims[s - 1][config]).tolist(), np.unique(dims[s][config]).tolist())
                    follow = [(a, b) for a, b in pairs if width_follows(space.family, a, b)]
                    found["between"] += [(*grid[s - 1], a, b) for a, b in follow]
        for width in np.unique(dims[-1]).tolist():
            found["exit"].append((*grid[-1], width))
    return {
        kind: np.unique(np.array(rows, dtype=np.int64).reshape(-1, len(FIELDS[kind])), axis=0)
        for kind, rows in found.items()
    }


@dataclass(frozen=True, slots=True)
class Part:
    """One part as a workload: it is cut out of a network that has little else."""

    family: str
    positions: str
    class_token: bool
    pool: str
    kind: str
    row: tuple[int, ...]

    @property
    def name(self) -> str:
        kept = f"{self.family}/{self.positions}/{'token' if self.class_token else 'no token'}/{self.pool}"
        return f"part/{kept}/{self.kind}/{'-'.join(map(str, self.row))}"

    def _value(self, field: str) -> int:
        return self.row[FIELDS[self.kind].index(field)]

    def _arch(self) -> Arch:
        """Tokens of one pixel each, so that the image is the token grid; the entry has real patches."""
        patch = Patch(size=1)
        dims: tuple[int, ...]
        block: dict[str, Any] = {"heads": 1, "qk": 1, "v": 1, "mlp": 1}
        if self.kind == "entry":
            size, stride, stem, dim = self.row
            patch, dims = Patch(size=size, stride=stride, stem=stem), (dim,)
        elif self.kind == "between":
            dims = self.row[2:]
        else:
            dims = (self._value("dim"),)
        mixer = {"swin": "window", "twins": "local"}.get(self.family, "global")
        if self.kind == "attention":
            mixer = MIXERS[self._value("mixer")]
            block |= {name: self._value(name) for name in ("heads", "qk", "v")}
        elif self.kind == "mlp":
            block["mlp"] = self._value("mlp")
        window = self._value("window") if self.kind == "attention" else 1
        block["window"] = window if mixer in ("window", "shifted", "local") else None
        block["reduction"] = self._value("reduction") if mixer == "subsampled" else None
        one: Any = Block(mixer=mixer, **block)  # type: ignore[arg-type]
        fixed: Any = {"positions": self.positions, "pool": self.pool, "family": self.family}
        stages = tuple(Stage(dim=dim, blocks=(one,) if place == 0 else ()) for place, dim in enumerate(dims))
        return Arch(patch=patch, stages=stages, class_token=self.class_token, **fixed)

    def _image(self, setting: Setting) -> tuple[int, int]:
        return image_shape(setting.img_size) if self.kind == "entry" else (self.row[0], self.row[1])

    def shape(self, setting: Setting) -> tuple[int, ...]:
        high, wide = self._image(setting)
        if self.kind == "entry":
            return (setting.in_chans, high, wide)
        return (high * wide + self.class_token, self.row[2])

    def module(self, setting: Setting) -> Any:
        from torch import nn

        from vitruvius.models import build

        entry = self.kind == "entry"
        classes = setting.num_classes if self.kind == "exit" else 0
        image = self._image(setting)
        model: Any = build(
            self._arch(), num_classes=classes, img_size=image, in_chans=setting.in_chans if entry else 1, seed=0
        )
        kind, blocks = self.kind, model.stages[0].blocks

        class Cut(nn.Module):
            """Only what the part uses, so that only its parameters count."""

            def __init__(self) -> None:
                super().__init__()
                if kind == "entry":
                    model.stages, model.norm, model.head = nn.ModuleList(), nn.Identity(), nn.Identity()
                    self.model = model
                elif kind == "exit":
                    self.norm, self.head = model.norm, model.head
                elif kind == "between":
                    self.down = model.stages[1].downsample
                elif kind == "position":
                    self.position = model.stages[0].position
                else:
                    block = blocks[0]
                    self.norm = block.norm1 if kind == "attention" else block.norm2
                    self.inner = block.attn if kind == "attention" else block.mlp

            def forward(self, x: Any) -> Any:
                match kind:
                    case "entry":
                        return self.model.embed(x)
                    case "exit":
                        return self.head(model.pool(self.norm(x)))
                    case "between":
                        return self.down(x, image)[0]
                    case "position":
                        return self.position(x, image)
                    case "attention":
                        return x + self.inner(self.norm(x), image)
                return x + self.inner(self.norm(x))

        return Cut()
