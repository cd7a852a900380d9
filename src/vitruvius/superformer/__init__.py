"""Shared weights: one superformer for every family, sharing rules, private parts."""

from __future__ import annotations

from vitruvius.superformer._carry import Carried, carry
from vitruvius.superformer._slices import Slice
from vitruvius.superformer.private import PARTS
from vitruvius.superformer.sharing import RULES, SharingRule
from vitruvius.superformer.superformer import Superformer

__all__ = ["PARTS", "RULES", "Carried", "SharingRule", "Slice", "Superformer", "carry"]
