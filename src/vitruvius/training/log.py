"""What a run says: a log that is the same however often the run was killed, timings, TensorBoard, a progress bar."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from vitruvius.files import replace_file

__all__ = ["RunLog", "Watch"]

_SHOWN_EVERY = 0.5
"""Seconds between two looks at the progress bar, which would otherwise cost small networks a share of their time."""


class RunLog:
    """`log.jsonl`, a line an event. Nothing in it depends on the clock, so that resuming may write it again."""

    def __init__(self, path: Path, writes: bool = True) -> None:
        self.path, self._writes = path, writes

    def write(self, **record: Any) -> None:
        if self._writes:
            with self.path.open("a") as file:
                file.write(json.dumps(record) + "\n")

    def size(self) -> int:
        """Bytes, once they are durable."""
        if not self.path.exists():
            return 0
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        return self.path.stat().st_size

    def cut(self, size: int) -> None:
        """What was written after a checkpoint is forgotten; the run will write it again."""
        if self._writes and self.path.exists():
            kept = self.path.read_bytes()[:size]
            replace_file(self.path, lambda partial: partial.write_bytes(kept))


class Watch:
    """What people see while a run goes on: progress, TensorBoard's curves, and images a second (`times.jsonl`)."""

    def __init__(self, folder: Path, steps: int, batch_size: int, first: int, active: bool, quiet: bool) -> None:
        self._folder, self._batch_size, self._active = folder, batch_size, active
        self._console = Console(quiet=quiet or not active)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:>6.0f} images/s"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=quiet or not active or not self._console.is_terminal,
            refresh_per_second=2,
        )
        self._task = self._bar.add_task("training", total=steps, completed=first, rate=0.0)
        self._since, self._since_step = time.perf_counter(), first
        self._shown = self._since
        self._board: Any = None
        if active:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(folder / "tensorboard", purge_step=first)

    def __enter__(self) -> Watch:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        if self._board is not None:
            self._board.close()

    def step(self, step: int) -> None:
        """A step is over."""
        if (now := time.perf_counter()) - self._shown >= _SHOWN_EVERY:
            self._shown = now
            self._bar.update(self._task, completed=step, rate=self._rate(step, now))

    def _rate(self, step: int, now: float) -> float:
        return (step - self._since_step) * self._batch_size / max(now - self._since, 1e-9)

    def curves(self, step: int, values: dict[str, float]) -> None:
        if self._board is not None:
            for name, value in values.items():
                self._board.add_scalar(name, value, step)

    def lap(self, step: int) -> None:
        """Says how fast it was since the last lap or restart."""
        rate = self._rate(step, time.perf_counter())
        self._bar.update(self._task, completed=step, rate=rate)
        self.curves(step, {"images a second": rate})
        if self._active:
            with (self._folder / "times.jsonl").open("a") as file:
                file.write(json.dumps({"step": step, "images_per_second": round(rate, 1)}) + "\n")

    def restart(self, step: int) -> None:
        """Time that was not training is over, or the run went back to an earlier step."""
        self._since, self._since_step = time.perf_counter(), step
        self._bar.update(self._task, completed=step)

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)  # a pipe has no width to be cut to
