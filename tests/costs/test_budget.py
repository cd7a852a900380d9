"""Budgets as people write them: every unit, both ways, and what is refused."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitruvius import Budget, costs, spaces
from vitruvius.costs import COUNTED, MEASURED, METRICS, written

UNITS = {
    "params": {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "m": 1e6, "G": 1e9, "T": 1e12},
    "macs": {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "g": 1e9, "T": 1e12},
    "latency": {"us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "MS": 1e-3, "s": 1},
    "throughput": {"": 1, "/s": 1, "k": 1e3, " images/s": 1, "k/s": 1e3, " img/s": 1},
    "memory": {
        "B": 1,
        "KB": 1e3,
        "kb": 1e3,
        "MB": 1e6,
        "GB": 1e9,
        "TB": 1e12,
        "KiB": 2**10,
        "MiB": 2**20,
        "GiB": 2**30,
    },
}
WITH_UNITS = [(metric, unit) for metric, units in UNITS.items() for unit in units]
SIZES = st.floats(1e-3, 1e6).map(lambda value: float(f"{value:.6g}"))


@given(which=st.sampled_from(WITH_UNITS), sizes=st.tuples(SIZES, SIZES), space=st.sampled_from(["", " ", "  "]))
def test_every_form_of_every_unit(which: tuple[str, str], sizes: tuple[float, float], space: str) -> None:
    metric, unit = which
    low, high = sorted(sizes)
    factor = UNITS[metric][unit]
    for text, ends in (
        (f"{low}{space}{unit}..{high}{space}{unit}", (low, high)),
        (f"{low}{unit}..", (low, math.inf)),
        (f"..{space}{high}{unit}", (0, high)),
        (f"<={space}{high}{unit}", (0, high)),
        (f"<{high}{unit}", (0, high)),
        (f">= {low}{unit}", (low, math.inf)),
        (f"= {high}{unit}{space}+-{space}1%", (0.99 * high, 1.01 * high)),
    ):
        expected = [pytest.approx(end * factor, rel=1e-9) for end in ends]
        for budget in (f"{metric}: {text}", f"{metric.upper()}{space}{text}", {metric: text}):
            assert Budget.of(budget).ends == ((metric, *expected),)


@given(metric=st.sampled_from(METRICS), ends=st.tuples(st.floats(1e-6, 1e13), st.floats(1e-6, 1e13)))
def test_what_a_budget_prints_is_read_back(metric: str, ends: tuple[float, float]) -> None:
    """To the four digits that are printed."""
    for low, high in (sorted(ends), (0, max(ends)), (min(ends), math.inf)):
        budget = Budget(((metric, low, high),))
        (again,) = Budget.of(str(budget)).ends
        assert again == (metric, pytest.approx(low, rel=1e-3), pytest.approx(high, rel=1e-3))


def test_values_as_people_write_them() -> None:
    values = {"macs": 1.265e9, "latency": 0.008, "throughput": 2728.5, "memory": 512e6, "params": 5_717_416}
    shown = {metric: written(metric, value) for metric, value in values.items()}
    assert shown == {
        "macs": "1.265G",
        "latency": "8ms",
        "throughput": "2.728k",
        "memory": "512MB",
        "params": "5.717M",
    }
    assert written("latency", 2e-7) == "0.2us"
    assert written("memory", 0) == written("latency", 0) == "0"
    assert written("memory", 0.5) == "0.5B"
    assert str(Budget.of("macs: 1.2G..1.3G, latency <= 8ms")) == "macs: 1.2G..1.3G, latency <= 8ms"


@given(metrics=st.lists(st.sampled_from(METRICS), min_size=1, unique=True))
def test_a_budget_is_its_counted_and_its_measured_part(metrics: list[str]) -> None:
    budget = Budget.of(dict.fromkeys(metrics, (1, 2)))
    parts = [part for part in (budget.counted, budget.measured) if part is not None]
    assert sorted(end for part in parts for end in part.ends) == sorted(budget.ends)
    assert (budget.counted is None) == (not set(metrics) & set(COUNTED))
    assert (budget.measured is None) == (not set(metrics) & set(MEASURED))


def test_satisfied_asks_every_end() -> None:
    values = {"macs": np.array([1e9, 2e9, 1e9, 1e9]), "latency": np.array([0.005, 0.005, 0.009, np.nan])}
    budget = Budget.of("macs <= 1.3G, latency <= 8ms")
    assert budget.satisfied(values).tolist() == [True, False, False, False]
    assert budget.satisfied({"macs": 1e9, "latency": 0.008}).shape == ()
    vectors = spaces.load("vitas-nano").sample_vectors(np.random.default_rng(0), 50)
    cost = costs.cost(vectors, space=spaces.load("vitas-nano"))
    by_name = {"params": cost.params, "macs": cost.macs}
    counted = Budget.of("params <= 100k, macs >= 2M")
    assert counted.satisfied(cost).tolist() == counted.satisfied(by_name).tolist()


SPACE = spaces.load("vitas-nano")


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: Budget.of("latency <= 8"), "the latency budget needs a unit; got '8'; allowed: us, ms, s"),
        (lambda: Budget.of("latency: 5..8ms"), "the latency budget needs a unit; got '5'"),
        (lambda: Budget.of("latency <= 8 MB"), "latency is not in 'mb'; got '8mb'; allowed: us, ms, s"),
        (lambda: Budget.of("memory <= 512"), "the memory budget needs a unit.*KiB"),
        (lambda: Budget.of("memory <= 512M"), "memory is not in 'm'.*MB"),
        (lambda: Budget.of("throughput >= 200 ms"), "throughput is not in 'ms'"),
        (lambda: Budget.of("macs <= 1.3GB"), "macs is not in 'gb'; got '1.3gb'; allowed: k, M, G, T"),
        (lambda: Budget.of("latncy <= 8ms"), "unknown metric of a budget \\(did you mean 'latency'\\?\\)"),
        (lambda: Budget.of({7: "8ms"}), "unknown metric of a budget"),
        (lambda: Budget.of("latency: 9ms..8ms"), "must not pass its upper end"),
        (lambda: Budget.of("latency <= 8ms, latency >= 1ms"), "has a metric twice"),
        (lambda: Budget.of("latency <= -8ms"), "a budget cannot be read"),
        (lambda: Budget.of("latency <= 8ms").satisfied(costs.Cost(1, 1)), "not counted in closed form but measured"),
        (lambda: Budget.of("latency <= 8ms").satisfied({"macs": 1}), "the budget needs the latency"),
        (
            lambda: SPACE.sample_within("latency <= 8ms", np.random.default_rng(0)),
            "sampling within a budget knows only",
        ),
        (lambda: SPACE.budget_sampler("macs<=9M, memory<=1MB"), "knows only what is counted.*allowed: params, macs"),
        (lambda: SPACE.identity_for("throughput >= 200"), "budget-aligned sampling knows only"),
        (lambda: SPACE.cost_range("latency"), "unknown metric"),
        (lambda: written("flops", 1), "unknown metric"),
    ],
)
def test_refused(make, rule: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is what is tested
        make()
    assert re.search(rule, str(caught.value))
    assert "\n" not in str(caught.value)


def test_the_counted_part_is_what_samples() -> None:
    budget = Budget.of("macs: 3M..5M, latency <= 8ms")
    drawn = SPACE.budget_sampler(budget.counted).vectors(np.random.default_rng(0), 20)
    assert budget.counted.satisfied(costs.cost(drawn, space=SPACE)).all()
