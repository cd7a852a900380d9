"""Conformance suites: what a new space, family, sharing rule, proxy or searcher must pass, as functions for tests.

They need no test framework: each raises an AssertionError that says what did not hold, for which architecture.
"""

from __future__ import annotations

from vitruvius.testing.proxies import check_proxy
from vitruvius.testing.searchers import PROBLEMS, Problem, check_searcher, solve
from vitruvius.testing.superformers import check_law, check_masks, check_rule, fixed_batch

__all__ = [
    "PROBLEMS",
    "Problem",
    "check_law",
    "check_masks",
    "check_proxy",
    "check_rule",
    "check_searcher",
    "fixed_batch",
    "solve",
]
