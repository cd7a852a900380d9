"""A search space: a declaration, and what can be done with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path as FilePath
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from vitruvius.arch import FAMILIES, Arch, Block, ImageSize, Stage, image_shape, refuse, require_choice, token_grids
from vitruvius.arrays import MIXERS, ArchArrays, IntArray, StageArrays
from vitruvius.costs import COUNTED, Budget, check_counting
from vitruvius.spaces._budget import BudgetSampler, prepared_sampler, require_count
from vitruvius.spaces._count import count
from vitruvius.spaces._declaration import Choices, Declaration, changed, dimension_names, mlp_width
from vitruvius.spaces._encode import Path, encode
from vitruvius.spaces._ends import chained_end
from vitruvius.spaces._layout import NET, Layout
from vitruvius.spaces._mean import MeanCost, identity_for
from vitruvius.spaces._parts import CostParts, Counting
from vitruvius.spaces._yaml import declaration_from_dict, declaration_to_dict, read_yaml, write_yaml

_TRIES = 100
_BLOCK_COLUMNS = ("mixer", "heads", "qk", "v", "mlp", "window", "reduction")


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
        self._check_grids()
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

    def stage_choices(self, s: int) -> dict[str, IntArray]:
        """Every block that stage s may have, in every width of the stage: one row each of dim, mixer, heads, qk, ..."""
        rows, found = self.layout.full_rows(s), []
        for option in self.layout.block_options(s):
            stage = self.stage_arrays(self.layout.fill(rows, s, option), s)
            dim = np.broadcast_to(stage.dim[:, None], stage.heads.shape)
            columns = (dim, *(getattr(stage, name) for name in _BLOCK_COLUMNS))
            found.append(np.stack(columns, axis=-1).reshape(-1, len(columns)))
        table = np.unique(np.concatenate(found), axis=0)
        return {name: table[:, i] for i, name in enumerate(("dim", *_BLOCK_COLUMNS))}

    def decoded_stages(self, vectors: IntArray, s: int) -> list[Stage]:
        """Stage s of encoded architectures, whatever the widths of the others."""
        return self._decode_stage(self.stage_arrays(vectors, s))

    def decode_many(self, vectors: IntArray) -> list[Arch]:
        """The architectures of encoded vectors (n, G)."""
        arrays = self.arrays(self.checked(vectors))
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
        table = np.stack([getattr(stage, name) for name in _BLOCK_COLUMNS], axis=-1).tolist()
        return [
            Stage(dim=dim, blocks=tuple(_block(*block) for block, on in zip(row, active, strict=True) if on))
            for dim, row, active in zip(stage.dim.tolist(), table, stage.active.tolist(), strict=True)
        ]

    def decode(self, vector: IntArray) -> Arch:
        """The architecture of one encoded vector (G,)."""
        return self.decode_many(np.asarray(vector)[None])[0]

    def path_of(self, vector: IntArray) -> Path:
        """Which layers of the superformer the vector's blocks use."""
        rows = self.checked(np.asarray(vector)[None])
        actives = (self.layout.active(rows, s)[0] for s in range(len(self.stages)))
        return tuple(tuple(np.flatnonzero(active).tolist()) for active in actives)

    def checked(self, vectors: IntArray) -> IntArray:
        """Encoded architectures (n, G), once they are known to be indices of choices."""
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
        vectors = vectors.astype(np.int64, copy=False)
        if not self.valid(vectors).all():
            refuse(f"stages of space {self.name!r} must be able to follow each other", "others", "see Space.valid")
        return vectors

    def encode(self, arch: Arch, path: Path | None = None) -> IntArray:
        """The vector of an architecture: of `path` where given, else of the first layers that can hold its blocks."""
        if not isinstance(arch, Arch):
            refuse("only an Arch can be encoded", type(arch).__name__, "Arch")
        return encode(self, arch, path)

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

    def sample_vectors(
        self, rng: np.random.Generator, n: int, identity: float | None = None, least: IntArray | None = None
    ) -> IntArray:
        """(n, G): n random vectors, every choice uniform among those that can follow each other.

        `identity` is the probability that a layer that may be skipped is (ViTAS v1, Section 4.3). Without it a number
        of blocks is drawn uniformly (identity "shifted"), or a layer is skipped with probability 1 / (mixers + 1)
        (identity "anywhere": the identity is one operation among the others).

        With `least` (G,) only the choices from these indices on are drawn.
        """
        _check_probability("the identity probability", identity)
        require_count(n)
        rows: list[IntArray] = []
        while (missing := n - sum(map(len, rows))) > 0:
            size = (missing, len(self.layout.counts))
            vectors = rng.integers(0 if least is None else least, self.layout.counts, size=size, dtype=np.int64)
            for s in range(len(self.stages)):
                self._draw_depth(rng, vectors, s, identity)
            if least is not None:
                vectors = np.maximum(vectors, least)
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
        for layer in stage.skips:
            on = cast("int", self.layout.column("on", s, layer))
            vectors[:, on] = rng.random(len(vectors)) >= self.skip_weight(s, identity)

    def valid(self, vectors: IntArray) -> NDArray[np.bool_]:
        """(n,): whether each stage's width may follow the one before."""
        if FAMILIES[self.family].widths == "any":
            return np.ones(len(vectors), dtype=bool)
        dims = [stage.dim for stage in self.arrays(vectors).stages]
        growing = FAMILIES[self.family].widths == "growing"
        checks = [after >= before if growing else after % before == 0 for before, after in pairwise(dims)]
        return np.asarray(np.logical_and.reduce([np.ones(len(vectors), dtype=bool), *checks]))

    def mutate(self, arch: Arch, rng: np.random.Generator, p: float) -> Arch:
        """Every choice drawn anew with probability p. Blocks that the parent lacks are drawn at random."""
        _check_probability("the mutation probability", p)
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

    def budget_sampler(
        self,
        budget: Budget | str | Mapping[str, Any],
        *,
        img_size: ImageSize | None = None,
        num_classes: int = 1000,
        in_chans: int = 3,
        identity: float | None = None,
    ) -> BudgetSampler:
        """The prepared sampler of a budget; preparing takes a second or so, and the last two are kept.

        img_size: the space's own unless said otherwise; identity: see `sample_vectors`.
        """
        _check_probability("the identity probability", identity)
        counted = Budget.of(budget).only_counted("sampling within a budget")
        return prepared_sampler(self, counted, self._counting(img_size, num_classes, in_chans), identity)

    def _counting(self, img_size: ImageSize | None, num_classes: int, in_chans: int) -> Counting:
        check_counting(num_classes, in_chans)
        return Counting(image_shape(self.img_size if img_size is None else img_size), num_classes, in_chans)

    def cost_range(
        self, metric: str, *, img_size: ImageSize | None = None, num_classes: int = 1000, in_chans: int = 3
    ) -> tuple[int, int]:
        """The least and the most "params" or "macs" that a network of the space has, exactly."""
        require_choice("metric", metric, COUNTED)
        least, most = CostParts(self, self._counting(img_size, num_classes, in_chans)).extremes(metric)
        return int(least), int(most)

    def mean_cost(
        self,
        metric: str,
        identity: float | None = None,
        *,
        img_size: ImageSize | None = None,
        num_classes: int = 1000,
        in_chans: int = 3,
    ) -> float:
        """The mean "params" or "macs" of the networks that `sample` draws, exactly."""
        require_choice("metric", metric, COUNTED)
        return MeanCost(self, metric, self._counting(img_size, num_classes, in_chans))(identity)

    def identity_for(
        self,
        budget: Budget | str | Mapping[str, Any],
        *,
        img_size: ImageSize | None = None,
        num_classes: int = 1000,
        in_chans: int = 3,
    ) -> float:
        """The identity probability with which sampled networks cost, in the mean, what the budget says.

        Of a window it is the middle, of an open one the end (ViTAS v1, Section 4.3).
        """
        counted = Budget.of(budget).only_counted("budget-aligned sampling")
        return identity_for(self, counted, self._counting(img_size, num_classes, in_chans))

    # -- counting --------------------------------------------------------------------------------------------------

    @cached_property
    def size(self) -> int:
        """How many vectors there are: networks, counted once for every path that leads to them."""
        return count(self, distinct=False)

    @cached_property
    def networks(self) -> int:
        """How many different networks there are."""
        return count(self, distinct=True)

    @cached_property
    def largest(self) -> Arch:
        """The last choice everywhere (of the patches the smallest, which makes the most tokens).

        Where stages cannot follow each other so, the widest that can.
        """
        return self._end(last=True)

    @cached_property
    def smallest(self) -> Arch:
        """The first choice everywhere (of the patches the largest); where stages cannot follow so, the narrowest."""
        return self._end(last=False)

    def _end(self, last: bool) -> Arch:
        vector = self.layout.counts - 1 if last else np.zeros(len(self.layout.genes), dtype=np.int64)
        if (patch := self.layout.column("patch")) is not None:
            vector[patch] = 0 if last else len(self.patch) - 1
        if not self.valid(vector[None])[0]:
            vector = chained_end(self, vector, last)
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
            own = (
                {"patch": tuple(choices)} if dimension == "patch" else {"net": {**self.net, dimension: tuple(choices)}}
            )
            return replace(self, **own)
        where, name = dimension.split(".")
        stages = list(self.stages)
        stages[int(where[5:]) - 1] = changed(stages[int(where[5:]) - 1], name, tuple(choices))
        return replace(self, stages=tuple(stages))

    def moved(self, dimension: str, step: float) -> Space:
        """The space with every choice of one dimension moved by `step`; choices that fall to zero or below drop out."""
        require_choice(f"dimension of space {self.name!r}", dimension, self.dimensions)
        if isinstance(self.dimensions[dimension][0], str):
            refuse("only a dimension of numbers can be moved", dimension, "widths, depths, ratios, windows, ...")
        moved = [choice + step for choice in self.dimensions[dimension] if choice + step > 0]
        if not moved:
            refuse(f"no choice of {dimension} is left after a move", step, f"above {-self.dimensions[dimension][-1]}")
        return self.with_choices(dimension, moved)


def _check_probability(what: str, value: float | None) -> None:
    if value is not None and not 0 <= value <= 1:
        refuse(f"{what} must be between 0 and 1", value, "0..1")
