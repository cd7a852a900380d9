"""Evaluators: inherited accuracy against the plain network, halving and its stated cost, mixtures, failures."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import some_archs
from vitruvius import Arch, Superformer, data, proxies, spaces
from vitruvius.evaluation import (
    Evaluator,
    FunctionEvaluator,
    InheritedAccuracy,
    InProcess,
    Mixture,
    ProxyEvaluator,
    Several,
    Task,
    evaluate,
)
from vitruvius.evaluation.accuracy import stratified_order

SPACE = spaces.load("vitas-nano", img_size=8, patch=4)
DIGITS = data.load("digits", val=0.2)
ARCHS = some_archs(SPACE, 6)


@pytest.fixture(scope="module")
def superformer() -> Superformer:
    return Superformer(SPACE, num_classes=10, in_chans=1, seed=0).eval()


# -- inherited accuracy ------------------------------------------------------------------------------------------------


def plain_accuracy(model: torch.nn.Module) -> float:
    right = 0
    for x, labels in data.eval_batches(
        DIGITS.search.val, 64, img_size=8, mean=DIGITS.search.mean, std=DIGITS.search.std
    ):
        with torch.no_grad():
            right += int((model(x).argmax(1) == labels).sum())
    return 100 * right / len(DIGITS.search.val)


def test_inherited_accuracy_is_that_of_the_extracted_network(superformer: Superformer) -> None:
    evaluator = InheritedAccuracy(superformer, DIGITS.search)
    for arch, outcome in zip(ARCHS, evaluator(ARCHS), strict=True):
        assert outcome.complete
        assert outcome.scores == {"accuracy": plain_accuracy(superformer.extract(arch).eval())}
        assert outcome.detail["images"] == len(DIGITS.search.val)
    assert evaluator.split == DIGITS.search.hash


@pytest.mark.parametrize("memory", [0, 2**30])
def test_batches_are_prepared_once_where_memory_allows(
    superformer: Superformer, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vitruvius.evaluation import accuracy

    prepared = []
    for name in ("eval_batches", "stream_batches"):
        real = getattr(accuracy, name)
        monkeypatch.setattr(accuracy, name, lambda *a, _real=real, **k: (prepared.append(1), _real(*a, **k))[1])
    evaluator = InheritedAccuracy(superformer, DIGITS.search, memory=memory)
    found = [outcome.scores for outcome in evaluator(ARCHS)]
    assert len(prepared) == (1 if memory else len(ARCHS))
    assert found == [outcome.scores for outcome in InheritedAccuracy(superformer, DIGITS.search)(ARCHS)]


def test_the_batch_size_and_the_order_do_not_matter(superformer: Superformer) -> None:
    one = InheritedAccuracy(superformer, DIGITS.search, batch_size=7)
    other = InheritedAccuracy(superformer, DIGITS.search, batch_size=300)
    assert [o.scores for o in one(ARCHS)] == [o.scores for o in other(ARCHS[::-1])][::-1]


def test_a_part_is_stratified(superformer: Superformer) -> None:
    labels = DIGITS.search.val.labels
    evaluator = InheritedAccuracy(superformer, DIGITS.search, images=0.5, seed=3)
    (part,) = evaluator._parts
    assert len(set(part.tolist())) == len(part) == round(0.5 * len(labels))
    counts = np.bincount(labels[part], minlength=10)
    assert np.abs(counts - 0.5 * np.bincount(labels, minlength=10)).max() <= 1
    assert InheritedAccuracy(superformer, DIGITS.search, images=40).cost() == "40 images a candidate"
    records = {str(InheritedAccuracy(superformer, DIGITS.search, images=0.5, seed=s).record()) for s in (3, 4)}
    assert len(records) == 2


@given(labels=st.lists(st.integers(0, 4), min_size=1, max_size=60), seed=st.integers(0, 9))
def test_every_beginning_of_the_order_has_the_classes_in_proportion(labels: list[int], seed: int) -> None:
    given_labels = np.array(labels)
    order = stratified_order(given_labels, seed)
    assert sorted(order.tolist()) == list(range(len(labels)))
    for cut in range(1, len(labels)):
        seen = np.bincount(given_labels[order[:cut]], minlength=5)
        assert np.abs(seen - cut / len(labels) * np.bincount(given_labels, minlength=5)).max() <= 3


def test_the_record_knows_the_weights(superformer: Superformer) -> None:
    other = Superformer(SPACE, num_classes=10, in_chans=1, seed=1)
    records = [InheritedAccuracy(each, DIGITS.search).record()["superformer"] for each in (superformer, other)]
    assert records[0] != records[1]


def test_logits_that_are_not_finite_are_a_failure() -> None:
    broken = Superformer(SPACE, num_classes=10, in_chans=1, seed=0)
    with torch.no_grad():
        for parameter in broken.parameters():
            parameter.fill_(float("nan"))
    (outcome,) = InheritedAccuracy(broken, DIGITS.search)(ARCHS[:1])
    assert outcome.reason == "ArithmeticError: its logits are not all finite"
    assert not outcome.scores


# -- failures ----------------------------------------------------------------------------------------------------------


def test_a_crash_or_a_nan_is_that_candidates_alone() -> None:
    def score(arch: Arch) -> Any:
        match ARCHS.index(arch):
            case 1:
                raise RuntimeError("out of memory\nlong story")
            case 2:
                return float("nan")
            case 3:
                return float("inf")
            case 4:
                return {"other": 1.0}
        return 1.5

    found = list(FunctionEvaluator(score)(ARCHS))
    assert [outcome.reason for outcome in found] == [
        "", "RuntimeError: out of memory", "score is nan", "score is inf", "KeyError: 'score'", "",
    ]  # fmt: skip
    assert [outcome.scores for outcome in found] == [{"score": 1.5}, {}, {}, {}, {}, {"score": 1.5}]


def test_a_stop_by_the_user_is_no_failure() -> None:
    def score(arch: Arch) -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        FunctionEvaluator(score)(ARCHS[:1])


# -- successive halving ------------------------------------------------------------------------------------------------


class Steps(Evaluator):
    """Three rungs; the score is the place of a candidate, but the first rung is wrong about one of them."""

    names = ("score",)
    rungs = 3

    def __init__(self, archs: Sequence[Arch], fails: int | None = None) -> None:
        self.archs, self.fails, self.asked = list(archs), fails, [0, 0, 0]

    def scores(self, arch: Arch, rung: int = 0, before: Any = None) -> dict[str, Any]:
        self.asked[rung] += 1
        place = self.archs.index(arch)
        if place == self.fails:
            raise RuntimeError("boom")
        assert (before or {}).get("rung", -1) == rung - 1
        return {"score": place + rung / 10, "rung": rung}

    def survivors(self, rung: int, candidates: int) -> int:
        return candidates // 2


@pytest.mark.parametrize(("maximise", "best"), [(True, 7), (False, 0)])
def test_the_best_of_every_rung_go_on(maximise: bool, best: int) -> None:
    archs = some_archs(SPACE, 8, seed=5)
    evaluator = Steps(archs)
    found = dict(evaluate(InProcess(evaluator), archs, "score", maximise))
    assert evaluator.asked == [8, 4, 2]
    assert sorted(found) == list(range(8))
    rungs = {place: outcome.detail["rung"] for place, outcome in found.items()}
    assert sorted(rungs.values()) == [0] * 4 + [1] * 2 + [2] * 2
    assert rungs[best] == 2
    failing = Steps(archs, fails=7)
    found = dict(evaluate(InProcess(failing), archs))
    assert found[7].reason == "RuntimeError: boom"
    assert failing.asked == [8, 3, 1]


def test_halving_ends_where_the_whole_does_and_costs_what_it_says(superformer: Superformer) -> None:
    evaluator = InheritedAccuracy(superformer, DIGITS.search, shares=(0.25, 1.0), keep=0.5)
    whole = InheritedAccuracy(superformer, DIGITS.search)
    archs = list(dict.fromkeys(some_archs(SPACE, 20)))
    found = dict(evaluate(InProcess(evaluator), archs, "accuracy"))
    seen = [found[place].detail["images"] for place in range(len(archs))]
    total, quarter = len(DIGITS.search.val), round(0.25 * len(DIGITS.search.val))
    assert sorted(set(seen)) == [quarter, total]
    assert seen.count(total) == len(archs) // 2
    for place, images in enumerate(seen):
        assert "right" not in found[place].detail
        if images == total:
            assert found[place].scores == whole([archs[place]])[0].scores
    mean = sum(seen) / len(seen)
    said = re.fullmatch(r"(\d+) then (\d+) images, 50% going on: (\d+) a candidate in the mean, (\d+)% of all",
                        evaluator.cost())  # fmt: skip
    assert said
    assert [int(number) for number in said.groups()[:2]] == [quarter, total]
    assert int(said[3]) == pytest.approx(mean, abs=1)
    assert int(said[4]) == pytest.approx(100 * mean / total, abs=1)


# -- scores without training, and mixtures -----------------------------------------------------------------------------


def test_training_free_scores(superformer: Superformer) -> None:
    evaluator = ProxyEvaluator(["dss", "params"], num_classes=10, img_size=8, in_chans=1, seed=0)
    expected = proxies.score(["dss", "params"], ARCHS, num_classes=10, img_size=8, in_chans=1, seed=0)
    for place, outcome in enumerate(evaluator(ARCHS)):
        assert outcome.scores == {name: pytest.approx(values[place]) for name, values in expected.items()}
    with pytest.raises(ValueError, match="ranks a set of candidates"):
        ProxyEvaluator("az_nas" if "az_nas" in proxies.PROXIES else "az-nas")


SMALL = {"num_classes": 10, "img_size": 8, "in_chans": 1, "seed": 0}


@pytest.mark.parametrize("names", [["dss", "dss-reference", "params"], ["dss", "naswot"]])
def test_scores_are_the_same_to_the_bit_whoever_comes_next(names: list[str]) -> None:
    alone = [ProxyEvaluator(names, **SMALL).outcome(arch).scores for arch in ARCHS]
    together = dict(evaluate(InProcess(Several([ProxyEvaluator(names, **SMALL)])), ARCHS))
    assert [together[place].scores for place in range(len(ARCHS))] == alone


def test_candidates_that_come_next_are_scored_at_once_and_a_failing_one_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    real = proxies.PROXIES["dss"].measure

    def measure(batch: proxies.Batch, setting: proxies.Setting) -> proxies.Measured:
        asked.append(len(batch))
        if ARCHS[2] in batch.archs and bad:
            raise RuntimeError("not this one")
        return real(batch, setting)

    monkeypatch.setattr(proxies.PROXIES["dss"], "measure", measure)
    for bad, expected in ((False, [len(ARCHS)]), (True, [len(ARCHS), *[1] * len(ARCHS)])):
        asked.clear()
        found = dict(evaluate(InProcess(ProxyEvaluator("dss", **SMALL)), ARCHS))
        assert asked == expected
        assert [place for place, outcome in found.items() if not outcome.complete] == ([2] if bad else [])
    assert found[2].reason == "RuntimeError: not this one"


def test_several_scores_with_halving_measure_each_once(superformer: Superformer) -> None:
    calls = []

    def mlp(arch: Arch) -> float:
        calls.append(arch)
        return float(sum(block.mlp for block in arch.stages[0].blocks))

    accuracy = InheritedAccuracy(superformer, DIGITS.search, shares=(0.3, 1.0))
    several = Several([accuracy, FunctionEvaluator(mlp, "mlp")])
    assert several.names == ("accuracy", "mlp")
    assert several.split == DIGITS.search.hash
    found = dict(evaluate(InProcess(several), ARCHS, "accuracy"))
    assert len(calls) == len(ARCHS)
    for place, arch in enumerate(ARCHS):
        assert found[place].scores["mlp"] == mlp(arch)
        assert "kept" not in found[place].detail


@given(weights=st.tuples(st.floats(-3, 3), st.floats(0.1, 3)))
@settings(max_examples=20, deadline=None)
def test_a_mixture_is_a_weighted_sum_of_standard_scores(weights: tuple[float, float]) -> None:
    parts = [FunctionEvaluator(lambda arch: float(arch.depth), "depth"),
             FunctionEvaluator(lambda arch: 1e3 * arch.stages[0].dim, "width")]  # fmt: skip
    reference = some_archs(SPACE, 12, seed=9)
    given_weights = dict(zip(("depth", "width"), weights, strict=True))
    mixed = Mixture(parts, given_weights, reference)
    rows = np.array([[arch.depth, 1e3 * arch.stages[0].dim] for arch in reference])
    for arch, outcome in zip(ARCHS, mixed(ARCHS), strict=True):
        value = np.array([arch.depth, 1e3 * arch.stages[0].dim])
        expected = ((value - rows.mean(0)) / rows.std(0)) @ np.array(weights)
        assert outcome.scores == {"mixture": pytest.approx(expected), "depth": value[0], "width": value[1]}
    plain = Mixture(parts, given_weights)(ARCHS[:1])[0].scores
    assert plain["mixture"] == pytest.approx(weights[0] * plain["depth"] + weights[1] * plain["width"])


# -- refusals ----------------------------------------------------------------------------------------------------------

ONE = FunctionEvaluator(lambda arch: 1.0)


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda s: InheritedAccuracy(s, DIGITS.search, images=0), "images are a part of search-validation"),
        (lambda s: InheritedAccuracy(s, DIGITS.search, images=1.5), "images are a part of search-validation"),
        (lambda s: InheritedAccuracy(s, DIGITS.search, images=10**6), "images are a part of search-validation"),
        (lambda s: InheritedAccuracy(s, DIGITS.search, shares=(0.5,)), "shares of the images grow to 1"),
        (lambda s: InheritedAccuracy(s, DIGITS.search, shares=(0.5, 0.2, 1)), "shares of the images grow to 1"),
        (lambda s: InheritedAccuracy(s, DIGITS.search, shares=(0.001, 1)), "every share needs images"),
        (lambda s: InheritedAccuracy(s, DIGITS.search, keep=0), "keep is the part of the candidates"),
        (lambda s: InheritedAccuracy(s, DIGITS.search, precision="fp8"), "unknown precision"),
        (lambda s: InheritedAccuracy(s, DIGITS.search, batch_size=0), "batch_size must be"),
        (lambda s: InheritedAccuracy(Superformer(SPACE, num_classes=9, in_chans=1, seed=0), DIGITS.search), "classes"),
        (lambda s: InheritedAccuracy(Superformer(SPACE, num_classes=10, seed=0), DIGITS.search), "other channels"),
        (lambda s: FunctionEvaluator(3), "an evaluator is a callable"),
        (lambda s: Several([]), "nothing to evaluate with"),
        (lambda s: Several([ONE, ONE]), "evaluators give different scores"),
        (lambda s: Several([Steps([]), InheritedAccuracy(s, DIGITS.search, shares=(0.5, 1))]), "one evaluator at most"),
        (lambda s: Mixture([ONE], {"scor": 1}), "unknown score of a mixture"),
        (lambda s: Mixture([ONE], {"score": 0}), "a mixture needs a weight"),
        (lambda s: ProxyEvaluator("dsss"), "did you mean 'dss'"),
        (lambda s: list(evaluate(InProcess(Steps([])), ARCHS, "loss")), "successive halving goes by a score"),
    ],
)
def test_refused(superformer: Superformer, make: Callable[[Superformer], object], rule: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is what is tested
        make(superformer)
    assert re.search(rule, str(caught.value))
    assert "\n" not in str(caught.value)


def test_tasks_are_plain() -> None:
    assert Task(ARCHS[0]) == Task(ARCHS[0], 0, None)
