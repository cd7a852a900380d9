"""Training-free scores: one file a proxy, one signature for all."""

from __future__ import annotations

from vitruvius.proxies import (  # noqa: F401 - importing a module registers its proxy
    az_nas,
    dss,
    fisher,
    grad_norm,
    grasp,
    naswot,
    snip,
    synflow,
    te_nas,
    zen,
)
from vitruvius.proxies._base import PROXIES, Batch, Floats, Measured, Needs, OneByOne, Proxy
from vitruvius.proxies._candidate import Candidate, Trace
from vitruvius.proxies._keyed import Keyed, keyed
from vitruvius.proxies._score import best_first, chosen_proxies, measure, score, score_batch, setting_of
from vitruvius.proxies._setting import Setting
from vitruvius.proxies.baselines import BASELINES

__all__ = [
    "BASELINES",
    "PROXIES",
    "Batch",
    "Candidate",
    "Floats",
    "Keyed",
    "Measured",
    "Needs",
    "OneByOne",
    "Proxy",
    "Setting",
    "Trace",
    "best_first",
    "chosen_proxies",
    "keyed",
    "measure",
    "score",
    "score_batch",
    "setting_of",
]
