"""Searchers: asked for candidates, told what became of them. Evaluation, the record and plots are elsewhere."""

from __future__ import annotations

from vitruvius.search._domain import Domain, Measured
from vitruvius.search._searcher import Candidate, Searcher
from vitruvius.search._trial import COSTS, Objective, State, Trial, objectives_of, values_of

__all__ = [
    "COSTS",
    "Candidate",
    "Domain",
    "Measured",
    "Objective",
    "Searcher",
    "State",
    "Trial",
    "objectives_of",
    "values_of",
]
