"""Searchers by their laws, on problems whose answers are known, and against published settings."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from vitruvius import Space, costs, recipes, spaces
from vitruvius.pipeline.search import read_search_config
from vitruvius.search import (
    NSGA2,
    SEARCHERS,
    Domain,
    Evolution,
    Exhaustive,
    Objective,
    Random,
    Trial,
    front,
    hypervolume,
    make_searcher,
    objectives_of,
    ranks,
    reference_point,
    settings_of,
)
from vitruvius.search._variation import Rates, Variation
from vitruvius.search.front import crowding, rank_order
from vitruvius.testing import PROBLEMS, check_searcher, solve
from vitruvius.testing.searchers import tell_all

NANO, S3, BLOCK = (spaces.load(name) for name in ("vitas-nano", "s3-nano", "vitas-v1-block"))


def latency_of_depth(archs: Any) -> dict[str, Any]:
    return {"latency": np.array([1e-3 * arch.depth for arch in archs])}


DOMAINS: dict[str, Callable[[], Domain]] = {
    "vitas-nano": lambda: Domain(NANO, num_classes=10),
    "vitas-nano in a budget": lambda: Domain(NANO, "macs: 3M..5M, params <= 120k", num_classes=10),
    "s3-nano in a narrow window": lambda: Domain(S3, "macs: 9M +- 1%", num_classes=10),
    "vit-resnas-nano": lambda: Domain(spaces.load("vit-resnas-nano"), "params <= 150k", num_classes=10),
    "vitas-nano, measured": lambda: Domain(NANO, "latency <= 4ms, macs <= 6M", measured=[latency_of_depth]),
    "vitas-v1-block": lambda: Domain(BLOCK, "macs <= 1.3G"),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "random": {"evaluations": 300},
    "evolution": {"initial": 30, "generations": 5, "mutations": 15, "crossovers": 15},
    "nsga2": {"population": 30, "generations": 5},
    "exhaustive": {},
}


# -- laws --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("name", ["random", "evolution", "nsga2"])
def test_the_laws(name: str, domain: str) -> None:
    options = SETTINGS[name]
    check_searcher(lambda d, seed: make_searcher(name, d, "accuracy", seed=seed, settings=options), DOMAINS[domain]())


@pytest.mark.parametrize(
    "options",
    [
        {"parents": 5},
        {"mutations": 0},
        {"mutations": 30},
        {"p_depth": 1.0, "p_width": 1.0, "p_block": 1.0},
        {"whole_blocks": True},
    ],
)
def test_the_laws_of_nsga2s_settings(options: dict[str, Any]) -> None:
    domain = DOMAINS["vitas-nano in a budget"]()
    check_searcher(lambda d, seed: NSGA2(d, "score,macs", seed=seed, **SETTINGS["nsga2"], **options), domain)


@pytest.mark.parametrize("options", [{"parents_from": "generation"}, {"whole_blocks": False}, {"parents": 1}])
def test_the_laws_of_evolutions_settings(options: dict[str, Any]) -> None:
    domain = DOMAINS["s3-nano in a narrow window"]()
    check_searcher(lambda d, seed: Evolution(d, "score", seed=seed, **SETTINGS["evolution"], **options), domain)


def test_the_laws_of_exhaustive() -> None:
    check_searcher(lambda d, seed: Exhaustive(d, "accuracy", seed=seed), DOMAINS["vitas-v1-block"]())


def test_every_searcher_is_tested_here() -> None:
    assert set(SETTINGS) == set(SEARCHERS)


def test_exhaustive_is_every_network_once() -> None:
    searcher = Exhaustive(Domain(BLOCK), "accuracy")
    assert searcher.planned == 4000
    archs = [arch for _ in range(80) for arch in searcher.ask()]
    assert len(set(archs)) == 4000
    assert searcher.ask() == []
    assert searcher.done
    inside = Exhaustive(Domain(BLOCK, "macs <= 1.3G"), "accuracy")
    assert inside.planned == int((costs.macs(archs) <= 1.3e9).sum())


@pytest.mark.parametrize("name", ["random", "evolution", "nsga2"])
def test_small_spaces_are_exhausted_and_then_it_is_over(name: str) -> None:
    """217 networks, and more asked for: each comes once, and the search ends by itself."""
    domain = Domain(BLOCK, "macs: 1.0G +- 1%")
    many = int(Exhaustive(domain).planned)
    assert 20 < many < 300
    options = {"random": {"evaluations": 5000}, "evolution": {"generations": 50}, "nsga2": {"generations": 50}}
    searcher = make_searcher(name, domain, "accuracy", settings=options[name])
    seen = []
    while archs := searcher.ask():
        seen += archs
        tell_all(searcher, archs, [float(len(seen) % 7)] * len(archs), "accuracy")
    assert len(set(seen)) == len(seen) == many
    assert searcher.done


def test_searchers_learn_from_architectures_that_they_did_not_propose() -> None:
    domain = Domain(NANO, num_classes=10)
    searcher = Evolution(domain, "score", **SETTINGS["evolution"], parents=1)
    searcher.tell(Trial(arch=NANO.largest, scores={"score": 9.0}, costs={"macs": 1.0}))
    archs = searcher.ask()
    assert NANO.largest not in archs
    tell_all(searcher, archs, [0.0] * len(archs))
    assert {searcher.origin(arch).parents for arch in searcher.ask()} == {(NANO.largest.id,)}


def test_those_outside_the_budget_come_last() -> None:
    """Constrained dominance: what was told of a network outside the budget never beats one inside."""
    domain = Domain(NANO, "macs <= 5M", num_classes=10)
    for searcher in (NSGA2(domain, "score,params", population=10), Evolution(domain, "score", initial=10, parents=10)):
        outside = [Trial(arch=NANO.largest, scores={"score": 99.0}, costs={"macs": 9e6, "params": 1.0})]
        archs = searcher.ask()
        searcher.tell(outside)
        tell_all(searcher, archs, [1.0] * len(archs))
        assert NANO.largest not in {trial.arch for trial in searcher.population()[:10]}
        assert domain.violation(outside[0].costs) == pytest.approx(0.8)


# -- variation ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["vitas-nano", "s3-nano", "vitas-twins-nano", "vit-resnas-nano", "pit-nano", "vitas-v1"]
)
@pytest.mark.parametrize("whole", [True, False])
def test_children_are_of_the_space_and_of_their_parents(name: str, whole: bool) -> None:
    space, rng = spaces.load(name), np.random.default_rng(0)
    variation = Variation(space, Rates(0.3, 0.3, 0.3), whole_blocks=whole)
    a, b = (variation.packed(space.sample_vectors(rng, 200)) for _ in range(2))
    mutated, crossed = variation.mutated(rng, a), variation.crossed(rng, a, b)
    assert (mutated != a).any(axis=1).mean() > 0.5
    for vectors in (mutated, crossed):
        valid = vectors[space.valid(vectors)]
        assert len(valid) > 50
        archs = space.decode_many(valid)
        assert all(space.contains(arch) for arch in archs[:30])
        assert (
            np.stack([space.encode(arch) for arch in archs[:30]]) == valid[:30]
        ).all()  # packed: one vector a network
    used = space.layout.used(a) & space.layout.used(b) & space.layout.used(crossed)
    if name not in ("vitas-nano", "vit-resnas-nano", "vitas-v1"):  # where layers may be skipped, blocks move up
        assert ((crossed == a) | (crossed == b))[used].all()
    np.testing.assert_array_equal(variation.crossed(rng, a, a), a)


@given(p=st.floats(0.05, 0.95))
@settings(max_examples=10, deadline=None)
def test_mutation_changes_as_much_as_its_rates_say(p: float) -> None:
    """A choice among k changes with p (k - 1) / k: here of three heads and three ratios, in blocks that stay."""
    space = spaces.load("autoformer-nano")
    rng = np.random.default_rng(0)
    parents = np.repeat(space.sample_vectors(rng, 1), 4000, axis=0)
    parents[:, space.layout.column("depth", 0)] = 3  # all six layers
    for whole in (False, True):
        children = Variation(space, Rates(0, 0, p), whole_blocks=whole).mutated(rng, parents)
        heads = [space.layout.column("heads", 0, layer) for layer in range(6)]
        ratio = [space.layout.column("mlp_ratio", 0, layer) for layer in range(6)]
        changed = children != parents
        assert changed[:, heads].mean() == pytest.approx(p * 2 / 3, abs=0.02)
        together = (changed[:, heads] & changed[:, ratio]).mean()
        assert together == pytest.approx((p if whole else p * p) * 4 / 9, abs=0.02)
        others = [c for c in range(parents.shape[1]) if c not in heads + ratio]
        assert not changed[:, others].any()


# -- fronts ------------------------------------------------------------------------------------------------------------

POINTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=25)


@given(points=POINTS)
def test_ranks_by_their_definition(points: list[tuple[int, int]]) -> None:
    values = np.array(points, dtype=np.float64)
    left, rank, expected = set(range(len(values))), 0, np.zeros(len(values), dtype=int)

    def dominates(i: int, j: int) -> bool:
        return bool((values[i] <= values[j]).all() and (values[i] < values[j]).any())

    while left:
        now = {j for j in left if not any(dominates(i, j) for i in left)}
        expected[list(now)] = rank
        left, rank = left - now, rank + 1
    assert ranks(values).tolist() == expected.tolist()
    missed = np.arange(len(values)) % 3 * 0.5
    constrained = ranks(values, missed)
    for worse, better in ((0.5, 0.0), (1.0, 0.5)):
        if (missed == worse).any() and (missed == better).any():
            assert constrained[missed == worse].min() > constrained[missed == better].max()
    order = rank_order(values)
    assert sorted(order) == list(range(len(values)))
    assert (np.diff(ranks(values)[order]) >= 0).all()


def test_crowding_by_hand() -> None:
    values = np.array([[0.0, 4.0], [1.0, 2.0], [3.0, 1.0], [4.0, 0.0]])
    assert crowding(values).tolist() == [np.inf, 3 / 4 + 3 / 4, 3 / 4 + 2 / 4, np.inf]
    assert crowding(np.zeros((3, 2))).tolist() == [np.inf, 0, np.inf]


def trial(accuracy: float, macs: float, place: int = 0) -> Trial:
    return Trial(arch=ARCHS[place], scores={"accuracy": accuracy}, costs={"macs": macs})


ARCHS = NANO.decode_many(np.unique(NANO.sample_vectors(np.random.default_rng(0), 60), axis=0))[:30]
BOTH = objectives_of("accuracy,macs")


def test_hypervolume_by_hand() -> None:
    trials = [trial(3, 2, 0), trial(2, 1, 1), trial(1, 3, 2)]
    assert [each.arch for each in front(trials, BOTH)] == [trials[0].arch, trials[1].arch]
    assert hypervolume(trials, BOTH, np.array([0.0, 4.0])) == 3 * 2 + 2 * 1
    assert hypervolume([], BOTH, np.array([0.0, 4.0])) == 0
    worst = reference_point(trials, BOTH)
    assert worst.tolist() == pytest.approx([-1 + 0.1 * 2, 3 + 0.1 * 2])
    failed = Trial(arch=ARCHS[3], state="failed", reason="nan")
    assert hypervolume([*trials, failed], BOTH, worst) == hypervolume(trials, BOTH, worst)


# -- the optimum -------------------------------------------------------------------------------------------------------


def outcomes(name: str, problem: str, seeds: int, **options: Any) -> tuple[int, list[float]]:
    found = []
    for seed in range(seeds):
        posed = PROBLEMS[problem]
        searcher = make_searcher(name, posed.domain(), posed.objectives, seed=seed, settings=options)
        found.append(solve(searcher, posed, 2000))
        assert len(found[-1].trials) == 2000
    several = "," in problem
    return sum(each.reached for each in found), [each.volume if several else -each.best for each in found]


@pytest.mark.parametrize(
    ("name", "problem", "options"),
    [("evolution", "monotone", {"generations": 40}), ("nsga2", "monotone, macs", {})],
)
def test_the_answer_is_found(name: str, problem: str, options: dict[str, Any]) -> None:
    reached, ours = outcomes(name, problem, 3, **options)
    assert reached == 3
    _, chance = outcomes("random", problem, 3, evaluations=2000)
    assert min(ours) > max(chance)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("evolution", "monotone"),
        ("evolution", "coupled"),
        ("nsga2", "monotone"),
        ("nsga2", "coupled"),
        ("nsga2", "monotone, macs"),
    ],
)
def test_the_answer_is_found_within_2000_evaluations(name: str, problem: str) -> None:
    """In 19 of 20 seeds, and better than random at equal evaluations."""
    reached, ours = outcomes(name, problem, 20, generations=40)
    assert reached >= 19
    _, chance = outcomes("random", problem, 20, evaluations=2000)
    assert mannwhitneyu(ours, chance, alternative="greater").pvalue < 0.01


@pytest.mark.slow
def test_three_objectives_at_once() -> None:
    """A front of 125 networks is more than a population of 50 holds, but nearly all of what it dominates is found."""
    _, ours = outcomes("nsga2", "monotone, macs, latency", 5)
    _, chance = outcomes("random", "monotone, macs, latency", 5, evaluations=2000)
    assert min(ours) > 0.99
    assert min(ours) > max(chance)


# -- published settings ------------------------------------------------------------------------------------------------

AUTOFORMER = {  # the released program
    "initial": 50, "generations": 20, "parents": 10, "mutations": 25, "crossovers": 25, "p_block": 0.2, "p_depth": 0.4,
}  # fmt: skip
S3_PRINTED = {  # Supplementary A: P 50, T 20, K 10, P_d = P_e = 0.2, P_m = 0.4
    "initial": 50, "generations": 20, "parents": 10, "p_depth": 0.2, "p_width": 0.2, "p_block": 0.4,
}  # fmt: skip
RESNAS = {  # Section 3.1: 500 to start, then 20 rounds of 150, 75 parents of all history, p = 0.3
    "initial": 500, "generations": 21, "parents": 75, "parents_from": "history", "mutations": 75, "crossovers": 75,
    "p_depth": 0.3, "p_width": 0.3, "p_block": 0.3, "whole_blocks": False,
}  # fmt: skip
VITAS = {"population": 50, "generations": 40, "parents": 20}  # v1, Section 4.1 and Appendix A


@pytest.mark.parametrize(
    ("recipe", "kind", "printed", "evaluations"),
    [
        ("autoformer-search", Evolution, AUTOFORMER, 50 + 19 * 50),
        ("s3-search", Evolution, S3_PRINTED, 50 + 19 * 50),
        ("vit-resnas-search", Evolution, RESNAS, 500 + 20 * 150),
        ("vitas-search", NSGA2, VITAS, 2000),
    ],
)
def test_the_papers_searchers(recipe: str, kind: type, printed: dict[str, Any], evaluations: int) -> None:
    config = read_search_config({"recipe": recipe})
    searcher = make_searcher(config.searcher, Domain(NANO), config.objectives, settings=config.settings)
    assert isinstance(searcher, kind)
    assert searcher.planned == evaluations
    assert len(searcher.ask()) == printed.get("initial", printed.get("population"))
    recorded = searcher.record()
    assert {key: recorded[key] for key in printed} == printed
    assert {key for key in printed if recipes.load(recipe).sources[key] != "paper"} == set()


def test_the_papers_other_searches() -> None:
    tf_tas = read_search_config({"recipe": "tf-tas-search"})
    assert (tf_tas.searcher, tf_tas.settings, tf_tas.objectives) == ("random", {"evaluations": 8000}, ("dss",))
    block = read_search_config({"recipe": "vitas-v1-block-search"})
    assert block.space == "vitas-v1-block"
    assert make_searcher(block.searcher, Domain(spaces.load(block.space)), block.objectives).planned == 4000


def test_every_published_search_is_tested_here() -> None:
    ours = {name for name in recipes.names("search") if recipes.load(name).paper == "Vitruvius"}
    tested = {"autoformer-search", "s3-search", "vit-resnas-search", "vitas-search", "tf-tas-search"}
    assert set(recipes.names("search")) - ours == tested | {"vitas-v1-block-search"}


# -- refusals ----------------------------------------------------------------------------------------------------------


def one_line(make: Callable[[], object]) -> str:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the message is what is tested
        make()
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: Domain(spaces.load("s3"), "macs<=1M"), r"space 's3' has macs of 0.*allowed: 4\.603G\.\.18\.83G"),
        (lambda: Domain(NANO, "params >= 1G"), r"no network of space 'vitas-nano'.*allowed: .*k\.\."),
        (
            lambda: Domain(NANO, "macs <= 2M, params >= 200k", num_classes=10),
            r"no network of space 'vitas-nano' with every metric in the budget.*macs .*\.\..*params .*\.\.",
        ),
        (lambda: Domain(NANO, "latency <= 8ms"), "nothing measures the latency that the budget names.*params, macs"),
        (lambda: Domain(NANO, "latency <= 0.1ms", measured=[latency_of_depth]), r"tried.*within latency 1ms\.\."),
        (lambda: Domain("vitas-nano"), "a search needs a Space"),
        (lambda: Domain(NANO, num_classes=-1), "num_classes must be"),
        (lambda: Random(Domain(NANO), seed=-1), "a seed is a whole number"),
        (lambda: Random(Domain(NANO), evaluations=0), "evaluations must be a positive whole number"),
        (lambda: Evolution(Domain(NANO), "accuracy,macs"), "evolution has one objective.*nsga2"),
        (lambda: Evolution(Domain(NANO), parents=0), "parents must be a positive"),
        (lambda: Evolution(Domain(NANO), parents_from="here"), "unknown place of parents"),
        (lambda: Evolution(Domain(NANO), mutations=0, crossovers=0), "a generation needs children"),
        (lambda: Evolution(Domain(NANO), p_block=1.5), "p_block must be between 0 and 1"),
        (lambda: Evolution(Domain(NANO), p_block=0, p_depth=0, p_width=0), "mutation must change something"),
        (lambda: NSGA2(Domain(NANO), population=2.5), "population must be a positive"),
        (lambda: NSGA2(Domain(NANO), mutations=51), "crossovers must be a number of children"),
        (lambda: NSGA2(Domain(NANO), "macs,macs"), "a search has objectives, each once"),
        (lambda: NSGA2(Domain(NANO), ""), "an objective is a name"),
        (lambda: Objective.of("up:macs"), "unknown direction of an objective"),
        (lambda: Exhaustive(Domain(NANO)), "too large to be walked through"),
        (lambda: make_searcher("nsga3", Domain(NANO)), "did you mean 'nsga2'"),
        (lambda: make_searcher("nsga2", Domain(NANO), settings={"populaton": 3}), "did you mean 'population'"),
        (lambda: Random(Domain(NANO)).ask(0), "how many candidates are asked for"),
        (lambda: Random(Domain(NANO)).origin(NANO.smallest), "has not proposed"),
        (lambda: Random(Domain(S3)).tell(trial(1, 1)), "space 's3-nano'|not in|family"),
        (lambda: Trial(arch=NANO.smallest, scores={"a": float("nan")}), "is a finite number"),
        (lambda: Trial(arch=NANO.smallest, state="failed"), "a failed trial has a reason"),
        (lambda: Trial(arch=NANO.smallest, state="lost"), "unknown state of a trial"),
        (lambda: trial(1, 1).value("latency"), "no such score or cost; got 'latency'; allowed: accuracy, macs"),
    ],
)  # fmt: skip
def test_refused(make: Callable[[], object], rule: str) -> None:
    assert re.search(rule, one_line(make))


def test_objectives_know_their_direction() -> None:
    found = {
        str(each): each.maximise for each in objectives_of("accuracy, macs, latency, throughput, dss, loss, max:params")
    }
    assert found == {
        "accuracy": True, "macs": False, "latency": False, "throughput": True, "dss": True, "loss": False,
        "max:params": True,
    }  # fmt: skip


def test_a_trial_is_its_plain_data() -> None:
    whole = Trial(
        arch=NANO.smallest, scores={"accuracy": 91.5}, costs={"macs": 1e6}, number=3, generation=1, parents=("a", "b"),
        made="crossover", seed=7, split="abc", seconds=0.25, detail={"images": 143},
    )  # fmt: skip
    assert Trial.from_dict(whole.to_dict()) == whole
    failed = Trial(arch=NANO.smallest, state="failed", reason="boom")
    assert Trial.from_dict(failed.to_dict()) == failed


def test_settings_have_names_and_defaults() -> None:
    assert settings_of("random") == {"evaluations": 1000}
    assert settings_of("nsga2")["population"] == 50
    assert settings_of("exhaustive") == {}


def test_every_kind_of_budget_at_once() -> None:
    """Params, MACs, latency, throughput and peak memory, each with two ends."""

    def device(archs: Any) -> dict[str, Any]:
        seconds = latency_of_depth(archs)["latency"]
        return {"latency": seconds, "throughput": 1 / seconds, "memory": 4.0 * costs.params(archs, num_classes=10)}

    text = "params: 20k..150k, macs: 1M..6M, latency: 2ms..5ms, throughput: 200..500, memory: 100KB..600KB"
    domain = Domain(NANO, text, measured=[device], num_classes=10)
    for name, options in SETTINGS.items():
        if name == "exhaustive":
            continue
        objectives = "accuracy" if name == "evolution" else "accuracy,latency,memory"
        searcher = make_searcher(name, domain, objectives, settings=options)
        for _ in range(4):
            archs = searcher.ask()
            found = domain.costs(archs)
            assert len(archs) > 0
            assert domain.budget is not None
            assert domain.budget.satisfied(found).all()
            tell_all(searcher, archs, [float(arch.depth) for arch in archs], "accuracy")


def test_a_space_of_ones_own(tmp_path: Any) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(NANO.to_yaml())
    assert len(Random(Domain(Space.from_yaml(path)), evaluations=5).ask()) == 5
