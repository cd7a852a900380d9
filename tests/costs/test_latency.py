"""Latency by its laws: fake clocks, networks whose time is known, memory counted by hand. No test knows the time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from conftest import NANO_SPACES, some_archs
from vitruvius import Arch, Budget, costs, spaces, zoo
from vitruvius.arrays import arrays_of
from vitruvius.costs import latency
from vitruvius.costs.latency import (
    Predictor,
    Prepared,
    Setting,
    Timing,
    _build,
    _interpolate,
    _parts,
    _timing,
    build_predictor,
    measure_works,
)
from vitruvius.models import build

SMALL = Setting(img_size=32, num_classes=10)
SECONDS = st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=60)


# -- statistics --------------------------------------------------------------------------------------------------------


@given(samples=SECONDS, factor=st.floats(0.01, 100), seed=st.integers(0, 99))
def test_a_timing_is_a_median_with_quartiles(samples: list[float], factor: float, seed: int) -> None:
    timing = Timing.of(samples)
    assert timing.least <= timing.low <= timing.seconds <= timing.high
    below = sum(value <= timing.seconds for value in samples)
    above = sum(value >= timing.seconds for value in samples)
    assert min(below, above) >= len(samples) / 2 or len(samples) % 2 == 0
    shuffled = np.random.default_rng(seed).permutation(samples)
    assert Timing.of(shuffled) == timing
    scaled = Timing.of(shuffled * factor)
    assert scaled.seconds == pytest.approx(factor * timing.seconds)
    assert scaled.spread == pytest.approx(timing.spread, rel=1e-6, abs=1e-9)


@given(seconds=st.floats(0, 1e3))
def test_short_runs_are_called_until_a_slot_is_full(seconds: float) -> None:
    calls = _timing.calls_of(seconds)
    assert 1 <= calls <= 50
    assert calls == 50 or calls * seconds >= 1e-3
    assert calls == 1 or (calls - 1) * seconds < 1e-3


@dataclass
class Machine:
    """A machine whose time is known: every call takes what it takes, times a drift."""

    drift: Callable[[float], float] = lambda now: 1.0
    now: float = 0.0

    def run(self, seconds: float) -> Callable[[], None]:
        def call() -> None:
            self.now += seconds * self.drift(self.now)

        return call

    def clock(self) -> _timing.HostClock:
        return _timing.HostClock(lambda: self.now)


def test_turns_give_every_run_its_own_time() -> None:
    machine, true = Machine(), [0.5, 1e-4, 3e-2]
    runs = [machine.run(seconds) for seconds in true]
    seconds = _timing.in_turns(runs, machine.clock(), repeats=7, warmup=2, rng=np.random.default_rng(0))
    assert seconds.shape == (3, 7)
    np.testing.assert_allclose(seconds, np.repeat(np.array(true)[:, None], 7, axis=1), rtol=1e-6)


def test_drift_hits_all_alike() -> None:
    """A machine that becomes three times slower: the ratios of medians are those of the true times, which they are
    not when one run follows the other."""
    true = [0.10, 0.11, 0.12]
    total = 41 * sum(true)
    drift = lambda now: 1.0 + 2.0 * min(now / (2 * total), 1.0)  # noqa: E731
    machine = Machine(drift)
    runs = [machine.run(seconds) for seconds in true]
    turns = _timing.in_turns(runs, machine.clock(), repeats=41, warmup=0, rng=np.random.default_rng(0))
    medians = np.median(turns, axis=1)
    np.testing.assert_allclose(medians / medians[0], np.array(true) / true[0], rtol=0.03)
    machine = Machine(drift)
    clock, after = machine.clock(), []
    for seconds in true:
        run = machine.run(seconds)
        after.append(np.median([clock.time(run, 1) for _ in range(41)]))
    assert abs(after[2] / after[0] / 1.2 - 1) > 0.2


def test_every_repeat_visits_every_run_once_in_an_order_of_its_own() -> None:
    machine, visits = Machine(), []

    def noting(place: int) -> Callable[[], None]:
        run = machine.run(0.1)
        return lambda: (visits.append(place), run())[1]

    _timing.in_turns([noting(i) for i in range(5)], machine.clock(), repeats=9, warmup=0, rng=np.random.default_rng(0))
    rounds = np.array(visits[5:]).reshape(9, 5)  # the first five estimate how long a call takes
    assert (np.sort(rounds, axis=1) == np.arange(5)).all()
    assert len(np.unique(rounds, axis=0)) > 1


# -- measuring, with a fake machine ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fake:
    """A workload that takes a known time on a fake machine."""

    name: str
    seconds: float

    def module(self, setting: Setting) -> Any:
        raise AssertionError("never built")

    shape = module


def measured_on(machine: Machine, works: Sequence[Fake], prepared: list[str], **options: Any) -> list[Any]:
    def ready(work: Any, setting: Setting) -> Prepared:
        prepared.append(work.name)
        return Prepared(machine.run(work.seconds), resident=10, live=5)

    return measure_works(works, SMALL, clock=machine.clock(), ready=ready, **options)


def test_measurements_are_kept_and_found_again(tmp_path: Path) -> None:
    machine, file = Machine(), tmp_path / "deep" / "cache.jsonl"
    works = [Fake("a", 0.1), Fake("b", 0.2), Fake("a", 0.1)]
    prepared: list[str] = []
    first = measured_on(machine, works, prepared, repeats=5, cache=file)
    assert sorted(prepared) == ["a", "b"]
    assert [each.latency for each in first] == pytest.approx([0.1, 0.2, 0.1])
    assert [each.throughput for each in first] == pytest.approx([10, 5, 10])
    assert first[0].memory == 15
    assert not any(each.cached for each in first)
    again = measured_on(machine, works, prepared, repeats=4, cache=file)
    assert sorted(prepared) == ["a", "b"]
    assert all(each.cached for each in again)
    assert [replace(each, cached=False) for each in again] == first
    measured_on(machine, works, prepared, repeats=6, cache=file)  # more repeats than are known
    assert len(prepared) == 4


@pytest.mark.parametrize(
    "changed",
    [{"batch": 2}, {"threads": 2}, {"dtype": "bfloat16"}, {"img_size": 64}, {"clock": "cpu"}, {"runtime": "onnx"}],
)
def test_another_setting_is_another_measurement(tmp_path: Path, changed: dict[str, Any]) -> None:
    file = tmp_path / "cache.jsonl"
    latency.MeasurementCache(file, SMALL).put("a", {"repeats": 9})
    assert latency.MeasurementCache(file, SMALL).get("a", 9) is not None
    assert latency.MeasurementCache(file, replace(SMALL, **changed)).get("a", 1) is None


def test_other_versions_and_machines_are_other_measurements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vitruvius.costs.latency import _cache

    file = tmp_path / "cache.jsonl"
    latency.MeasurementCache(file, SMALL).put("a", {"repeats": 9})
    for name, other in (("versions_of", lambda setting: {"torch": "9"}), ("machine_of", lambda setting: "another")):
        with monkeypatch.context() as patch:
            patch.setattr(_cache, name, other)
            assert latency.MeasurementCache(file, SMALL).get("a", 1) is None


def test_the_cache_survives_a_kill_at_every_byte(tmp_path: Path) -> None:
    """Cut anywhere, it has every whole line, and takes new ones."""
    file = tmp_path / "cache.jsonl"
    cache = latency.MeasurementCache(file, SMALL)
    for name in "abc":
        cache.put(name, {"repeats": 1, "seconds": 0.5})
    whole = file.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(0, len(whole) + 1, 7):
        file.write_bytes(whole[:cut])
        latency.MeasurementCache(file, SMALL).put("d", {"repeats": 1})
        after = latency.MeasurementCache(file, SMALL)
        assert after.get("d", 1) == {"repeats": 1}
        for name, end in zip("abc", ends, strict=True):
            if end <= cut:
                assert after.get(name, 1) is not None


def test_a_killed_measurement_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vitruvius.costs.latency import _measure

    monkeypatch.setattr(_measure, "_MOST_TOGETHER", 2)
    file, machine, works = tmp_path / "cache.jsonl", Machine(), [Fake(name, 0.1) for name in "abcdefg"]

    class Killed(Exception):
        pass

    def progress(done: int, total: int, what: str) -> None:
        if done > total / 2:
            raise Killed

    prepared: list[str] = []
    with pytest.raises(Killed):
        measured_on(machine, works, prepared, repeats=3, cache=file, progress=progress)
    begun = len(prepared)
    finished = sum(1 for _ in file.open())
    assert 0 < finished < 7
    found = measured_on(machine, works, prepared, repeats=3, cache=file)
    assert len(prepared) - begun == 7 - finished
    assert [each.latency for each in found] == pytest.approx([0.1] * 7)


# -- real networks, without looking at the clock -----------------------------------------------------------------------


def test_networks_are_measured_in_their_order() -> None:
    archs = some_archs(spaces.load("vitas-nano"), 3)
    seen: list[tuple[int, int]] = []
    threads = torch.get_num_threads()
    found = latency.measure(archs, SMALL, repeats=3, progress=lambda done, total, what: seen.append((done, total)))
    assert [each.name for each in found] == [arch.id for arch in archs]
    assert seen[-1][0] == seen[-1][1] == 3 * 4
    assert torch.get_num_threads() == threads
    for arch, each in zip(archs, found, strict=True):
        assert each.timing.repeats == 3
        assert each.resident == 4 * costs.params(arch, img_size=32, num_classes=10)
    assert Budget.of("latency <= 100s, memory <= 1GB, throughput >= 0").satisfied(found[0].costs())


def test_onnx_runtime_computes_the_same() -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    work = latency.Network(spaces.load("vitas-nano").smallest)
    ours = latency.prepare(work, replace(SMALL, batch=2)).run()
    prepared = latency.prepare(work, replace(SMALL, batch=2, runtime="onnx"))
    np.testing.assert_allclose(prepared.run()[0], ours.numpy(), atol=1e-5)
    assert prepared.live is None


def test_live_bytes_by_hand() -> None:
    """While the GELU runs, the input, its own input and its result are alive; and views are no memory."""
    network = nn.Sequential(nn.Linear(8, 100), nn.GELU(), nn.Linear(100, 8), nn.Flatten())
    x = torch.zeros(3, 8)
    assert latency.live_bytes(network, x) == 4 * 3 * (8 + 100 + 100)
    assert latency.live_bytes(nn.Flatten(), x) == 4 * 3 * 8
    assert latency.live_bytes(nn.ReLU(inplace=True), x) == 4 * 3 * 8
    assert latency.live_bytes(network, torch.zeros(6, 8)) == 2 * latency.live_bytes(network, x)


def test_half_the_bytes_in_half_precision() -> None:
    work = latency.Network(spaces.load("vitas-nano").smallest)
    full, half = (latency.prepare(work, replace(SMALL, dtype=dtype)) for dtype in ("float32", "bfloat16"))
    assert full.resident == 2 * half.resident


# -- parts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*NANO_SPACES, "vit-resnas-tiny", "pit-ti", "s3"])
def test_a_spaces_parts_are_all_that_its_networks_use(name: str) -> None:
    space = spaces.load(name)
    vectors = space.sample_vectors(np.random.default_rng(0), 3000)
    parts = _parts.parts_of_space(space, space.img_size)
    for kind, uses in _parts.uses_of(space.arrays(vectors), space.img_size).items():
        known = set(map(tuple, parts[kind].tolist()))
        used = {tuple(row) for use in uses for row in use.rows.tolist()}
        assert used <= known
        if name.endswith("-nano"):
            assert used == known


def parts_of(arch: Arch, img_size: int) -> list[_parts.Part]:
    uses = _parts.uses_of(arrays_of([arch]), img_size)
    fixed = (arch.family, arch.positions, arch.class_token, arch.pool)
    rows = [(kind, tuple(row)) for kind, each in uses.items() for use in each for row in use.rows.tolist()]
    return [_parts.Part(*fixed, kind, row) for kind, row in rows]


@pytest.mark.parametrize("name", NANO_SPACES)
def test_a_network_is_its_parts(name: str) -> None:
    """Parameters, buffers and MACs of the parts, cut out one by one, sum to those of the network."""
    from torch.utils.flop_counter import FlopCounterMode

    for arch in some_archs(spaces.load(name), 4):
        held, macs = 0, 0
        for part in parts_of(arch, 32):
            module = part.module(SMALL)
            held += sum(t.numel() for t in (*module.parameters(), *module.buffers()))
            with FlopCounterMode(display=False) as counter, torch.no_grad():
                module(torch.zeros(1, *part.shape(SMALL)))
            macs += counter.get_total_flops() // 2
        model = build(arch, img_size=32, num_classes=10)
        assert held == sum(t.numel() for t in (*model.parameters(), *model.buffers()))
        assert macs == costs.macs(arch, img_size=32, num_classes=10)


# -- the predictor, on networks whose time is a sum --------------------------------------------------------------------


def part_seconds(part: _parts.Part) -> float:
    """Smooth in the widths, and another for every kind, grid and mixer."""
    value = dict(zip(_parts.FIELDS[part.kind], part.row, strict=True))
    macs = value.get("dim", 1) * (value.get("qk", 0) + value.get("v", 0) + value.get("mlp", 0) + 1)
    kind = 1 + list(_parts.FIELDS).index(part.kind) + value.get("mixer", 0)
    return 1e-6 * kind * (5 + value.get("high", 1)) * (1 + macs / 1e3 + value.get("heads", 0))


def additive(base: float, scale: float, noise: float = 0.0) -> Callable[..., list[Any]]:
    rng = np.random.default_rng(7)

    def measuring(works: Sequence[Any], setting: Setting, **options: Any) -> list[Any]:
        found = []
        for work in works:
            if isinstance(work, _parts.Part):
                seconds = part_seconds(work)
            else:
                seconds = base + scale * sum(map(part_seconds, parts_of(work.arch, setting.img_size)))
            seconds *= float(np.exp(noise * rng.standard_normal()))
            found.append(latency.Measured(work.name, setting.batch, Timing.of([seconds] * 3), 100, 10))
        return found

    return measuring


@pytest.mark.parametrize("name", NANO_SPACES)
def test_the_predictor_recovers_a_sum(name: str) -> None:
    space = spaces.load(name)
    said: list[str] = []
    made = build_predictor(space, SMALL, measuring=additive(3e-4, 1.3), say=said.append)
    assert made.accuracy[0].spearman == pytest.approx(1)
    assert made.accuracy[0].error_90 < 1e-6
    vectors = space.sample_vectors(np.random.default_rng(9), 200)
    archs = space.decode_many(vectors)
    true = np.array([3e-4 + 1.3 * sum(map(part_seconds, parts_of(arch, 32))) for arch in archs])
    for asked in (vectors, archs):
        found = made(asked)
        np.testing.assert_allclose(found["latency"], true, rtol=1e-6)
        np.testing.assert_allclose(found["throughput"], 1 / true, rtol=1e-6)
    assert made(archs[0])["latency"].shape == made(vectors[0])["latency"].shape == (1,)
    assert made([])["latency"].shape == (0,)
    assert said == [made.report()]
    assert re.search(r"predictor +1\.000", said[0])
    assert "macs" in said[0]
    assert "params" in said[0]


@pytest.mark.parametrize("name", ["vitas-deit-tiny", "vitas-twins-nano", "pit-nano"])
def test_parts_that_are_not_measured_are_interpolated(name: str) -> None:
    space = spaces.load(name)
    setting = Setting(img_size=space.img_size)
    most = 150
    made = build_predictor(space, setting, measuring=additive(1e-4, 1.0), most_parts=most, say=lambda report: None)
    assert made.parts_measured < made.parts
    assert made.accuracy[0].spearman > 0.99
    assert made.accuracy[0].median_error < 0.02


def test_noise_does_not_carry_the_predictor_away() -> None:
    made = build_predictor(
        spaces.load("s3-nano"), SMALL, measuring=additive(3e-4, 1.3, noise=0.1), held_out=100, say=lambda report: None
    )
    assert made.accuracy[0].median_error < 0.1
    said, measured = np.array(made.checked).T  # what its accuracy was counted from, for whoever draws it
    assert made.held_out == len(said) == 100
    assert np.median(np.abs(said / measured - 1)) == pytest.approx(made.accuracy[0].median_error)


def test_predictions_never_fall_when_a_part_is_added() -> None:
    """Coefficients are at least zero: a network with a wider MLP or another block is never told to be faster."""
    space = spaces.load("autoformer-nano")
    made = build_predictor(space, SMALL, measuring=additive(1e-4, 1.0, noise=0.3), say=lambda report: None)
    assert (made.coefficients >= 0).all()
    vectors = space.sample_vectors(np.random.default_rng(0), 50)
    depth = space.layout.column("depth", 0)
    assert depth is not None
    deeper = vectors.copy()
    deeper[:, depth] = np.minimum(deeper[:, depth] + 1, 3)
    assert (made(deeper)["latency"] >= made(vectors)["latency"]).all()


def test_a_predictor_is_saved_and_loaded(tmp_path: Path) -> None:
    space = spaces.load("vitas-twins-nano")
    made = build_predictor(space, SMALL, measuring=additive(3e-4, 1.3, noise=0.05), say=lambda report: None)
    made.save(tmp_path / "deep" / "predictor.json")
    again = Predictor.load(tmp_path / "deep" / "predictor.json")
    assert again.checked == made.checked
    assert again.space == space
    assert again.setting == SMALL
    assert again.report() == made.report()
    vectors = space.sample_vectors(np.random.default_rng(1), 100)
    for metric, values in made(vectors).items():
        assert (again(vectors)[metric] == values).all()


@pytest.mark.parametrize("name", NANO_SPACES)
def test_memory_is_told_to_the_byte(name: str) -> None:
    """Parameters and buffers are a sum, and the peak is that of one part and what is held beside it."""
    space = spaces.load(name)
    archs = some_archs(space, 5)
    parts = list(dict.fromkeys(part for arch in archs for part in parts_of(arch, 32)))
    setting = replace(SMALL, batch=2)
    tables = {}
    for kind, fields in _parts.FIELDS.items():
        ours = [part for part in parts if part.kind == kind]
        ready = [latency.prepare(part, setting) for part in ours]
        rows = np.array([part.row for part in ours], dtype=np.int64).reshape(-1, len(fields))
        seconds = np.ones(len(ours))
        resident, live = (np.array([getattr(r, name) for r in ready], dtype=np.int64) for name in ("resident", "live"))
        tables[kind] = latency._predictor.Table(kind, rows, seconds, resident, live)
    told = latency._predictor.summed(tables, arrays_of(archs), setting).memory
    real = [latency.prepare(latency.Network(arch), setting) for arch in archs]
    assert told.tolist() == [each.resident + each.live for each in real]


def test_the_winner_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    space = spaces.load("vitas-nano")
    made = build_predictor(space, SMALL, measuring=additive(3e-4, 1.3), say=lambda report: None)
    (verified,) = made.verify(space.smallest, repeats=2)
    assert verified.measured.timing.repeats == 2
    assert verified.predicted["latency"] == made(space.smallest)["latency"][0]
    assert verified.error == verified.predicted["latency"] / verified.measured.latency - 1
    elsewhere = replace(made, machine="another")
    assert "on the machine it was made on" in complaint(lambda: elsewhere.verify(space.smallest))


def test_a_real_predictor_is_built_and_cached(tmp_path: Path) -> None:
    space, cache = spaces.load("autoformer-nano"), tmp_path / "cache.jsonl"
    options: dict[str, Any] = {"calibration": 4, "held_out": 3, "repeats": 2, "cache": cache}
    made = build_predictor(space, SMALL, say=lambda report: None, **options)
    lines = len(cache.read_text().splitlines())
    assert lines == made.parts + 4 + 3
    again = build_predictor(space, SMALL, say=lambda report: None, **options)
    assert len(cache.read_text().splitlines()) == lines
    assert (again.coefficients == made.coefficients).all()
    assert (made(space.smallest)["latency"] < made(space.largest)["latency"]).all()


def test_designed_subsets_span_every_group() -> None:
    parts = _parts.parts_of_space(spaces.load("vitas-deit-tiny"), 224)
    chosen = _interpolate.designed(parts, 400)
    count = sum(int(mask.sum()) for mask in chosen.values())
    assert 300 <= count <= 500
    for kind, rows in parts.items():
        picked = rows[chosen[kind]]
        assert (picked.min(axis=0) == rows.min(axis=0)).all() if len(rows) else not len(picked)
        assert (picked.max(axis=0) == rows.max(axis=0)).all() if len(rows) else not len(picked)
    assert all(mask.all() for mask in _interpolate.designed(parts, 10_000).values())


# -- malformed ---------------------------------------------------------------------------------------------------------


def complaint(make: Callable[[], object]) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is what is tested
        make()
    text = str(caught.value)
    assert "\n" not in text
    assert "allowed: " in text
    return text


DEIT = zoo.load("deit-tiny")
VITAS = spaces.load("vitas-nano")


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: Setting(img_size=0), "an image size is"),
        (lambda: Setting(batch=0), "the batch must be a positive"),
        (lambda: Setting(threads=2.0), "number of threads must be a positive"),
        (lambda: Setting(num_classes=-1), "num_classes must be"),
        (lambda: Setting(device="tpu"), "unknown device; got 'tpu'"),
        (lambda: Setting(device="cuda:x"), "unknown device"),
        (lambda: Setting(dtype="float8"), "unknown dtype"),
        (lambda: Setting(runtime="tvm"), "unknown runtime"),
        (lambda: Setting(clock="sundial"), "unknown clock"),
        (lambda: Setting(compiled=1), "compiled must be true or false"),
        (lambda: Setting(clock="cpu", threads=2), "counts one thread of the CPU; got 'cpu, 2 threads'"),
        (lambda: Setting(clock="cpu", device="cuda"), "counts one thread of the CPU"),
        (lambda: Setting(runtime="onnx", compiled=True), "ONNX Runtime is timed on the CPU"),
        (lambda: Setting(runtime="onnx", dtype="float16"), "ONNX Runtime is timed on the CPU"),
        (lambda: Setting.from_dict({"bach": 1}), "unknown key in a latency setting.*did you mean 'batch'"),
        (lambda: latency.measure("deit-tiny"), "latency is measured of an Arch"),
        (lambda: latency.measure([DEIT, 3]), "latency is measured of an Arch"),
        (lambda: latency.measure(DEIT, SMALL, repeats=0), "number of repeats must be a positive"),
        (lambda: latency.measure(DEIT, SMALL, warmup=-1), "warm-up calls must be"),
        (lambda: latency.measure(DEIT, Setting(img_size=100)), "an image side must fit"),
        (lambda: Timing.of([]), "a timing is made of repeats"),
        (lambda: Timing.of([0.1, float("nan")]), "a timing is made of repeats"),
        (lambda: build_predictor("vitas-nano"), "a predictor is built for a Space"),
        (lambda: build_predictor(VITAS, calibration=2), "calibration must be a number of networks"),
        (lambda: build_predictor(VITAS, held_out=0), "held_out must be a number of networks"),
        (lambda: build_predictor(VITAS, most_parts=0), "most_parts must be a positive"),
        (lambda: build_predictor(VITAS, calibration=5000), "too few different networks"),
        (lambda: Predictor.load("nowhere.json"), "cannot be read .No such file"),
        (lambda: PREDICTOR(DEIT), "made for another kind|has no such"),
        (lambda: PREDICTOR("deit"), "a predictor takes an Arch"),
        (lambda: PREDICTOR(spaces.load("s3-nano").smallest), "made for another kind of networks"),
        (lambda: PREDICTOR(np.zeros((1, 3), dtype=int)), "encoded architectures of"),
    ],
)
def test_malformed(make: Callable[[], object], rule: str) -> None:
    assert re.search(rule, complaint(make))


PREDICTOR = build_predictor(VITAS, SMALL, measuring=additive(1e-4, 1.0), say=lambda report: None)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu_is_said_at_once() -> None:
    assert "no CUDA device" in complaint(lambda: latency.measure(DEIT, Setting(device="cuda")))


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from vitruvius.costs.latency import _setting

    monkeypatch.setattr(_setting, "find_spec", lambda name: None)
    text = complaint(lambda: latency.measure(DEIT, Setting(runtime="onnx")))
    assert "pip install 'vitruvius[onnx]'" in text

    def broken(module: Any) -> Any:
        raise RuntimeError("no working C++ compiler found\nlong story")

    monkeypatch.setattr(torch, "compile", broken)
    _setting._require_compiler.cache_clear()
    text = complaint(lambda: latency.measure(DEIT, Setting(compiled=True)))
    assert "torch.compile does not work here (no working C++ compiler found)" in text
    _setting._require_compiler.cache_clear()


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"version": 99}, "unknown version of a latency predictor"),
        ({"tables": {}}, "its tables needs the key"),
        ({"setting": {"device": "tpu"}}, "unknown device"),
        ({"space": {}}, "a space needs the key"),
        ({"surprise": 1}, "unknown key in a latency predictor"),
    ],
)
def test_malformed_predictors(tmp_path: Path, change: dict[str, Any], rule: str) -> None:
    file = tmp_path / "predictor.json"
    PREDICTOR.save(file)
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    assert re.search(rule, complaint(lambda: Predictor.load(file)))
    file.write_text("{")
    assert "not JSON" in complaint(lambda: Predictor.load(file))


def test_no_correction_fits_nothing() -> None:
    assert "no sum of parts fits" in complaint(lambda: _build._relative_nnls(-np.ones((3, 2)), np.ones(3)))
