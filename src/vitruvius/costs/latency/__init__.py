"""Latency, throughput and peak memory: measured on the device at hand, and predicted for a whole space.

`measure` times plain networks in turns and gives medians with their spread. `build_predictor` times the parts that the
networks of a space are made of, once; the `Predictor` that it gives tells thousands of networks a second, and its
`verify` measures what was found with it. Torch is imported when something is measured, and not before.
"""

from __future__ import annotations

from vitruvius.costs.latency._build import build_predictor
from vitruvius.costs.latency._cache import MeasurementCache, default_cache
from vitruvius.costs.latency._measure import Measured, measure, measure_works
from vitruvius.costs.latency._predictor import Accuracy, Predictor, Verified
from vitruvius.costs.latency._setting import Setting, machine_of, require_available, versions_of
from vitruvius.costs.latency._timing import Clock, Progress, Timing, in_turns
from vitruvius.costs.latency._workloads import Network, Prepared, Workload, live_bytes, prepare

__all__ = [
    "Accuracy",
    "Clock",
    "Measured",
    "MeasurementCache",
    "Network",
    "Predictor",
    "Prepared",
    "Progress",
    "Setting",
    "Timing",
    "Verified",
    "Workload",
    "build_predictor",
    "default_cache",
    "in_turns",
    "live_bytes",
    "machine_of",
    "measure",
    "measure_works",
    "prepare",
    "require_available",
    "versions_of",
]
