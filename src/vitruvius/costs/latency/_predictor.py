"""Latency, throughput and memory of a space's networks, from tables of what their parts take."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vitruvius.arch import Arch, refuse, require_keys
from vitruvius.arrays import IntArray, arrays_of
from vitruvius.costs.latency._measure import REPEATS, Measured, measure
from vitruvius.costs.latency._parts import FIELDS, Rows, uses_of
from vitruvius.costs.latency._setting import Setting, machine_of
from vitruvius.costs.latency._timing import Progress
from vitruvius.files import write_json
from vitruvius.spaces import Space

VERSION = 2
Floats = NDArray[np.float64]


class Table:
    """What the parts of one kind take, found by their rows."""

    def __init__(self, kind: str, rows: IntArray, seconds: Floats, resident: IntArray, live: IntArray | None) -> None:
        self.kind, self.rows = kind, rows
        self.seconds, self.resident, self.live = seconds, resident, live
        self._levels = [np.unique(column) for column in rows.T]
        codes = self._codes(rows)
        self._order = np.argsort(codes)
        self._sorted = codes[self._order]

    def _codes(self, rows: IntArray) -> IntArray:
        """One number a row: the places of its values among those of the table, or -1 where one is not among them."""
        codes: IntArray = np.zeros(len(rows), dtype=np.int64)
        known: NDArray[np.bool_] = np.ones(len(rows), dtype=bool)
        for levels, column in zip(self._levels, rows.T, strict=True):
            place = np.minimum(np.searchsorted(levels, column), max(len(levels) - 1, 0))
            known &= levels[place] == column if len(levels) else np.zeros(len(rows), dtype=bool)
            codes = codes * max(len(levels), 1) + place
        return np.where(known, codes, -1)

    def find(self, rows: IntArray) -> IntArray:
        """(m,): the places of rows, which must all be there."""
        codes = self._codes(rows)
        place = np.minimum(np.searchsorted(self._sorted, codes), max(len(self._sorted) - 1, 0))
        there = self._sorted[place] == codes if len(self._sorted) else np.zeros(len(rows), dtype=bool)
        if not there.all():
            row = dict(zip(FIELDS[self.kind], rows[np.flatnonzero(~there)[0]].tolist(), strict=True))
            refuse(f"the predictor's table has no such {self.kind}", row, "networks of the space it was made for")
        return np.asarray(self._order[place])


@dataclass(frozen=True, slots=True)
class Parts:
    """The tables' sums for n networks."""

    columns: Floats
    """(n, 5): 1, the number of blocks, and seconds of attention, of MLPs, and of all other parts."""
    memory: Floats | None
    """(n,): bytes."""


def summed(tables: Mapping[str, Table], arrays: Any, setting: Setting) -> Parts:
    n = len(arrays.patch)
    seconds = {kind: np.zeros(n) for kind in FIELDS}
    resident, most, blocks = np.zeros(n), np.zeros(n), np.zeros(n)
    assert isinstance(setting.img_size, tuple)
    image = setting.itemsize * setting.batch * setting.in_chans * setting.img_size[0] * setting.img_size[1]
    told = True
    for kind, uses in uses_of(arrays, setting.img_size).items():
        for use in uses:
            table = tables[kind]
            place = table.find(use.rows)
            seconds[kind] += np.bincount(use.owner, table.seconds[place], minlength=n)
            resident += np.bincount(use.owner, table.resident[place], minlength=n)
            if kind == "mlp":
                blocks += np.bincount(use.owner, minlength=n)
            if table.live is None:
                told = False
                continue
            beside = use.held * setting.itemsize * setting.batch + (image if kind != "entry" else 0)
            np.maximum.at(most, use.owner, table.live[place] + beside)
    others = sum(seconds[kind] for kind in FIELDS if kind not in ("attention", "mlp"))
    columns = np.stack([np.ones(n), blocks, seconds["attention"], seconds["mlp"], np.asarray(others)], axis=1)
    return Parts(columns, resident + most if told else None)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How a way to tell latency did on networks that it had not seen."""

    by: str
    spearman: float
    kendall: float
    median_error: float
    error_90: float
    """The relative error that nine in ten stay below."""

    @classmethod
    def of(cls, by: str, predicted: Floats, measured: Floats) -> Accuracy:
        from scipy.stats import kendalltau, spearmanr

        error = np.abs(predicted / measured - 1)
        spearman, kendall = (float(test(predicted, measured).statistic) for test in (spearmanr, kendalltau))
        return cls(by, spearman, kendall, float(np.median(error)), float(np.quantile(error, 0.9)))


@dataclass(frozen=True, slots=True)
class Verified:
    """A network's cost as predicted and as measured."""

    arch: Arch
    predicted: dict[str, float]
    measured: Measured

    @property
    def error(self) -> float:
        """Of the predicted latency, relative to the measured."""
        return self.predicted["latency"] / self.measured.latency - 1


@dataclass(frozen=True)
class Predictor:
    """Tables of a space's parts in a setting on a machine, and the fitted correction of their sum."""

    space: Space
    setting: Setting
    machine: str
    versions: Mapping[str, str]
    tables: Mapping[str, Table]
    coefficients: Floats
    memory_scale: float
    parts_measured: int
    accuracy: tuple[Accuracy, ...]
    """The predictor's own first, then what parameters and MACs alone can say."""
    checked: tuple[tuple[float, float], ...]
    """Latency of networks that it had not seen, as predicted and as measured, in seconds."""
    spread: float
    """The median spread of what it was checked against: no predictor's error can be told apart from less."""

    @property
    def held_out(self) -> int:
        """How many networks it was checked on."""
        return len(self.checked)

    @property
    def parts(self) -> int:
        return sum(len(table.rows) for table in self.tables.values())

    def __call__(self, archs: Arch | Sequence[Arch] | NDArray[np.integer[Any]]) -> dict[str, Floats]:
        """(n,) latency (seconds), throughput (images a second) and, where it is known, memory (bytes) of
        architectures, or of the space's encoded vectors (n, G)."""
        parts = summed(self.tables, self._arrays(archs), self.setting)
        latency = parts.columns @ self.coefficients
        costs = {"latency": latency, "throughput": self.setting.batch / latency}
        return costs if parts.memory is None else {**costs, "memory": parts.memory * self.memory_scale}

    def _arrays(self, archs: Any) -> Any:
        if isinstance(archs, np.ndarray):
            return self.space.arrays(self.space.checked(np.atleast_2d(archs)))
        archs = [archs] if isinstance(archs, Arch) else archs
        if not isinstance(archs, Sequence) or not all(isinstance(arch, Arch) for arch in archs):
            refuse("a predictor takes an Arch, a list of them, or its space's vectors", type(archs).__name__, "those")
        ours = (self.space.family, self.space.class_token, self.space.positions, len(self.space.stages))
        for arch in archs:
            if (theirs := (arch.family, arch.class_token, arch.positions, len(arch.stages))) != ours:
                refuse("the predictor was made for another kind of networks", theirs, f"{ours}: {self.space.name!r}")
        return arrays_of(archs) if archs else self.space.arrays(self.space.sample_vectors(np.random.default_rng(0), 0))

    def verify(
        self,
        archs: Arch | Sequence[Arch],
        *,
        repeats: int = REPEATS,
        cache: Path | str | None = None,
        progress: Progress | None = None,
    ) -> list[Verified]:
        """Measures what was found with this predictor, in its setting: a winner's latency is never a prediction."""
        archs = [archs] if isinstance(archs, Arch) else list(archs)
        if (here := machine_of(self.setting)) != self.machine:
            refuse("a predictor is verified on the machine it was made on", here, self.machine)
        predicted = self(archs)
        measured = measure(archs, self.setting, repeats=repeats, cache=cache, progress=progress)
        return [
            Verified(arch, {name: float(values[i]) for name, values in predicted.items()}, measured[i])
            for i, arch in enumerate(archs)
        ]

    def report(self) -> str:
        """What it was made of, and its error on networks that it had not seen."""
        lines = [
            f"latency of space {self.space.name!r} on {self.machine}: {self.setting}",
            f"{self.parts_measured} of {self.parts} parts measured; checked on {self.held_out} networks that it had "
            f"not seen, whose repeats spread by {self.spread:.1%}",
            f"{'':<12}{'Spearman':>9}{'Kendall':>9}{'median error':>14}{'90 % below':>12}",
        ]
        lines += [
            f"{each.by:<12}{each.spearman:>9.3f}{each.kendall:>9.3f}{each.median_error:>14.1%}{each.error_90:>12.1%}"
            for each in self.accuracy
        ]
        return "\n".join(lines)

    # -- on disk ---------------------------------------------------------------------------------------------------

    def save(self, path: Path | str) -> None:
        tables = {
            kind: {
                "rows": table.rows.tolist(),
                "seconds": table.seconds.tolist(),
                "resident": table.resident.tolist(),
                "live": None if table.live is None else table.live.tolist(),
            }
            for kind, table in self.tables.items()
        }
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        changed = {
            "space": self.space.to_dict(),
            "setting": self.setting.to_dict(),
            "versions": dict(self.versions),
            "tables": tables,
            "coefficients": self.coefficients.tolist(),
            "accuracy": [asdict(each) for each in self.accuracy],
        }
        write_json(Path(path), {"version": VERSION, **plain, **changed})

    @classmethod
    def load(cls, path: Path | str) -> Predictor:
        try:
            data = json.loads(Path(path).read_text())
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "not JSON"
            refuse(f"a latency predictor cannot be read ({why})", str(path), "what Predictor.save writes")
        names = [field.name for field in fields(cls)]
        data = require_keys("a latency predictor", data, ["version", *names])
        if data.pop("version") != VERSION:
            refuse("unknown version of a latency predictor", str(path), VERSION)
        tables = {}
        for kind, table in require_keys("its tables", data["tables"], FIELDS).items():
            whole = {name: np.array(table[name], dtype=np.int64) for name in ("rows", "resident")}
            rows: Rows = {kind: whole["rows"].reshape(-1, len(FIELDS[kind]))}
            live = None if table["live"] is None else np.array(table["live"], dtype=np.int64)
            tables[kind] = Table(kind, rows[kind], np.array(table["seconds"], dtype=float), whole["resident"], live)
        changed = {
            "space": Space.from_dict(data["space"]),
            "setting": Setting.from_dict(data["setting"]),
            "tables": tables,
            "coefficients": np.array(data["coefficients"], dtype=np.float64),
            "accuracy": tuple(Accuracy(**each) for each in data["accuracy"]),
            "checked": tuple((predicted, measured) for predicted, measured in data["checked"]),
        }
        return cls(**{**data, **changed})
