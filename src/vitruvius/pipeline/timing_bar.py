"""How far a measurement of latency is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from vitruvius.costs.latency import Progress as OnProgress

__all__ = ["timing_bar"]


@contextmanager
def timing_bar(quiet: bool) -> Iterator[OnProgress]:
    """A progress bar on stderr, where there is somebody to see it."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:<9}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("building", total=None)
        yield lambda done, total, what: bar.update(task, completed=done, total=total, description=what)
