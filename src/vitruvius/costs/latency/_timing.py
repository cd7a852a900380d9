"""Clocks, turns and medians."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vitruvius.arch import refuse, require_positive
from vitruvius.costs.latency._setting import Setting

Run: TypeAlias = Callable[[], object]
Progress: TypeAlias = Callable[[int, int, str], object]
"""Called with how much is done, of how much, and what it is."""

_SLOT = 1e-3
"""What takes less is called several times in a turn, so that the clock's own cost does not count."""
_MOST_CALLS = 50
_LONG = 0.03
"""What takes so long does not notice that others had the caches before it."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The median of repeats, and between which values the middle half of them lies."""

    seconds: float
    low: float
    high: float
    least: float
    repeats: int

    @classmethod
    def of(cls, samples: Sequence[float] | NDArray[np.float64]) -> Timing:
        values = np.asarray(samples, dtype=np.float64)
        if values.ndim != 1 or not len(values) or not (np.isfinite(values).all() and (values > 0).all()):
            refuse("a timing is made of repeats, positive seconds each", samples, "(0.011, 0.012, ...)")
        low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
        return cls(float(middle), float(low), float(high), float(values.min()), len(values))

    @property
    def spread(self) -> float:
        """The width of the middle half, relative to the median."""
        return (self.high - self.low) / self.seconds


class Clock(Protocol):
    def time(self, run: Run, calls: int) -> float:
        """Seconds a call of `calls` calls one after another."""
        ...


class HostClock:
    """The wall's or the processor's clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now

    def time(self, run: Run, calls: int) -> float:
        start = self._now()
        for _ in range(calls):
            run()
        return (self._now() - start) / calls


class CudaClock:
    """The device's own: events before and after, on the stream that the calls are queued on."""

    def __init__(self, device: str) -> None:
        self._device = device

    def time(self, run: Run, calls: int) -> float:
        import torch

        event: Any = torch.cuda.Event
        start, end = (event(enable_timing=True) for _ in range(2))
        with torch.cuda.device(self._device):
            torch.cuda.synchronize()
            start.record()
            for _ in range(calls):
                run()
            end.record()
            torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / calls


def clock_of(setting: Setting) -> Clock:
    if setting.on_gpu:
        return CudaClock(setting.device)
    return HostClock(time.thread_time if setting.clock == "cpu" else time.perf_counter)


def in_turns(
    runs: Sequence[Run],
    clock: Clock,
    *,
    repeats: int,
    warmup: int,
    rng: np.random.Generator,
    tick: Callable[[], object] | None = None,
) -> NDArray[np.float64]:
    """(runs, repeats) seconds. Every repeat visits all runs once, in an order of its own, so that drift hits all alike.

    All but long runs are called once untimed first: they find the caches as when one network runs again and again.
    """
    require_positive("the number of repeats", repeats)
    if type(warmup) is not int or warmup < 0:
        refuse("the number of warm-up calls must be a whole number", warmup, "0, 1, 2, ...")
    estimates = []
    for run in runs:
        for _ in range(warmup):
            run()
        estimates.append(clock.time(run, 1))
    seconds = np.empty((len(runs), repeats))
    with _no_garbage_collection():
        for repeat in range(repeats):
            for place in rng.permutation(len(runs)).tolist():
                if estimates[place] < _LONG:
                    runs[place]()
                seconds[place, repeat] = clock.time(runs[place], calls_of(estimates[place]))
            gc.collect(0)
            if tick is not None:
                tick()
    return seconds


def calls_of(seconds: float) -> int:
    """How many calls make one timed turn."""
    return max(math.ceil(_SLOT / max(seconds, _SLOT / _MOST_CALLS)), 1)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def torch_threads(setting: Setting) -> Iterator[None]:
    """Torch on the setting's number of threads, and as it was afterwards."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(setting.threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
