"""A run's report: one self-contained page, and its figures as files. It reads run folders, and computes nothing."""

from __future__ import annotations

from vitruvius.report._write import write_report

__all__ = ["write_report"]
