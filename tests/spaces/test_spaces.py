from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import ALL_SPACES, NANO_SPACES, some_archs
from vitruvius import Arch, Space, costs, spaces, zoo
from vitruvius.spaces import StageSpace, tenths

seeds = st.integers(0, 2**32 - 1)
space_names = st.sampled_from(ALL_SPACES)

VIT = {"family": "vit", "patch": 16, "class_token": True, "pool": "token", "positions": "absolute"}
BLOCK = {"heads": (1, 2), "head_dim": 8, "mlp_ratio": (1, 2)}
SMALL = {
    "shifted": Space(name="a", **VIT, stages=(StageSpace(dim=(8, 16), depth=(0, 1, 3), block=BLOCK),)),
    "anywhere": Space(name="b", **VIT, stages=(StageSpace(dim=(8, 16), depth=3, identity="anywhere", block=BLOCK),)),
    "skippable": Space(
        name="c",
        **{**VIT, "patch": (14, 16)},
        stages=(StageSpace(dim=8, depth=4, identity="anywhere", skippable=(1, 2), block=BLOCK),),
    ),
    "block": Space(name="d", **VIT, stages=(StageSpace(dim=(8, 16), depth=(1, 2), stage=BLOCK),)),
    "whole net": Space(name="e", **VIT, net=BLOCK, stages=(StageSpace(dim=(8, 16), depth=(1, 2)),)),
    "growing": Space(
        name="f",
        **{**VIT, "family": "resvit", "stem": 4},
        stages=(
            StageSpace(dim=(8, 16, 24), depth=(1, 2), block={"heads": (1, 2), "head_dim": 8, "mlp": 8}),
            StageSpace(dim=(16, 24), depth=(0, 1), block={"heads": 1, "head_dim": 8, "mlp": (8, 16)}),
        ),
        img_size=64,
    ),
    "multiples": Space(
        name="g",
        **{**VIT, "family": "pit", "stride": 8},
        net={"head_dim": (4, 8)},
        stages=(StageSpace(depth=(1, 2), stage={"heads": (2, 3, 4)}, block={"mlp_ratio": (1, 2)}),) * 2,
    ),
    "mixers": Space(
        name="h",
        family="twins",
        patch=4,
        class_token=False,
        pool="mean",
        positions="conv",
        img_size=32,
        stages=(
            StageSpace(
                dim=8,
                depth=(0, 1, 2),
                block={
                    "mixer": ("local", "subsampled"),
                    "window": 2,
                    "reduction": 2,
                    "heads": (1, 2),
                    "qkv": 8,
                    "mlp": 8,
                },
            ),
        )
        * 2,
    ),
    "one dim for all": Space(
        name="j",
        **{**VIT, "family": "resvit"},
        net={"dim": (8, 16)},
        stages=(StageSpace(depth=(1, 2), block={"heads": (1, 2), "mlp_ratio": (1, 2)}),) * 2,
        img_size=64,
    ),
    "queries and values apart": Space(
        name="k", **VIT, stages=(StageSpace(dim=12, depth=2, block={"heads": (1, 3), "qk": (6, 12), "v": 9, "mlp": 5}),)
    ),
    "no choice": Space(name="l", **VIT, stages=(StageSpace(dim=8, depth=2, block={"heads": 2, "mlp": 8}),)),
    "no blocks": Space(name="m", **VIT, stages=(StageSpace(dim=(8, 16), depth=0, block={"heads": 2, "mlp": 8}),)),
    "some mixers anywhere": Space(
        name="n",
        family="twins",
        patch=4,
        class_token=False,
        pool="mean",
        positions="conv",
        img_size=32,
        stages=(
            StageSpace(
                dim=(8, 16),
                depth=2,
                identity="anywhere",
                block={"mixer": ("local", "global"), "window": 2, "heads": 2, "qkv": (8, 16), "mlp": 8},
            ),
        )
        * 2,
    ),
    "ends that cannot follow": Space(
        name="o",
        **{**VIT, "family": "pit", "stride": 8},
        stages=(
            StageSpace(depth=1, stage={"heads": (2, 3), "head_dim": 4}, block={"mlp_ratio": 1}),
            StageSpace(depth=1, stage={"heads": (2, 4), "head_dim": 4}, block={"mlp_ratio": 1}),
        ),
    ),
    "alternating": Space(
        name="i",
        family="swin",
        patch=4,
        class_token=False,
        pool="mean",
        positions="bias",
        img_size=32,
        stages=(
            StageSpace(
                dim=(8, 12),
                depth=(1, 3),
                stage={"mixer": "window+shifted", "head_dim": 4},
                block={"qkv": (4, 8), "window": (2, 4), "mlp": 8},
            ),
        ),
    ),
}


def every_vector(space: Space) -> np.ndarray:
    """All canonical valid vectors, by brute force."""
    everything = np.array(list(product(*(range(count) for count in space.layout.counts))), dtype=np.int64)
    canonical = space.layout.canonical(everything)
    return np.unique(canonical[space.valid(canonical)], axis=0)


@pytest.mark.parametrize("name", SMALL)
def test_size_is_what_brute_force_counts(name: str) -> None:
    space = SMALL[name]
    vectors = every_vector(space)
    archs = space.decode_many(vectors)
    assert space.size == len(vectors)
    assert space.networks == len(set(archs)) == len({arch.id for arch in archs})


@pytest.mark.parametrize("name", SMALL)
def test_every_network_of_a_small_space_encodes(name: str) -> None:
    space = SMALL[name]
    for vector in every_vector(space):
        arch, path = space.decode(vector), space.path_of(vector)
        assert np.array_equal(space.encode(arch, path), vector)
        assert space.decode(space.encode(arch)) == arch
        assert space.contains(arch)


@pytest.mark.parametrize(
    ("name", "size"), [("vitas-v1", 401**16 * 30), ("vitas-v1-large", 401**16 * 30), ("vitas-v1-block", 4000)]
)
def test_the_papers_sizes(name: str, size: int) -> None:
    assert spaces.load(name).size == size


def test_sizes_of_the_other_published_spaces() -> None:
    size = {name: spaces.load(name).size for name in ALL_SPACES}
    assert size["autoformer-tiny"] == 3 * (4**12 + 4**13 + 4**14)
    assert size["s3"] == (3 * (18**2 + 18**3 + 18**4)) ** 4
    assert size["vit-resnas-tiny"] == (5 * 28**3 * 29**3) ** 3
    assert size["vitas-deit-tiny"] == 30 * sum(400**depth for depth in range(15))
    # heads that are multiples: 10 of the 27 triples of {2, 4, 8}
    assert size["pit-ti"] == 4 * 4 * 27 * 10
    # v2 counts the operations of 12 layers with two mixers as 2^13 - 1
    ops = {"mixer": ("local", "global"), "window": 2, "heads": 1, "qkv": 8, "mlp": 8}
    stage = StageSpace(dim=8, depth=tuple(range(13)), block=ops)
    twins = Space(name="v2", family="twins", patch=4, class_token=False, pool="mean", positions="conv", stages=(stage,))
    assert twins.size == 2**13 - 1


@given(space_names, seeds)
def test_encode_decode(name: str, seed: int) -> None:
    space = spaces.load(name)
    vectors = space.sample_vectors(np.random.default_rng(seed), 4)
    for vector, arch in zip(vectors, space.decode_many(vectors), strict=True):
        assert space.decode(vector) == arch
        assert space.decode(space.encode(arch)) == arch
        assert np.array_equal(space.encode(arch, space.path_of(vector)), vector)


@given(space_names, seeds, st.floats(0, 1))
def test_variation_stays_inside(name: str, seed: int, p: float) -> None:
    space, rng = spaces.load(name), np.random.default_rng(seed)
    a, b = space.sample(rng), space.sample(rng)
    assert space.contains(space.mutate(a, rng, p))
    assert space.contains(space.crossover(a, b, rng))
    assert space.mutate(a, rng, 0.0) == a
    assert space.crossover(a, a, rng) == a


@given(space_names, seeds)
def test_equal_generators_give_equal_architectures(name: str, seed: int) -> None:
    space = spaces.load(name)
    first, second = (space.sample(np.random.default_rng(seed)) for _ in range(2))
    assert first == second
    mutants = {space.mutate(first, np.random.default_rng(seed), 0.5) for _ in range(3)}
    assert len(mutants) == 1


def test_crossover_takes_each_choice_from_a_parent(rng: np.random.Generator) -> None:
    space = spaces.load("autoformer-tiny")
    for _ in range(50):
        a, b = space.sample(rng), space.sample(rng)
        child, parents = space.encode(space.crossover(a, b, rng)), [space.encode(a), space.encode(b)]
        used = [space.layout.used(parent[None])[0] for parent in parents]
        own = space.layout.used(child[None])[0]
        from_one = [(child == parent) & mask for parent, mask in zip(parents, used, strict=True)]
        assert (from_one[0] | from_one[1] | ~own).all()


@pytest.mark.parametrize("name", SMALL)
def test_neighbours_are_one_choice_away(name: str, rng: np.random.Generator) -> None:
    space = SMALL[name]
    for arch in some_archs(space, 6):
        near = list(space.neighbours(arch))
        assert arch not in near
        assert len(set(near)) == len(near)
        for other in near:
            assert space.contains(other)
            if other.depth == arch.depth and space.family == "vit":
                assert abs(_distance(space, arch, other)) == 1


def _distance(space: Space, a: Arch, b: Arch) -> int:
    return int((space.encode(a) != space.encode(b)).sum())


def test_neighbours_join_the_whole_space() -> None:
    space = SMALL["shifted"]
    reached, fresh = {space.smallest}, [space.smallest]
    while fresh:
        fresh = [n for arch in fresh for n in space.neighbours(arch) if n not in reached and not reached.add(n)]
    assert len(reached) == space.networks


@pytest.mark.parametrize("name", ALL_SPACES)
def test_ranges_bound_the_space(name: str, rng: np.random.Generator) -> None:
    space = spaces.load(name)
    ends = [space.smallest, space.largest]
    cost = costs.cost(space.sample_vectors(rng, 500), space=space)
    for metric in ("params", "macs"):
        least, most = space.cost_range(metric)
        values = [*getattr(cost, metric), *getattr(costs.cost(ends, img_size=space.img_size), metric)]
        assert least <= min(values)
        assert max(values) <= most


@pytest.mark.parametrize("name", [*SMALL])
def test_ranges_are_exact(name: str) -> None:
    space = SMALL[name]
    cost = costs.cost(every_vector(space), space=space)
    for metric in ("params", "macs"):
        values = getattr(cost, metric)
        assert space.cost_range(metric) == (values.min(), values.max())


@pytest.mark.parametrize("name", ALL_SPACES)
def test_yaml_round_trip(name: str, tmp_path) -> None:
    space = spaces.load(name)
    assert Space.from_yaml(space.to_yaml()) == space
    (tmp_path / "mine.yaml").write_text(space.to_yaml())
    again = Space.from_yaml(tmp_path / "mine.yaml")
    assert again == space
    assert hash(again) == hash(space)


@pytest.mark.parametrize("img_size", [8, 16, 28, 32, 64])
@pytest.mark.parametrize("name", NANO_SPACES)
def test_nano_spaces_fit_small_images(name: str, img_size: int) -> None:
    patch = 4 if img_size > 16 else 2
    space = spaces.load(name, img_size=img_size, patch=patch)
    assert space.networks >= 10**6
    assert costs.params(space.largest, img_size=img_size, num_classes=10) < 10**6


@pytest.mark.parametrize(
    ("space", "arch"),
    [
        ("autoformer-tiny", "tf-tas-tiny"),
        ("autoformer-small", "tf-tas-small"),
        ("autoformer-small", "autoformer-small"),
        ("autoformer-base", "autoformer-base"),
        ("vitas-v1", "vitas-a"),
        ("vitas-v1", "vitas-b"),
        ("vitas-v1", "vitas-e"),
        ("vitas-v1-large", "vitas-f"),
        ("vitas-v1-block", "vitas-block"),
        ("s3-tiny", "s3-tiny"),
        ("s3-small", "s3-small"),
        ("s3-base", "s3-base"),
        ("vit-resnas-tiny", "vit-resnas-tiny"),
        ("vit-resnas-small-medium", "vit-resnas-small"),
        ("vit-resnas-small-medium", "vit-resnas-medium"),
        ("pit-ti", "tf-tas-pit-ti"),
        ("pit-xs", "tf-tas-pit-xs"),
        ("pit-s", "tf-tas-pit-s"),
        ("pit-s", "pit-s"),
    ],
)
def test_the_published_architectures_are_in_their_spaces(space: str, arch: str) -> None:
    if (space, arch) == ("s3-small", "s3-small"):
        # published with windows of 14 in the last stage, where the map is 7 wide
        assert zoo.load(arch).stages[3].blocks[0].window == 14
    assert spaces.load(space).contains(zoo.load(arch))


def test_many_paths_are_one_network() -> None:
    space = SMALL["anywhere"]
    rng = np.random.default_rng(0)
    by_network: dict[Arch, set[tuple[int, ...]]] = {}
    for vector in space.sample_vectors(rng, 500):
        by_network.setdefault(space.decode(vector), set()).add(space.path_of(vector)[0])
    assert max(map(len, by_network.values())) == 3  # one block, on any of three layers
    assert len({arch.id for arch in by_network}) == len(by_network)


@pytest.mark.parametrize("identity", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("name", ["vitas-v1", "vitas-deit-tiny"])
def test_identity_probability(name: str, identity: float, rng: np.random.Generator) -> None:
    space = spaces.load(name)
    vectors = space.sample_vectors(rng, 4000, identity)
    layers = space.stages[0].layers
    depth = space.layout.active(vectors, 0).sum(axis=1)
    assert depth.mean() == pytest.approx((1 - identity) * layers, abs=0.15)
    assert depth.var() == pytest.approx(identity * (1 - identity) * layers, rel=0.2, abs=1e-9)


def test_uniform_choices(rng: np.random.Generator) -> None:
    """Every choice of the AutoFormer space is drawn equally often."""
    space = spaces.load("autoformer-small")
    vectors = space.sample_vectors(rng, 9000)
    for column, gene in enumerate(space.layout.genes[:20]):
        counts = np.bincount(vectors[:, column], minlength=len(gene.choices))
        assert counts / 9000 == pytest.approx(np.full(len(gene.choices), 1 / len(gene.choices)), abs=0.02)


def test_a_space_is_a_value_that_can_be_moved() -> None:
    space = spaces.load("s3")
    assert space.dimensions["stage3.depth"] == (2, 3, 4)
    moved = space.moved("stage3.depth", 2).moved("stage1.dim", -64).moved("stage2.window", -7)
    assert moved.dimensions["stage3.depth"] == (4, 5, 6)
    assert moved.dimensions["stage1.dim"] == (160, 192, 224)
    assert moved.dimensions["stage2.window"] == (7,)  # the choice that fell to zero is gone
    assert space.dimensions["stage3.depth"] == (2, 3, 4)
    assert not space.contains(moved.largest)


def test_tenths_round_as_the_published_networks_do() -> None:
    assert tenths(384) == (38, 77, 115, 154, 192, 230, 269, 307, 346, 384)
    assert zoo.load("vitas-f").stages[0].dim == tenths(768)[3]


def test_encoding_says_what_is_outside() -> None:
    space = spaces.load("autoformer-tiny")
    with pytest.raises(ValueError, match=r"stage1\.block3\.mlp_ratio is outside space 'autoformer-tiny'; got 3\.0"):
        space.encode(zoo.load("autoformer-tiny"))
    with pytest.raises(ValueError, match="family differs"):
        space.encode(zoo.load("s3-tiny"))
    with pytest.raises(ValueError, match="unknown patch"):
        spaces.load("vitas-v1-block").encode(spaces.load("vitas-v1").smallest)


@pytest.mark.parametrize(
    ("vectors", "rule"),
    [
        (np.zeros((2, 3), dtype=int), "encoded architectures of"),
        (np.zeros((2, 30)), "encoded architectures of"),
        (np.full((1, 30), 9), "is the index of a choice"),
        (np.full((1, 30), -1), "is the index of a choice"),
    ],
)
def test_vectors_are_checked(vectors: np.ndarray, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        spaces.load("autoformer-tiny").decode_many(vectors)


def _genes(space: Space) -> Iterator[str]:
    return (gene.name for gene in space.layout.genes)


def test_gene_names_can_be_read() -> None:
    names = list(_genes(spaces.load("vitas-v1")))
    assert names[:4] == ["patch", "stage1.dim", "stage1.block1.on", "stage1.block1.heads"]
