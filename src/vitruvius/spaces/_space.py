"""A search space: a declaration, and what can be done with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from vitruvius.arch import FAMILIES, Arch, Block, Stage, grids_of, refuse, require_choice, token_grids, width_follows
from vitruvius.arrays import MIXERS, ArchArrays, IntArray, StageArrays
from vitruvius.spaces._declaration import Choices, Declaration, StageSpace, changed, dimension_names, mlp_width
from vitruvius.spaces._layout import NET, Layout
from vitruvius.spaces._yaml import declaration_from_dict, declaration_to_dict, read_yaml, write_yaml

if TYPE_CHECKING:
    from vitruvius.costs import Budget
    from vitruvius.spaces._budget import BudgetSampler

Path: TypeAlias = tuple[tuple[int, ...], ...]
"""For every stage, the layers of the superformer that the network's blocks use."""

_TRIES = 100


@lru_cache(maxsize=65536)
def _block(mixer: int, heads: int, qk: int, v: int, mlp: int, window: int, reduction: int) -> Block:
    name = MIXERS[mixer]
    return Block(
        mixer=cast("Any", name),
        heads=heads,
        qk=qk,
        v=v,
        mlp=mlp,
        window=window if name in ("window", "shifted", "local") else None,
        reduction=reduction if name == "subsampled" else None,
    )


@dataclass(frozen=True, kw_only=True)
class Space(Declaration):
    """A declared set of architectures, with sampling, variation, counting and encoding."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for patch in self.patches():
            grids_of(self.family, patch, len(self.stages), self.img_size)
        for arch in (self.smallest, self.largest):
            token_grids(arch, self.img_size)

    @cached_property
    def layout(self) -> Layout:
        return Layout(self)

    # -- between vectors and networks ------------------------------------------------------------------------------

    def arrays(self, vectors: IntArray) -> ArchArrays:
        """Encoded architectures (n, G) as the arrays that closed-form costs read."""
        return ArchArrays(
            family=self.family,
            class_token=self.class_token,
            positions=self.positions,
            patches=self.patches(),
            patch=self.layout.index(vectors, "patch"),
            stages=tuple(self.stage_arrays(vectors, s) for s in range(len(self.stages))),
        )

    def stage_arrays(self, vectors: IntArray, s: int) -> StageArrays:
        """One stage of encoded architectures."""
        stage, n = self.stages[s], len(vectors)
        stated = self.stated(stage)
        shape = (n, stage.layers)
        value = {name: self._values(vectors, s, name) for name in stated if name != "mixer"}
        if "dim" not in value:
            value["dim"] = value["heads"] * value["head_dim"]
        if "qk" not in value:
            if "qkv" not in value:
                value["qkv"] = value["heads"] * value["head_dim"] if "head_dim" in value else value["dim"]
            value["qk"] = value["v"] = value["qkv"]
        if "heads" not in value:
            value["heads"] = value["qkv"] // value["head_dim"]
        if "mlp" not in value:
            value["mlp"] = mlp_width(value["dim"], value["mlp_ratio"]).astype(np.int64)
        mixer = self._mixers(vectors, s)
        one = np.ones((1, 1), dtype=np.int64)
        windowed = (mixer > 0) & (mixer < MIXERS.index("subsampled"))
        return StageArrays(
            dim=np.broadcast_to(value["dim"], (n, 1))[:, 0],
            active=self.layout.active(vectors, s),
            mixer=np.broadcast_to(mixer, shape),
            window=np.broadcast_to(np.where(windowed, value.get("window", one), 1), shape),
            reduction=np.broadcast_to(
                np.where(mixer == MIXERS.index("subsampled"), value.get("reduction", one), 1), shape
            ),
            **{name: np.broadcast_to(value[name], shape) for name in ("heads", "qk", "v", "mlp")},
        )

    def _indices(self, vectors: IntArray, s: int, name: str) -> IntArray:
        """The chosen index of a parameter in a stage's layers: (n, L), or (n, 1) where the layers share it."""
        stage = self.stages[s]
        if name in stage.block:
            if len(stage.block[name]) == 1:
                return np.zeros((1, 1), dtype=np.int64)
            return vectors[:, [cast("int", self.layout.column(name, s, layer)) for layer in range(stage.layers)]]
        level = s if name in stage.stage or (name == "dim" and stage.dim) else NET
        return self.layout.index(vectors, name, level)[:, None]

    def _values(self, vectors: IntArray, s: int, name: str) -> NDArray[Any]:
        return np.array(self.stated(self.stages[s])[name])[self._indices(vectors, s, name)]

    def _mixers(self, vectors: IntArray, s: int) -> IntArray:
        """Codes of the mixers; "a+b" alternates, a first."""
        stage = self.stages[s]
        choices = self.stated(stage).get("mixer", ("global",))
        places = range(max(stage.layers, 1))
        parts = [choice.split("+") for choice in choices]
        codes = np.array([[MIXERS.index(part[place % len(part)]) for place in places] for part in parts])
        if len(choices) == 1:
            return codes[:1, : stage.layers]
        return codes[self._indices(vectors, s, "mixer"), np.arange(stage.layers)[None, :]]

    def decode_many(self, vectors: IntArray) -> list[Arch]:
        """The architectures of encoded vectors (n, G)."""
        arrays = self.arrays(self._as_vectors(vectors))
        stages = [self._decode_stage(stage) for stage in arrays.stages]
        return [
            Arch(
                family=self.family,
                patch=arrays.patches[patch],
                stages=tuple(stage[row] for stage in stages),
                positions=self.positions,
                class_token=self.class_token,
                pool=self.pool,
                attn_scale=self.attn_scale,
                norm_eps=self.norm_eps,
            )
            for row, patch in enumerate(arrays.patch.tolist())
        ]

    @staticmethod
    def _decode_stage(stage: StageArrays) -> list[Stage]:
        columns = (stage.mixer, stage.heads, stage.qk, stage.v, stage.mlp, stage.window, stage.reduction)
        table = np.stack(columns, axis=-1).tolist()
        return [
            Stage(dim=dim, blocks=tuple(_block(*block) for block, on in zip(row, active, strict=True) if on))
            for dim, row, active in zip(stage.dim.tolist(), table, stage.active.tolist(), strict=True)
        ]

    def decode(self, vector: IntArray) -> Arch:
        """The architecture of one encoded vector (G,)."""
        return self.decode_many(np.asarray(vector)[None])[0]

    def path_of(self, vector: IntArray) -> Path:
        """Which layers of the superformer the vector's blocks use."""
        rows = self._as_vectors(np.asarray(vector)[None])
        actives = (self.layout.active(rows, s)[0] for s in range(len(self.stages)))
        return tuple(tuple(np.flatnonzero(active).tolist()) for active in actives)

    def _as_vectors(self, vectors: IntArray) -> IntArray:
        vectors = np.asarray(vectors)
        if vectors.ndim != 2 or vectors.shape[1] != len(self.layout.genes) or vectors.dtype.kind not in "iu":
            refuse(
                f"encoded architectures of {self.name!r} are whole numbers of shape (n, {len(self.layout.genes)})",
                (vectors.dtype.name, vectors.shape),
                f"(n, {len(self.layout.genes)})",
            )
        if len(wrong := np.argwhere((vectors < 0) | (vectors >= self.layout.counts))):
            row, column = wrong[0].tolist()
            gene = self.layout.genes[column]
            refuse(f"{gene.name} is the index of a choice", int(vectors[row, column]), f"0..{len(gene.choices) - 1}")
        return vectors.astype(np.int64, copy=False)

    def encode(self, arch: Arch, path: Path | None = None) -> IntArray:
        """The vector of an architecture: of `path` where given, else of the first layers that can hold its blocks."""
        same = ("family", "class_token", "pool", "positions", "norm_eps")
        for name in same:
            if getattr(arch, name) != getattr(self, name):
                refuse(f"{name} differs from that of space {self.name!r}", getattr(arch, name), getattr(self, name))
        if len(arch.stages) != len(self.stages):
            refuse(f"space {self.name!r} has {len(self.stages)} stages", len(arch.stages), len(self.stages))
        path = path or tuple(self._first_path(s, len(stage.blocks)) for s, stage in enumerate(arch.stages))
        vector = np.zeros(len(self.layout.genes), dtype=np.int64)
        patches = self.patches()
        require_choice(f"patch of space {self.name!r}", arch.patch, patches)
        options: dict[int, set[int]] = {}

        def restrict(column: int | None, what: str, choices: Choices, fits: list[bool], value: object) -> None:
            kept = {i for i, fit in enumerate(fits) if fit}
            if column is not None and kept:
                kept = options[column] = options.get(column, kept) & kept
            if not kept:
                refuse(f"{what} is outside space {self.name!r}", value, ", ".join(map(str, choices)))

        restrict(self.layout.column("patch"), "patch", self.patch, [p == arch.patch for p in patches], arch.patch.size)
        for s, stage in enumerate(arch.stages):
            space, where = self.stages[s], f"stage{s + 1}"
            self._check_path(s, path[s], len(stage.blocks))
            if space.identity == "shifted":
                fits = [depth == len(stage.blocks) for depth in space.depth]
                restrict(self.layout.column("depth", s), f"{where}.depth", space.depth, fits, len(stage.blocks))
            for name, choices in self.stated(space).items():
                if name in space.block:
                    columns = [self.layout.column(name, s, layer) for layer in path[s]]
                else:
                    level = s if name in space.stage or (name == "dim" and space.dim) else NET
                    columns = [self.layout.column(name, level)] * (1 if name == "dim" else len(stage.blocks))
                for place, column in enumerate(columns):
                    block = stage.blocks[place] if name != "dim" else None
                    fits = [_fits(name, choice, stage.dim, block, place) for choice in choices]
                    value = stage.dim if block is None else _observed(name, stage.dim, block)
                    what = f"{where}.dim" if block is None else f"{where}.block{place + 1}.{name}"
                    restrict(column, what, choices, fits, value)
            for layer in path[s]:
                if (on := self.layout.column("on", s, layer)) is not None:
                    vector[on] = 1
        for column, kept in options.items():
            vector[column] = min(kept)
        if self.decode(vector) != arch:
            refuse(f"the architecture is outside space {self.name!r}", arch.id, f"what {self.name!r} decodes to")
        return vector

    def _first_path(self, s: int, blocks: int) -> tuple[int, ...]:
        """The path that keeps the layers that must stay, and of the others the first."""
        stage = self.stages[s]
        if stage.identity == "shifted":
            return tuple(range(blocks))
        skippable = stage.skippable or ()
        kept = [layer for layer in range(stage.layers) if layer not in skippable]
        return tuple(sorted(kept + list(skippable[: max(0, blocks - len(kept))])))

    def _check_path(self, s: int, path: Sequence[int], blocks: int) -> None:
        stage = self.stages[s]
        layers = set(path)
        must = set(range(stage.layers)) - set(stage.skippable or ()) if stage.identity == "anywhere" else set()
        if len(path) != blocks or list(path) != sorted(layers) or not must <= layers <= set(range(stage.layers)):
            low = len(must) if stage.identity == "anywhere" else stage.depth[0]
            refuse(f"stage{s + 1} cannot place {blocks} blocks on layers", tuple(path), f"{low}..{stage.layers} blocks")
        if stage.identity == "shifted" and tuple(path) != tuple(range(blocks)):
            refuse(f"stage{s + 1} shifts identities to the end", tuple(path), tuple(range(blocks)))

    def contains(self, arch: Arch) -> bool:
        try:
            self.encode(arch)
        except ValueError:
            return False
        return True

    # -- sampling and variation ------------------------------------------------------------------------------------

    def sample(self, rng: np.random.Generator, identity: float | None = None) -> Arch:
        """A random architecture: every choice uniform; see `sample_vectors` for `identity`."""
        return self.decode(self.sample_vectors(rng, 1, identity)[0])

    def sample_vectors(self, rng: np.random.Generator, n: int, identity: float | None = None) -> IntArray:
        """(n, G): n random vectors, every choice uniform among those that can follow each other.

        `identity` is the probability that a layer that may be skipped is (ViTAS v1, Section 4.3). Without it a number
        of blocks is drawn uniformly (identity "shifted"), or a layer is skipped with probability 1 / (mixers + 1)
        (identity "anywhere": the identity is one operation among the others).
        """
        if identity is not None and not 0 <= identity <= 1:
            refuse("the identity probability must be between 0 and 1", identity, "0..1")
        rows: list[IntArray] = []
        while (missing := n - sum(map(len, rows))) > 0:
            vectors = rng.integers(0, self.layout.counts, size=(missing, len(self.layout.counts)), dtype=np.int64)
            for s in range(len(self.stages)):
                self._draw_depth(rng, vectors, s, identity)
            rows.append(vectors[self.valid(vectors)])
        return self.layout.canonical(np.concatenate(rows)) if rows else self._no_vectors()

    def _no_vectors(self) -> IntArray:
        return np.zeros((0, len(self.layout.genes)), dtype=np.int64)

    def depth_weights(self, s: int, identity: float | None = None) -> NDArray[np.float64]:
        """With what probability a stage of identity "shifted" has each number of blocks."""
        depths = np.array(self.stages[s].depth)
        if identity is None:
            return np.full(len(depths), 1 / len(depths))
        from scipy.stats import binom

        weights = binom.pmf(depths[-1] - depths, depths[-1] - depths[0], identity)
        if not weights.sum():
            refuse(f"no depth of stage{s + 1} has this identity probability", identity, "another probability")
        return np.asarray(weights / weights.sum())

    def skip_weight(self, s: int, identity: float | None = None) -> float:
        """With what probability a skippable layer of identity "anywhere" is skipped."""
        return 1 / (len(self.stated(self.stages[s]).get("mixer", ("global",))) + 1) if identity is None else identity

    def _draw_depth(self, rng: np.random.Generator, vectors: IntArray, s: int, identity: float | None) -> None:
        stage = self.stages[s]
        if (column := self.layout.column("depth", s)) is not None and identity is not None:
            vectors[:, column] = rng.choice(len(stage.depth), size=len(vectors), p=self.depth_weights(s, identity))
        for layer in stage.skippable or ():
            on = cast("int", self.layout.column("on", s, layer))
            vectors[:, on] = rng.random(len(vectors)) >= self.skip_weight(s, identity)

    def valid(self, vectors: IntArray) -> NDArray[np.bool_]:
        """(n,): whether each stage's width may follow the one before."""
        if FAMILIES[self.family].widths == "any":
            return np.ones(len(vectors), dtype=bool)
        dims = [stage.dim for stage in self.arrays(vectors).stages]
        rule = np.greater_equal if FAMILIES[self.family].widths == "growing" else lambda after, before: after % before == 0
        checks = [rule(after, before) for before, after in zip(dims, dims[1:], strict=False)]
        return np.logical_and.reduce([np.ones(len(vectors), dtype=bool), *checks])

    def mutate(self, arch: Arch, rng: np.random.Generator, p: float) -> Arch:
        """Every choice drawn anew with probability p. Blocks that the parent lacks are drawn at random."""
        parent = self.encode(arch)
        used = self.layout.used(parent[None])[0]
        for _ in range(_TRIES):
            fresh = rng.integers(0, self.layout.counts)
            child = np.where(used & (rng.random(len(parent)) >= p), parent, fresh)
            if self.valid(child[None])[0]:
                return self.decode(self.layout.canonical(child[None])[0])
        return arch

    def crossover(self, a: Arch, b: Arch, rng: np.random.Generator) -> Arch:
        """Every choice from one parent or the other, evenly; a block that only one of them has comes from that one."""
        vector_a, vector_b = self.encode(a), self.encode(b)
        used_a, used_b = self.layout.used(np.stack([vector_a, vector_b]))
        for _ in range(_TRIES):
            from_a = rng.random(len(vector_a)) < 0.5
            child = np.where((from_a & used_a) | ~used_b, vector_a, vector_b)
            if self.valid(child[None])[0]:
                return self.decode(self.layout.canonical(child[None])[0])
        return a

    def neighbours(self, arch: Arch) -> Iterator[Arch]:
        """Every architecture one choice away; a block that is added is a copy of the one before it."""
        parent = self.encode(arch)
        used = self.layout.used(parent[None])[0]
        seen = {arch}
        for column, gene in enumerate(self.layout.genes):
            if not used[column]:
                continue
            for index in range(len(gene.choices)):
                child = parent.copy()
                child[column] = index
                self._copy_into_new_blocks(parent, child)
                if self.valid(child[None])[0]:
                    other = self.decode(self.layout.canonical(child[None])[0])
                    if other not in seen:
                        seen.add(other)
                        yield other

    def _copy_into_new_blocks(self, parent: IntArray, child: IntArray) -> None:
        for s, stage in enumerate(self.stages):
            before, after = self.layout.active(np.stack([parent, child]), s)
            for layer in np.flatnonzero(after & ~before).tolist():
                if (known := np.flatnonzero(after[:layer])).size:
                    for name in stage.block:
                        if (column := self.layout.column(name, s, layer)) is not None:
                            child[column] = child[cast("int", self.layout.column(name, s, int(known[-1])))]

    def sample_within(
        self, budget: Budget | str | Mapping[str, Any], rng: np.random.Generator, n: int | None = None, **options: Any
    ) -> Any:
        """One architecture (or with `n` a list) drawn by `sample` given that it lies within the budget, exactly.

        See `budget_sampler` for how, and for the options.
        """
        archs = self.decode_many(self.budget_sampler(budget, **options).vectors(rng, 1 if n is None else n))
        return archs[0] if n is None else archs

    def budget_sampler(self, budget: Budget | str | Mapping[str, Any], **options: Any) -> BudgetSampler:
        """The prepared sampler of a budget; preparing takes a second or so, and the last few are kept.

        Options: `img_size` (the space's), `num_classes` (1000), `in_chans` (3) and `identity` (see `sample_vectors`).
        """
        from vitruvius.costs import Budget
        from vitruvius.spaces._budget import prepared_sampler

        return prepared_sampler(self, Budget.of(budget), **options)

    # -- counting --------------------------------------------------------------------------------------------------

    @cached_property
    def size(self) -> int:
        """How many vectors there are: networks, counted once for every path that leads to them."""
        return self._count(distinct=False)

    @cached_property
    def networks(self) -> int:
        """How many different networks there are."""
        return self._count(distinct=True)

    def _count(self, distinct: bool) -> int:
        total = 0
        for net in product(*(range(len(choices)) for choices in self.net.values())):
            chosen = dict(zip(self.net, net, strict=True))
            reached: dict[int, int] = {}
            for s, stage in enumerate(self.stages):
                now: dict[int, int] = {}
                for dim, states in self._stage_widths(s, chosen).items():
                    follows = [ways for before, ways in reached.items() if width_follows(self.family, before, dim)]
                    now[dim] = states * _depths(stage, distinct) * (sum(follows) if s else 1)
                reached = now
            total += sum(reached.values())
        return total * len(self.patch)

    def _stage_widths(self, s: int, net: Mapping[str, int]) -> dict[int, int]:
        """For every width of a stage, how many choices of its own dimensions give it."""
        stage = self.stages[s]
        own = {**({"dim": stage.dim} if stage.dim else {}), **stage.stage}
        widths: dict[int, int] = {}
        for picks in product(*own.values()):
            value = {name: self.net[name][i] for name, i in net.items()} | dict(zip(own, picks, strict=True))
            dim = value["dim"] if "dim" in value else value["heads"] * value["head_dim"]
            widths[dim] = widths.get(dim, 0) + 1
        return widths

    @cached_property
    def largest(self) -> Arch:
        """The last choice everywhere; of the patches the smallest, which makes the most tokens."""
        vector = self.layout.counts - 1
        if (patch := self.layout.column("patch")) is not None:
            vector[patch] = 0
        return self.decode(vector)

    @cached_property
    def smallest(self) -> Arch:
        """The first choice everywhere; of the patches the largest."""
        vector = np.zeros(len(self.layout.genes), dtype=np.int64)
        if (patch := self.layout.column("patch")) is not None:
            vector[patch] = len(self.patch) - 1
        return self.decode(self.layout.canonical(vector[None])[0])

    # -- spaces as values ------------------------------------------------------------------------------------------

    @classmethod
    def from_dict(cls, data: object) -> Space:
        return cls(**declaration_from_dict(data))

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `from_dict` reads."""
        return declaration_to_dict(self)

    @classmethod
    def from_yaml(cls, source: str | FilePath) -> Space:
        """A space from a YAML file, or from YAML text of several lines (see `vitruvius.spaces._yaml`)."""
        return cls.from_dict(read_yaml(source))

    def to_yaml(self) -> str:
        return write_yaml(self.to_dict())

    @cached_property
    def dimensions(self) -> dict[str, Choices]:
        """Every dimension ("patch", "stage1.dim", "stage3.depth", ...) with its choices, those without a choice too."""
        return dict(dimension_names(self))

    def with_choices(self, dimension: str, choices: Sequence[Any]) -> Space:
        """The space with other choices in one dimension."""
        require_choice(f"dimension of space {self.name!r}", dimension, self.dimensions)
        if "." not in dimension:
            return replace(self, patch=choices) if dimension == "patch" else replace(self, net={**self.net, dimension: choices})
        where, name = dimension.split(".")
        stages = list(self.stages)
        stages[int(where[5:]) - 1] = changed(stages[int(where[5:]) - 1], name, tuple(choices))
        return replace(self, stages=tuple(stages))

    def moved(self, dimension: str, step: float) -> Space:
        """The space with every choice of one dimension moved by `step`; choices that fall to zero or below drop out."""
        require_choice(f"dimension of space {self.name!r}", dimension, self.dimensions)
        moved = [choice + step for choice in self.dimensions[dimension] if choice + step > 0]
        if not moved:
            refuse(f"no choice of {dimension} is left after a move", step, f"above {-self.dimensions[dimension][-1]}")
        return self.with_choices(dimension, moved)


def _depths(stage: StageSpace, distinct: bool) -> int:
    """In how many ways a stage can be filled with blocks."""
    kinds = 1
    for choices in stage.block.values():
        kinds *= len(choices)
    if stage.identity == "shifted":
        return sum(kinds**depth for depth in stage.depth)
    skippable = len(stage.skippable or ())
    kept = stage.layers - skippable
    if distinct:
        return int(sum(kinds**blocks for blocks in range(kept, stage.layers + 1)))
    return int(kinds**kept * (kinds + 1) ** skippable)


def _observed(name: str, dim: int, block: Block) -> Any:
    match name:
        case "head_dim":
            return block.qk // block.heads
        case "qkv":
            return block.qk if block.qk == block.v else (block.qk, block.v)
        case "mlp_ratio":
            return block.mlp / dim
    return getattr(block, name)


def _fits(name: str, choice: Any, dim: int, block: Block | None, place: int) -> bool:
    """Whether a choice of a parameter agrees with what the architecture has."""
    if block is None:
        return bool(choice == dim)
    match name:
        case "mixer":
            parts = choice.split("+")
            return bool(parts[place % len(parts)] == block.mixer)
        case "mlp_ratio":
            return bool(mlp_width(dim, choice) == block.mlp)
        case "window" | "reduction":  # they speak only of the mixers that have one
            return getattr(block, name) in (None, choice)
    return bool(_observed(name, dim, block) == choice)
