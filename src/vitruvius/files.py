"""Files that are never half written: each is written beside its place, made durable, and renamed into it. And folders
in which one process works at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vitruvius.arch import refuse

__all__ = ["alone_in", "replace_file", "sync", "write_json"]


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


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """One process at a time works in a run's folder. The lock goes with the process, however that ends."""
    import fcntl  # not everywhere, and nothing else needs it

    folder = folder.resolve()
    lock = folder.parent / f".{folder.name}.lock"
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        opened = lock.open("w")
    except OSError as error:
        refuse(f"a run's folder cannot be written ({error.strerror})", str(folder), "a place that can be written to")
    with opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            refuse("another process is at work in this folder", str(folder), "another folder, or wait for it")
        except OSError:  # a file system without locks
            pass
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
