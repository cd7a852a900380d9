"""Measurements on disk: a line each, appended whole, so that a kill costs at most the line that was being written."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitruvius.arch import refuse
from vitruvius.costs.latency._setting import Setting, machine_of, versions_of


def default_cache() -> Path:
    """`$VITRUVIUS_CACHE/latency.jsonl`, or below the user's cache folder."""
    if own := os.environ.get("VITRUVIUS_CACHE"):
        return Path(own) / "latency.jsonl"
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "vitruvius" / "latency.jsonl"


class MeasurementCache:
    """What was measured of whom, on which machine, in which setting, with which versions."""

    def __init__(self, path: Path | str | None, setting: Setting) -> None:
        """With no path nothing is kept beyond this object."""
        self._path = None if path is None else Path(path)
        self._where = {
            "machine": machine_of(setting),
            "setting": setting.to_dict(),
            "versions": versions_of(setting),
        }
        self._known: dict[str, dict[str, Any]] = {}
        if self._path is not None and self._path.exists():
            self._read(self._path)

    def _read(self, path: Path) -> None:
        try:
            lines = path.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            refuse(f"the cache of measurements cannot be read ({type(error).__name__})", str(path), "a JSONL file")
        for line in lines:
            try:
                record = json.loads(line)
            except json.JSONDecodeError:  # a kill cut it short
                continue
            if isinstance(record, dict) and record.get("where") == self._where:
                self._known[str(record.get("of"))] = record.get("values", {})

    def get(self, of: str, repeats: int) -> Mapping[str, Any] | None:
        """What is known, if it rests on at least so many repeats."""
        found = self._known.get(of)
        return found if found is not None and found.get("repeats", 0) >= repeats else None

    def put(self, of: str, values: Mapping[str, Any]) -> None:
        self._known[of] = dict(values)
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"of": of, "where": self._where, "values": self._known[of]}) + "\n"
        # One write to a file opened for appending: lines of several processes do not mix.
        opened = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            size = os.fstat(opened).st_size
            torn = size > 0 and os.pread(opened, 1, size - 1) != b"\n"
            os.write(opened, (("\n" if torn else "") + line).encode())
            os.fsync(opened)
        finally:
            os.close(opened)
