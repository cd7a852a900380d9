"""Sampling within a budget draws what rejection would, and as fast where rejection is hopeless."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare, ks_2samp

from spaces.test_spaces import SMALL, every_vector
from vitruvius import Space, costs, spaces
from vitruvius.costs import Budget, short


def prior(space: Space, vectors: np.ndarray) -> np.ndarray:
    """The probability with which `sample_vectors` draws each vector, from the definition."""
    used, counts = space.layout.used(vectors), space.layout.counts
    chance = np.where(used, 1 / counts, 1.0)
    for column, gene in enumerate(space.layout.genes):
        if gene.parameter == "on":  # the identity is one operation among the mixers
            skip = 1 / (1 + len(space.stated(space.stages[gene.stage]).get("mixer", ("global",))))
            chance[:, column] = np.where(vectors[:, column], 1 - skip, skip)
    return chance.prod(axis=1) / chance.prod(axis=1).sum()


@pytest.mark.parametrize("metric", ["macs", "params"])
@pytest.mark.parametrize("name", SMALL)
def test_the_distribution_is_exactly_the_conditional_one(name: str, metric: str) -> None:
    space = SMALL[name]
    vectors = every_vector(space)
    cost = getattr(costs.cost(vectors, space=space), metric)
    low, high = np.quantile(cost, 0.3, method="lower"), np.quantile(cost, 0.8, method="higher")
    sampler = space.budget_sampler({metric: (low, high)})
    drawn = sampler.vectors(np.random.default_rng(0), 20_000)
    inside = (cost >= low) & (cost <= high)
    expected = prior(space, vectors) * inside
    place = {vector.tobytes(): i for i, vector in enumerate(vectors)}
    seen = np.bincount([place[vector.tobytes()] for vector in drawn], minlength=len(vectors))
    assert seen[~inside].sum() == 0
    expected = expected[inside] / expected.sum() * len(drawn)
    assert len(expected) == 1 or chisquare(seen[inside], expected).pvalue > 1e-4


@pytest.mark.parametrize(
    ("name", "budget", "identity"),
    [
        ("vitas-v1", "macs: 1.2G..1.6G", None),
        ("vitas-v1", "macs: 0.7G..0.9G", 0.7),
        ("vitas-deit-tiny", "params: 4M..6M", 0.4),
        ("s3", "macs: 9G..11G", None),
        ("vit-resnas-tiny", "macs: 1.7G..2.0G, params: 35M..45M", None),
        ("vitas-twins-small", "macs: 2G..4G", None),
        ("pit-nano", "macs: 5M..20M", None),
    ],
)
def test_depths_and_widths_are_those_of_rejection(name: str, budget: str, identity: float | None) -> None:
    space = spaces.load(name)
    rng = np.random.default_rng(0)
    tried = space.sample_vectors(rng, 30_000, identity)
    rejection = tried[Budget.of(budget).satisfied(costs.cost(tried, space=space))]
    drawn = space.budget_sampler(budget, identity=identity).vectors(rng, 3000)
    assert len(rejection) > 300
    for s in range(len(space.stages)):
        for what in ("dim", "depth", "mlp"):
            ours, theirs = (_statistic(space, vectors, s, what) for vectors in (drawn, rejection))
            assert ks_2samp(ours, theirs).pvalue > 1e-5, (s, what)


def _statistic(space: Space, vectors: np.ndarray, s: int, what: str) -> np.ndarray:
    stage = space.arrays(vectors).stages[s]
    if what == "dim":
        return stage.dim
    if what == "depth":
        return stage.active.sum(axis=1)
    return (stage.mlp * stage.active).sum(axis=1)


@pytest.mark.parametrize(
    ("name", "budget"),
    [
        ("vitas-v1", "macs: 1.3G +- 1%"),
        ("vitas-v1", "macs: 6M..8M"),
        ("s3", "macs: 4.7G +- 1%"),
        ("s3-base", "macs: 13.6G +- 0.1%"),
        ("vitas-twins-large", "params: 100M +- 1%, macs <= 16G"),
        ("autoformer-tiny", "params <= 5.5M"),
        ("autoformer-base", "macs >= 15.5G"),
        ("vit-resnas-small-medium", "macs: 2.8G +- 1%"),
        ("pit-ti", "params: 4.5M..4.9M"),
        ("vitas-v1-block", "macs: 1.25G..1.3G"),
    ],
)
def test_narrow_windows(name: str, budget: str, rng: np.random.Generator) -> None:
    space = spaces.load(name)
    archs = space.sample_within(budget, rng, n=50)
    assert Budget.of(budget).satisfied(costs.cost(archs)).all()
    assert all(map(space.contains, archs))
    assert space.sample_within(budget, np.random.default_rng(7)) == space.sample_within(
        budget, np.random.default_rng(7)
    )


def test_counting_options_are_those_of_costs(rng: np.random.Generator) -> None:
    space = spaces.load("vitas-nano")
    options = {"img_size": 64, "num_classes": 10, "in_chans": 1}
    archs = space.sample_within("macs: 20M..21M", rng, n=20, **options)
    macs = costs.macs(archs, **options)
    assert ((macs >= 20e6) & (macs <= 21e6)).all()


@pytest.mark.parametrize(
    ("name", "budget", "text"),
    [
        ("s3", "macs <= 1M", r"no network of space 's3' has macs of 0\.\.1M; .*allowed: 4\.603G\.\.18\.83G"),
        ("s3", "macs >= 30G", r"allowed: 4\.603G\.\.18\.83G"),
        ("autoformer-tiny", "params: 5M..6M, macs: 2G..2.1G", "no network of space .* with every metric in the budget"),
    ],
)
def test_impossible_budgets_name_what_is_possible(name: str, budget: str, text: str, rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match=text):
        spaces.load(name).sample_within(budget, rng)


@pytest.mark.parametrize("name", [*SMALL, "autoformer-tiny", "s3"])
def test_the_extremes_are_exact(name: str) -> None:
    space = SMALL.get(name) or spaces.load(name)
    with pytest.raises(ValueError, match="no network") as caught:
        space.budget_sampler("macs >= 1T")
    if name in SMALL:
        cost = costs.cost(every_vector(space), space=space)
        low, high = cost.macs.min(), cost.macs.max()
    else:
        low, high = (costs.macs(arch) for arch in (space.smallest, space.largest))
    assert str(caught.value).endswith(f"allowed: {short(low)}..{short(high)}")


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("macs: 1.2G..1.3G", (1.2e9, 1.3e9)),
        ("macs=1.2e9 .. 1.3e9", (1.2e9, 1.3e9)),
        ("MACs <= 5k", (0, 5e3)),
        ("macs>=2T", (2e12, np.inf)),
        ("macs: ..6M", (0, 6e6)),
        ("macs 6M..", (6e6, np.inf)),
        ("macs: 1G +- 1%", (0.99e9, 1.01e9)),
        ("macs = 2G ± 0.5 %", (1.99e9, 2.01e9)),
    ],
)
def test_budget_texts(text: str, ends: tuple[float, float]) -> None:
    metric, low, high = Budget.of(text).ends[0]
    assert metric == "macs"
    assert (low, high) == pytest.approx(ends)
