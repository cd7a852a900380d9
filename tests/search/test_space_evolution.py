from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import NANO_SPACES
from vitruvius import Arch, Space, spaces
from vitruvius.arch import token_grids
from vitruvius.search import Domain
from vitruvius.search._subspaces import chosen
from vitruvius.search.space_evolution import (
    ETTable,
    Rules,
    at_space,
    default_steps,
    dimensions_of,
    draw_sample,
    e_t_error,
    evolve,
    fit_line,
    measure,
    moved_by,
    resolve_steps,
    search_the_space,
    steps_asked,
)

FEW = Rules(archs=60, top=6, least=5, resamples=50)
finite = st.floats(-50, 50, allow_nan=False)


# -- Eq. 5, 7 and 8 by hand -------------------------------------------------------------------------------------------


def test_e_t_error_by_hand() -> None:
    errors = np.array([30.0, 20.0, 50.0, 40.0])
    assert e_t_error(errors, 2) == (35 + 25) / 2
    assert e_t_error(errors, 1) == (35 + 20) / 2
    assert e_t_error(errors, 4) == 35  # the top tier is everything


def test_line_by_hand() -> None:
    # Means 3 and 29: w = ((-1)(1) + (1)(0)) / 2 = -1/2, b = 29 + 3/2.
    slope, intercept = fit_line(np.array([2.0, 3.0, 4.0]), np.array([30.0, 28.0, 29.0]))
    assert (slope, intercept) == (-0.5, 30.5)


@given(st.lists(st.tuples(finite, finite), min_size=2, max_size=8, unique_by=lambda pair: round(pair[0])))
def test_line_is_numpys(points: list[tuple[float, float]]) -> None:
    x, y = np.array(points).T
    assert np.allclose(fit_line(x, y), np.polyfit(x, y, 1), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    ("slope", "toward_zero", "floor"),
    [
        (0.9, -2, -2),  # 2.25
        (0.4, -1, -1),
        (0.39, 0, 0),
        (0.0, 0, 0),
        (-0.01, 0, 1),  # as printed, any slope below zero moves
        (-0.39, 0, 1),
        (-0.4, 1, 1),
        (-0.9, 2, 3),
        (1.2, -3, -3),  # 1.2 / 0.4 is 2.9999999999999996
        (-1.2, 3, 3),
    ],
)
def test_steps_by_hand(slope: float, toward_zero: int, floor: int) -> None:
    assert steps_asked(slope, 0.4) == toward_zero
    assert steps_asked(slope, 0.4, "floor") == floor
    assert steps_asked(slope, 0.4, most=1) == max(-1, min(1, toward_zero))


@given(st.floats(-20, 20), st.floats(0.05, 5))
def test_both_roundings_agree_above_zero_and_differ_by_one_below(slope: float, tau: float) -> None:
    near, printed = steps_asked(slope, tau), steps_asked(slope, tau, "floor")
    assert printed - near in ((0, 1) if slope < 0 else (0,))
    assert abs(near) <= abs(slope) / tau + 1e-6
    assert near * slope <= 0
    assert near == 0 or abs(slope) >= tau * (1 - 1e-6)


def test_default_steps_of_s3_are_the_papers() -> None:
    steps = default_steps(spaces.load("s3"))
    printed = {"depth": 1, "dim": 64, "mlp_ratio": 0.5, "qkv": 64, "window": 7}
    assert steps == {f"stage{s}.{name}": step for s in range(1, 5) for name, step in printed.items()}


def test_steps_can_be_given() -> None:
    space = spaces.load("s3-nano")
    steps = resolve_steps(space, {"qkv": 8, "stage2.qkv": 24.0})
    assert (steps["stage1.qkv"], steps["stage2.qkv"], steps["stage3.qkv"]) == (8, 24, 8)
    assert type(steps["stage2.qkv"]) is int
    with pytest.raises(ValueError, match="did you mean"):
        resolve_steps(space, {"stage1.qvk": 8})
    with pytest.raises(ValueError, match="a positive number"):
        resolve_steps(space, {"qkv": 0})
    with pytest.raises(ValueError, match="must be whole"):
        resolve_steps(space, {"qkv": 0.5})


# -- moves ------------------------------------------------------------------------------------------------------------


def table_with(domain: Domain, slopes: dict[str, float], rules: Rules = FEW) -> ETTable:
    """A table whose lines have these slopes, and zero elsewhere."""
    sample = draw_sample(domain, rules)
    table = measure(domain, sample, np.full(len(sample.archs), 30.0), resolve_steps(domain.space, {}), rules)
    lines = tuple(replace(each, slope=slopes.get(each.dimension, 0.0), low=-1.0, high=1.0) for each in table.tendencies)
    return replace(table, tendencies=lines)


def moved(space: Space, slopes: dict[str, float], rules: Rules = FEW, budget: str | None = None) -> Space:
    domain = Domain(space, budget)
    return evolve(domain, table_with(domain, slopes, rules), rules).space


def test_eq_8_on_s3_by_hand() -> None:
    slopes = {
        "stage1.dim": 0.9,  # two steps of 64 down
        "stage4.dim": -1.7,  # four up
        "stage3.depth": -0.8,
        "stage1.depth": 0.5,
        "stage2.depth": 1.7,  # asked for four down; {2, 3, 4} - 3 leaves one choice, - 4 none
        "stage3.mlp_ratio": -0.45,
        "stage1.window": 0.4,  # {0, 7}, and the 0 drops
        "stage2.window": -0.4,  # {14, 21} on a grid of 28
        "stage3.window": -0.4,  # {14, 21} on a grid of 14
        "stage2.qkv": 0.39,  # inside tau
    }
    found = moved(spaces.load("s3"), slopes).dimensions
    expected = {
        "stage1.dim": (96, 128, 160),
        "stage4.dim": (480, 512, 544),
        "stage3.depth": (4, 5, 6),
        "stage1.depth": (1, 2, 3),
        "stage2.depth": (1,),
        "stage3.mlp_ratio": (3.5, 4, 4.5),
        "stage1.window": (7,),
        "stage2.window": (14, 21),
        "stage3.window": (14,),
    }
    assert found == {**spaces.load("s3").dimensions, **expected}


def test_heads_follow_from_the_q_k_v_width(rng: np.random.Generator) -> None:
    space = moved(spaces.load("s3"), {"stage2.qkv": 0.9})
    blocks = [block for _ in range(5) for block in space.sample(rng).stages[1].blocks]
    assert {block.qk for block in blocks} <= {96, 128, 160}
    assert all(block.heads == block.qk // 32 for block in blocks)


def test_moves_say_what_was_held_back_and_why() -> None:
    domain = Domain(spaces.load("s3"))
    evolved = evolve(domain, table_with(domain, {"stage2.depth": 1.7, "stage1.dim": -0.5}), FEW)
    by = {move.dimension: move for move in evolved.moves}
    assert (by["stage2.depth"].asked, by["stage2.depth"].taken) == (-4, -3)
    assert "no choice" in by["stage2.depth"].note
    assert (by["stage1.dim"].before, by["stage1.dim"].after) == ((224, 256, 288), (288, 320, 352))
    assert by["stage1.dim"].note == ""


def test_the_strongest_tendency_moves_first_within_m() -> None:
    space = spaces.load("s3-nano")
    slopes = {"stage1.depth": -0.5, "stage2.depth": -0.9}
    rules = replace(FEW, most_networks=moved(space, {"stage2.depth": -0.9}).networks)
    found = moved(space, slopes, rules)
    assert found.stages[1].depth == (3, 4, 5)
    assert found.stages[0].depth == (1, 2, 3)
    assert found.networks <= rules.most_networks
    # A space that is too large already may still shrink.
    assert moved(space, {"stage1.depth": 0.5}, replace(FEW, most_networks=1)).stages[0].depth == (1, 2)


def test_no_move_leaves_the_budget_without_networks() -> None:
    space = spaces.load("s3-nano")
    least, _ = space.cost_range("macs")
    found = moved(
        space, {f"stage{s}.{name}": -3.0 for s in (1, 2, 3) for name in ("dim", "qkv", "depth")}, budget="macs <= 4M"
    )
    assert found.cost_range("macs")[0] <= 4e6
    assert found.cost_range("macs")[0] > least


def test_dimensions_take_their_steps_in_turn() -> None:
    """A budget that one dimension could fill on its own is shared."""
    space = spaces.load("s3-nano")
    wide = moved_by(space, "stage1.dim", 64)
    budget = f"macs <= {wide.cost_range('macs')[0]}"
    found = moved(space, {"stage1.dim": -2.0, "stage3.dim": -1.9}, budget=budget).dimensions
    assert 32 < found["stage1.dim"][-1] < 96
    assert found["stage3.dim"][-1] > 128
    free = moved(space, {"stage1.dim": -2.0, "stage3.dim": -1.9}).dimensions
    assert (free["stage1.dim"], free["stage3.dim"]) == ((80, 88, 96), (320, 352, 384))


@pytest.mark.parametrize("blocks", ["alike", "free"])
def test_moves_leave_networks_to_draw_within_the_budget(blocks: str) -> None:
    space = spaces.load("s3-nano", img_size=8)
    rules = replace(FEW, blocks=blocks)
    slopes = {name: -3.0 for name in space.dimensions if name.endswith(("dim", "qkv", "mlp_ratio"))}
    found = moved(space, slopes, rules, budget="macs <= 600k")
    assert found != space
    sample = draw_sample(Domain(found, "macs <= 600k"), replace(rules, least=0))
    assert len(set(sample.archs)) >= rules.archs / 2 - 5  # other draws than those that decided
    domain = Domain(space, "macs <= 600k")
    notes = [move.note for move in evolve(domain, table_with(domain, slopes, rules), rules).moves]
    assert any("within the budget" in note for note in notes)


def test_windows_stop_moving_at_the_grid() -> None:
    space = spaces.load("s3")
    assert moved_by(space, "stage3.window", 70).dimensions["stage3.window"] == (14,)
    assert moved_by(space, "stage4.window", 7).dimensions["stage4.window"] == (7,)
    assert all(d.positions == (7, 7) for d in dimensions_of(space) if d.name == "stage4.window")


@pytest.mark.parametrize(
    ("by", "layers", "skips", "counts"),
    [
        (1, 7, (2, 4, 6), (4, 5, 6, 7)),
        (2, 8, (3, 5, 7), (5, 6, 7, 8)),
        (-1, 5, (0, 2, 4), (2, 3, 4, 5)),
        (-2, 4, (0, 1, 3), (1, 2, 3, 4)),
        (-3, 3, (0, 1, 2), (0, 1, 2, 3)),
        (-4, 2, (0, 1), (0, 1, 2)),
    ],
)
def test_skippable_layers_move_by_layers_that_are_never_skipped(
    by: int, layers: int, skips: tuple[int, ...], counts: tuple[int, ...]
) -> None:
    found = moved_by(spaces.load("vit-resnas-tiny"), "stage2.depth", by)
    assert (found.stages[1].layers, found.stages[1].skips) == (layers, skips)
    [depth] = [d for d in dimensions_of(found) if d.name == "stage2.depth"]
    assert depth.choices == counts


def test_widths_that_may_only_grow_drop_what_cannot_be_reached() -> None:
    space = spaces.load("vit-resnas-nano")  # 16..32, 32..64, 64..128
    found = moved_by(space, "stage1.dim", 32)
    assert found.dimensions["stage1.dim"] == (48, 56, 64)
    assert moved_by(found, "stage2.dim", -8).dimensions["stage2.dim"] == (56,)
    with pytest.raises(ValueError, match="can follow"):
        moved_by(space, "stage1.dim", 128)


@settings(max_examples=15, deadline=None)
@given(name=st.sampled_from(NANO_SPACES), seed=st.integers(0, 10**6), tau=st.sampled_from([0.1, 0.4]))
def test_whatever_the_errors_say_the_next_space_is_one(name: str, seed: int, tau: float) -> None:
    rng = np.random.default_rng(seed)
    rules = replace(FEW, tau=tau, resamples=5, least=0)
    domain = Domain(spaces.load(name))
    steps = resolve_steps(domain.space, {})
    for t in range(3):
        sample = draw_sample(domain, rules, seed + t)
        table = measure(domain, sample, rng.normal(30, 5, len(sample.archs)), steps, rules)
        assert ETTable.from_dict(table.to_dict()) == table
        evolved = evolve(domain, table, rules, f"{name}-{t + 1}")
        for move in evolved.moves:
            assert abs(move.taken) <= abs(move.asked)
            assert move.taken * move.asked >= 0
            assert bool(move.note) == (move.taken != move.asked)
        domain = at_space(domain, evolved.space)
        assert Space.from_yaml(domain.space.to_yaml()) == domain.space
        arch = domain.space.sample(rng)
        assert domain.space.contains(arch)
        token_grids(arch, domain.space.img_size)


# -- samples ----------------------------------------------------------------------------------------------------------


def value_of(space: Space, arch: Arch, name: str) -> object:
    """The choice of a dimension, read off the record; None where blocks differ or there are none."""
    where, _, parameter = name.rpartition(".")
    stages = [arch.stages[int(where[5:]) - 1]] if where else list(arch.stages)
    match parameter:
        case "depth":
            return len(stages[0].blocks)
        case "dim":
            return stages[0].dim
        case "head_dim":
            values = {block.qk // block.heads for stage in stages for block in stage.blocks}
        case "qkv":
            values = {block.qk for stage in stages for block in stage.blocks}
        case "mlp_ratio":
            values = {block.mlp / stage.dim for stage in stages for block in stage.blocks}
        case _:
            values = {getattr(block, parameter) for stage in stages for block in stage.blocks}
    return values.pop() if len(values) == 1 else None


@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("name", [*NANO_SPACES, "vitas-deit-tiny", "vit-resnas-tiny"])
def test_subspaces_hold_what_they_say(name: str, alike: bool) -> None:
    space = spaces.load(name)
    rules = replace(FEW, blocks="alike" if alike else "free")
    sample = draw_sample(Domain(space), rules, 3)
    assert sample.archs[: sample.drawn] == draw_sample(Domain(space), replace(rules, least=0), 3).archs[: sample.drawn]
    for dimension in dimensions_of(space):
        for index, choice in enumerate(dimension.choices):
            members = sample.members(dimension, index)
            assert len(members) >= rules.least or dimension.parameter == "depth", (dimension.name, choice)
            assert all(value_of(space, sample.archs[i], dimension.name) == choice for i in members)
        told = chosen(space, dimension, sample.vectors)
        if alike:
            assert (
                ((told >= 0) | ~np.array([bool(a.depth) for a in sample.archs])).all()
                or "twins" in name
                or "deit" in name
            )


def test_thin_subspaces_are_widened_within_the_budget() -> None:
    space = spaces.load("s3-nano")
    domain = Domain(space, "macs <= 3.2M")  # wide and deep networks are rare there
    rules = replace(FEW, archs=100, least=25)
    sample = draw_sample(domain, rules)
    assert domain.allows(sample.vectors).all()
    assert sample.widening
    for dimension in dimensions_of(space):
        for index in range(len(dimension.choices)):
            members = sample.members(dimension, index)
            own = members[members >= sample.drawn]
            base = int((chosen(space, dimension, sample.vectors[: sample.drawn]) == index).sum())
            assert len(own) in (0, max(0, rules.least - base))
            assert {sample.widening[i - sample.drawn] for i in own} <= {(dimension.name, index)}


def test_a_subspace_without_networks_in_the_budget_is_left_out_of_the_line() -> None:
    space = spaces.load("s3-nano")
    domain = Domain(space, "macs <= 2.3M")
    rules = replace(FEW, archs=40, top=4, least=4)
    sample = draw_sample(domain, rules)
    errors = np.array([float(sum(stage.dim for stage in arch.stages)) for arch in sample.archs])
    table = measure(domain, sample, errors, resolve_steps(space, {}), rules)
    empty = [(t.dimension, s.choice) for t in table.tendencies for s in t.subspaces if s.measured is None]
    assert empty
    for name, choice in empty:
        part = space.with_choices(name, (choice,))
        assert part.cost_range("macs", **domain.counting)[0] > 2.3e6 or name.endswith(("qkv", "mlp_ratio"))


def test_failed_architectures_count_for_nothing() -> None:
    domain = Domain(spaces.load("autoformer-nano"))
    sample = draw_sample(domain, FEW)
    errors = np.linspace(20, 40, len(sample.archs))
    errors[::7] = np.nan
    table = measure(domain, sample, errors, resolve_steps(domain.space, {}), FEW)
    assert table.whole.expected == pytest.approx(np.nanmean(errors[: sample.drawn]))
    with pytest.raises(ValueError, match="none was scored"):
        measure(domain, sample, np.full(len(errors), np.nan), resolve_steps(domain.space, {}), FEW)


def test_the_top_tier_of_a_subspace_is_the_same_part_of_it() -> None:
    domain = Domain(spaces.load("s3-nano"))
    rules = Rules(archs=300, top=30, least=50, resamples=10)
    sample = draw_sample(domain, rules)
    table = measure(domain, sample, np.arange(len(sample.archs), dtype=float), resolve_steps(domain.space, {}), rules)
    assert (table.whole.count, table.whole.top, table.whole.top_tier) == (300, 30, 14.5)
    for tendency in table.tendencies:
        for subspace in tendency.subspaces:
            assert subspace.measured is not None
            assert subspace.measured.top == round(subspace.measured.count / 10)
        counted = [s.measured.count - s.widened for s in tendency.subspaces if s.measured]
        assert sum(counted) == 300  # of like blocks, every architecture tells about every dimension


def test_intervals_cover_and_narrow() -> None:
    """95 % intervals of the slope cover the true one in most of 60 samples of pure noise, and narrow with N."""
    space = spaces.load("autoformer-nano")
    domain, steps = Domain(space), resolve_steps(space, {})
    covered, widths = 0, []
    for n in (100, 400):
        rules = Rules(archs=n, top=n // 10, least=0, resamples=200)
        for seed in range(30):
            sample = draw_sample(domain, rules, seed)
            noise = np.random.default_rng(seed).normal(30, 3, n)
            lines = measure(domain, sample, noise, steps, rules, seed).tendencies
            covered += sum(line.low <= 0 <= line.high for line in lines)  # type: ignore[operator]
            widths.append(np.mean([line.high - line.low for line in lines]))  # type: ignore[operator]
    assert 0.88 <= covered / (60 * 4) <= 1
    assert 1.6 < np.mean(widths[:30]) / np.mean(widths[30:]) < 2.4


# -- known slopes -----------------------------------------------------------------------------------------------------


def in_steps(space: Space, steps: dict[str, float], arch: Arch) -> dict[str, float]:
    """What each dimension of a network comes to, in steps: the mean over a stage's blocks."""
    found = {}
    for name, step in steps.items():
        where, _, parameter = name.rpartition(".")
        stage = arch.stages[int(where[5:]) - 1]
        values = {
            "dim": [stage.dim],
            "depth": [len(stage.blocks)],
            "qkv": [block.qk for block in stage.blocks],
            "mlp": [block.mlp for block in stage.blocks],
            "heads": [block.heads for block in stage.blocks],
            "mlp_ratio": [block.mlp / stage.dim for block in stage.blocks],
            "window": [block.window for block in stage.blocks],
        }[parameter]
        found[name] = float(np.mean(values)) / step if values else 0.0
    return found


@pytest.mark.parametrize("blocks", ["alike", "free"])
@pytest.mark.parametrize("name", ["s3-nano", "autoformer-nano", "vit-resnas-nano", "vitas-nano", "vitas-twins-nano"])
def test_the_space_moves_against_every_slope(name: str, blocks: str) -> None:
    space = spaces.load(name)
    rules = Rules(archs=1600, top=160, least=400, blocks=blocks, most_steps=1, resamples=100)
    steps = resolve_steps(space, {})
    slopes = {dimension: (1.0 if i % 2 else -1.0) for i, dimension in enumerate(steps)}
    domain = Domain(space)
    sample = draw_sample(domain, rules)
    errors = [50 + sum(slopes[d] * x for d, x in in_steps(space, steps, arch).items()) for arch in sample.archs]
    table = measure(domain, sample, errors, steps, rules)
    for tendency in table.tendencies:
        true = slopes[tendency.dimension]
        if not (blocks == "free" and tendency.dimension.endswith("depth")):
            assert tendency.low is not None
            assert tendency.high is not None
            assert tendency.low - 0.25 <= true <= tendency.high + 0.25
        assert tendency.slope is not None
        assert tendency.slope * true > 0.3
    for move in evolve(domain, table, rules).moves:
        assert move.asked == -slopes[move.dimension]
        assert move.taken == move.asked or move.note


def test_slopes_inside_tau_move_nothing() -> None:
    space = spaces.load("s3-nano")
    steps = resolve_steps(space, {})
    rules = Rules(archs=400, top=40, least=50, resamples=20)

    def errors_of(archs: Sequence[Arch]) -> list[float]:
        return [30 + 0.05 * sum(in_steps(space, steps, arch).values()) for arch in archs]

    iterations = list(search_the_space(Domain(space), errors_of, rules, iterations=5))
    assert len(iterations) == 1  # a space that does not move is the last
    assert iterations[0].evolved is not None
    assert not iterations[0].evolved.moved
    assert iterations[0].evolved.space == replace(space, name="s3-nano-1")


def test_confident_moves_need_an_interval_without_zero() -> None:
    domain = Domain(spaces.load("s3-nano"))
    table = table_with(domain, {"stage1.dim": 0.9})  # its interval is -1 to 1
    assert evolve(domain, table, FEW).moved
    assert not evolve(domain, table, replace(FEW, confident=True)).moved


@pytest.mark.parametrize("blocks", ["alike", "free"])
def test_the_space_ends_around_the_optimum(blocks: str) -> None:
    """Errors that grow with the square of the distance from one network: steps stop where the slope is inside tau."""
    space = spaces.load("s3-nano", img_size=16, alike=True)
    steps = resolve_steps(space, {})
    optimum = {"dim": (40, 80, 96), "depth": (2, 4, 6), "qkv": (24, 56, 120), "mlp_ratio": (2, 4, 5)}
    targets = {
        name: optimum[p][int(name[5]) - 1] / steps[name] for name in steps if (p := name.rpartition(".")[2]) in optimum
    }
    curve = 0.15

    def errors_of(archs: Sequence[Arch]) -> list[float]:
        values = (in_steps(space, steps, arch) for arch in archs)
        return [10 + sum(curve * (x[name] - target) ** 2 for name, target in targets.items()) for x in values]

    rules = Rules(archs=300, top=30, least=60, blocks=blocks, resamples=20)
    *_, last = search_the_space(Domain(space), errors_of, rules, iterations=12)
    first, *_ = search_the_space(Domain(space), errors_of, rules, iterations=0)
    for name, target in targets.items():
        middle = np.mean(last.domain.space.dimensions[name]) / steps[name]
        # tau / 2 curve, and what a sample's noise adds
        assert abs(middle - target) <= 0.4 / (2 * curve) + 1.0, (name, middle, target)
    assert last.table.whole.error < first.table.whole.error / 2


def test_bad_rules_are_refused() -> None:
    for given_rules, rule in (
        ({"archs": 0}, "archs"),
        ({"top": 2000}, "top tier"),
        ({"tau": 0}, "tau"),
        ({"blocks": "same"}, "blocks"),
        ({"rounding": "up"}, "rounding"),
        ({"most_steps": 0}, "most_steps"),
        ({"level": 1}, "level"),
    ):
        with pytest.raises(ValueError, match=rule):
            Rules(**given_rules)
