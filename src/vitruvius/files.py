"""Files that are never half written: each is written beside its place, made durable, and renamed into it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["replace_file", "sync", "write_json"]


def replace_file(path: Path, write_to: Callable[[Path], object]) -> None:
    """`write_to` writes a file at the path it is given, which then takes the place of `path` at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        write_to(partial)
        sync(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Makes a file, or a folder's list of names, durable."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def write_json(path: Path, data: Any) -> None:
    replace_file(path, lambda partial: partial.write_text(json.dumps(data, indent=1) + "\n"))
