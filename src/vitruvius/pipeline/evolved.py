"""What an evolution of a space left in its folder, finished or not: read, never computed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitruvius.arch import refuse
from vitruvius.pipeline._scores import read_trials
from vitruvius.search import Trial
from vitruvius.search.space_evolution import ETTable, Move
from vitruvius.spaces import Space
from vitruvius.training.run import RECORD, read_record

__all__ = ["FOUND", "MOVES", "SCORED", "SEARCHED", "SPACE", "TABLE", "EvolvedSpace", "open_evolution", "space_folder"]

SPACE, SCORED, TABLE, MOVES = "space.yaml", "scored.jsonl", "e-t.json", "moves.json"
SEARCHED, FOUND = "searched.jsonl", "search.json"


@dataclass(frozen=True)
class EvolvedSpace:
    """One space of a run."""

    folder: Path
    space: Space
    scored: tuple[Trial, ...]
    """The architectures that its E-T errors are made of; `made` is "drawn", or "widening" of those for one subspace."""
    table: ETTable | None
    """None before all of them are scored."""
    moves: tuple[Move, ...]
    """None of the last space, and of one that has not been left yet."""
    best: Trial | None
    """Of its search, where it was searched."""

    @property
    def drawn(self) -> tuple[Trial, ...]:
        """The random ones that could be scored."""
        return tuple(trial for trial in self.scored if trial.made == "drawn" and trial.complete)


def space_folder(out: str | Path, t: int) -> Path:
    return Path(out) / f"space-{t}"


def open_evolution(out: str | Path) -> list[EvolvedSpace]:
    """The spaces of a run, as far as it has come."""
    kind = read_record(Path(out))["kind"] if (Path(out) / RECORD).exists() else "none"
    if kind != "evolve-space":
        refuse(f"the run in {str(out)!r} is of another kind", kind, "evolve-space")
    found: list[EvolvedSpace] = []
    while (folder := space_folder(out, len(found))).joinpath(SPACE).exists():
        table, moves, best = (_json(folder / name) for name in (TABLE, MOVES, FOUND))
        if best is not None:
            best.pop("networks")
        found.append(
            EvolvedSpace(
                folder,
                Space.from_yaml(folder / SPACE),
                tuple(read_trials(folder / SCORED)),
                None if table is None else ETTable.from_dict(table),
                tuple(map(Move.from_dict, moves["moves"])) if moves is not None else (),
                None if best is None else Trial.from_dict(best),
            )
        )
    return found


def _json(file: Path) -> dict[str, Any] | None:
    if not file.exists():
        return None
    found: dict[str, Any] = json.loads(file.read_text())
    return found
