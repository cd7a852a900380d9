"""Networks, and parts of them, timed side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vitruvius.arch import Arch, refuse
from vitruvius.costs.latency._cache import MeasurementCache
from vitruvius.costs.latency._setting import Setting, require_available
from vitruvius.costs.latency._timing import Clock, Progress, Run, Timing, clock_of, in_turns, torch_threads
from vitruvius.costs.latency._workloads import Network, Prepared, Workload, prepare

REPEATS, WARMUP = 31, 3
_MOST_RESIDENT = 2**30
"""Bytes of parameters of workloads that take turns; more of them are measured group after group."""
_MOST_TOGETHER = 1024


@dataclass(frozen=True, slots=True)
class Measured:
    """What one workload took."""

    name: str
    batch: int
    timing: Timing
    resident: int
    live: int | None
    cached: bool = False

    @property
    def latency(self) -> float:
        """Seconds of one batch: the median."""
        return self.timing.seconds

    @property
    def throughput(self) -> float:
        """Images a second."""
        return self.batch / self.timing.seconds

    @property
    def memory(self) -> int | None:
        """Bytes at the peak of a forward pass, parameters included; None where the runtime does not say."""
        return None if self.live is None else self.resident + self.live

    def costs(self) -> dict[str, float]:
        """What a budget asks for."""
        known = {"latency": self.latency, "throughput": self.throughput}
        return known if self.memory is None else {**known, "memory": float(self.memory)}

    def _values(self) -> dict[str, Any]:
        return {**asdict(self.timing), "resident": self.resident, "live": self.live}

    @classmethod
    def _from_values(cls, name: str, batch: int, values: Mapping[str, Any], cached: bool) -> Measured:
        timing = Timing(**{key: values[key] for key in ("seconds", "low", "high", "least", "repeats")})
        return cls(name, batch, timing, values["resident"], values["live"], cached)


def measure(
    archs: Arch | Sequence[Arch],
    setting: Setting | None = None,
    *,
    repeats: int = REPEATS,
    warmup: int = WARMUP,
    cache: Path | str | None = None,
    progress: Progress | None = None,
) -> list[Measured]:
    """Times plain networks, all in turns, and gives the medians of their repeats.

    cache: a JSONL file in which measurements are looked up and kept (`default_cache()`, say); none unless named.
    """
    archs = [archs] if isinstance(archs, Arch) else archs
    if not isinstance(archs, Sequence) or not all(isinstance(arch, Arch) for arch in archs):
        refuse("latency is measured of an Arch or a list of them", type(archs).__name__, "zoo.load('s3-tiny'), say")
    works = [Network(arch) for arch in archs]
    return measure_works(works, setting or Setting(), repeats=repeats, warmup=warmup, cache=cache, progress=progress)


def measure_works(
    works: Sequence[Workload],
    setting: Setting,
    *,
    repeats: int = REPEATS,
    warmup: int = WARMUP,
    cache: Path | str | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
    ready: Callable[[Workload, Setting], Prepared] = prepare,
) -> list[Measured]:
    """`measure`, of any workloads. `clock` and `ready` are replaced by tests, which have no time."""
    require_available(setting)
    kept = MeasurementCache(cache, setting)
    known = {work.name: work for work in works}
    missing = [work for name, work in known.items() if kept.get(name, repeats) is None]
    done, total = 0, max(len(missing) * (repeats + 1), 1)
    fresh = set()

    def tick(count: int, what: str) -> None:
        nonlocal done
        done = min(done + count, total)
        if progress is not None:
            progress(done, total, what)

    with torch_threads(setting):
        rng = np.random.default_rng(0)
        for group, prepared in _groups(missing, setting, ready, tick):
            runs: list[Run] = [each.run for each in prepared]
            timed = partial(tick, len(runs), "timing")
            seconds = in_turns(runs, clock or clock_of(setting), repeats=repeats, warmup=warmup, rng=rng, tick=timed)
            for work, each, samples in zip(group, prepared, seconds, strict=True):
                found = Measured(work.name, setting.batch, Timing.of(samples), each.resident, each.live)
                kept.put(work.name, found._values())
                fresh.add(work.name)
    results = []
    for work in works:
        values = kept.get(work.name, repeats)
        assert values is not None
        results.append(Measured._from_values(work.name, setting.batch, values, cached=work.name not in fresh))
    return results


def _groups(
    works: Sequence[Workload],
    setting: Setting,
    ready: Callable[[Workload, Setting], Prepared],
    tick: Callable[[int, str], None],
) -> Iterator[tuple[list[Workload], list[Prepared]]]:
    """As many workloads at a time as memory allows. Neighbours in the list stand in different groups as if shuffled,
    so that a slow minute does not fall on one kind of part."""
    order = np.random.default_rng(1).permutation(len(works)).tolist()
    group: list[Workload] = []
    prepared: list[Prepared] = []
    held = 0
    for place in order:
        group.append(works[place])
        prepared.append(ready(works[place], setting))
        tick(1, "building")
        held += prepared[-1].resident + (prepared[-1].live or 0)
        if held > _MOST_RESIDENT or len(group) == _MOST_TOGETHER:
            yield group, prepared
            group, prepared, held = [], [], 0
    if group:
        yield group, prepared
