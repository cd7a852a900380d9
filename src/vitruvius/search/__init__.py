"""Searchers: asked for candidates, told what became of them. Evaluation, the record and plots are elsewhere."""

from __future__ import annotations

from vitruvius.search._domain import Domain, Measured
from vitruvius.search._pool import enumerate_vectors
from vitruvius.search._registry import SEARCHERS, make_searcher, settings_of
from vitruvius.search._searcher import Candidate, Searcher
from vitruvius.search._trial import COSTS, Objective, State, Trial, objectives_of, values_of
from vitruvius.search.evolution import Evolution
from vitruvius.search.exhaustive import Exhaustive
from vitruvius.search.front import front, hypervolume, ranks, reference_point
from vitruvius.search.nsga2 import NSGA2
from vitruvius.search.random import Random

__all__ = [
    "COSTS",
    "NSGA2",
    "SEARCHERS",
    "Candidate",
    "Domain",
    "Evolution",
    "Exhaustive",
    "Measured",
    "Objective",
    "Random",
    "Searcher",
    "State",
    "Trial",
    "enumerate_vectors",
    "front",
    "hypervolume",
    "make_searcher",
    "objectives_of",
    "ranks",
    "reference_point",
    "settings_of",
    "values_of",
]
