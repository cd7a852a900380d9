"""Does a proxy tell the truth? Scores of networks whose accuracies are known, against these accuracies."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitruvius import costs, proxies, zoo
from vitruvius.arch import Arch, refuse
from vitruvius.correlation import RESAMPLES, Band, Correlation, Floats, correlate, size_bands
from vitruvius.files import write_json
from vitruvius.pipeline._measuring import Scores, measured_scores
from vitruvius.pipeline.search import open_search
from vitruvius.proxies import BASELINES
from vitruvius.training.run import RESULT, begin_folder, versions

__all__ = ["Known", "Ranking", "known_of", "rank_proxies"]

_NAMES = ("arch", "name", "id")
_CLAIM = "accuracy"


@dataclass(frozen=True)
class Known:
    """Networks with known accuracies."""

    source: str
    archs: list[Arch]
    accuracies: Floats
    counting: dict[str, Any]
    """What a search's run knows: image size, classes, channels."""


def known_of(source: str | Path, accuracy: str = _CLAIM) -> Known:
    """From a CSV or JSONL table, or the folder of a search run.

    A row names its network in a column `arch` (JSON text or data, a zoo name or file) or `name` or `id` (of the zoo),
    and has its accuracy in the column of that name, or, as a search's trials do, under `scores`. Rows without an
    accuracy are left out: a failed trial has none.
    """
    place = Path(source)
    if not place.exists():
        refuse("there is no such table or run", str(source), "a .csv or .jsonl file, or a search's folder")
    if place.is_dir():
        run = open_search(place)
        rows = [trial.to_dict() for trial in run.trials if trial.complete]
        counting = {key: run.record["job"][key] for key in ("img_size", "num_classes", "in_chans")}
        counting["img_size"] = tuple(counting["img_size"])
    elif place.suffix.lower() in (".csv", ".jsonl", ".json"):
        rows, counting = list(_rows(place)), {}
    else:
        refuse("accuracies are read from a table or a run", str(source), "a .csv or .jsonl file, or a search's folder")
    archs: list[Arch] = []
    accuracies: list[float] = []
    for number, row in enumerate(rows, start=1):
        value = _accuracy(row, accuracy, f"row {number} of {place}")
        if value is not None:
            archs.append(_arch(row, f"row {number} of {place}"))
            accuracies.append(value)
    if len(archs) < 3:
        refuse(f"a rank correlation needs networks with a known {accuracy!r}", len(archs), "3 or more")
    return Known(str(source), archs, np.array(accuracies), counting)


def _rows(place: Path) -> Iterator[dict[str, Any]]:
    with place.open(newline="") as file:
        if place.suffix.lower() == ".csv":
            yield from csv.DictReader(file)
            return
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                refuse(f"line {number} of {place} is no JSON ({error})", line.strip()[:60], "a JSON object a line")
            if not isinstance(row, dict):
                refuse(f"line {number} of {place}", line.strip()[:60], "a JSON object a line")
            yield row


def _accuracy(row: Mapping[str, Any], name: str, where: str) -> float | None:
    scores = row.get("scores")
    value = row.get(name, scores.get(name) if isinstance(scores, Mapping) else None)
    if name not in row and not isinstance(scores, Mapping):
        refuse(f"{where} has no column {name!r}", list(row), "a column of accuracies: say which by --accuracy")
    if value is None or value == "":
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        refuse(f"{where} has an accuracy that is no number", value, "percent")
    return number if math.isfinite(number) else None


def _arch(row: Mapping[str, Any], where: str) -> Arch:
    column = next((name for name in _NAMES if row.get(name)), None)
    if column is None:
        refuse(f"{where} names no architecture", list(row), " or ".join(f"a column {name!r}" for name in _NAMES))
    given = row[column]
    try:
        if isinstance(given, Mapping):
            return Arch.from_dict(given)
        published = {entry.arch.id: entry.arch for entry in zoo.entries()}
        return published[given] if given in published else zoo.read(str(given))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


@dataclass(frozen=True)
class Ranking:
    """What became of each proxy, over all networks and in each band of sizes."""

    known: Known
    found: Scores
    params: Floats
    within: float
    overall: dict[str, Correlation]
    bands: list[tuple[Band, dict[str, Correlation]]]

    def to_dict(self) -> dict[str, Any]:
        def plain(table: Mapping[str, Correlation]) -> dict[str, Any]:
            return {name: each.to_dict() for name, each in table.items()}

        return {
            "source": self.known.source,
            "networks": len(self.known.archs),
            "within": self.within,
            "overall": plain(self.overall),
            "bands": [
                {"params": [band.low, band.high if math.isfinite(band.high) else None], "proxies": plain(table)}
                for band, table in self.bands
            ],
            "failed": {self.known.archs[place].id: why for place, why in self.found.reasons.items()},
        }


def rank_proxies(
    known: Known,
    names: Sequence[str],
    *,
    bands: int | Sequence[Band] = 3,
    within: float = 0.1,
    resamples: int = RESAMPLES,
    out: str | Path | None = None,
    executor: str = "local",
    workers: int | None = None,
    address: str | None = None,
    quiet: bool = False,
    **options: Any,
) -> Ranking:
    """Kendall, Spearman and Pearson of every proxy and of the baselines, with 95 % bootstrap intervals.

    bands: of parameters; a number makes so many of about equally many networks.
    within: pairs whose parameters differ by no more than this share are also judged by themselves.
    options: of `vitruvius.proxies.score`.
    """
    if not 0 < within < 1:
        refuse("pairs of about equal size differ by a share", within, "0.1, say")
    names = tuple(dict.fromkeys([*names, *BASELINES]))
    options = {**known.counting, **{key: value for key, value in options.items() if value is not None}}
    setting = proxies.setting_of(**options)
    counting = {"img_size": setting.img_size, "num_classes": setting.num_classes, "in_chans": setting.in_chans}
    params = np.asarray(costs.params(known.archs, **counting), dtype=np.float64)
    folder = None if out is None else Path(out)
    if folder is not None:
        networks = [(arch.id, accuracy) for arch, accuracy in zip(known.archs, known.accuracies.tolist(), strict=True)]
        config = {**options, "proxies": list(names), "networks": networks}
        split = None if setting.data is None else {"hash": setting.data.hash}
        record = {"version": 1, "kind": "rank", "config": config, "data": split, "job": {}, "versions": versions()}
        begin_folder(folder, record, ("versions", "config.device"))
    places: dict[str, Any] = {"executor": executor, "workers": workers, "address": address, "quiet": quiet}
    found = measured_scores(known.archs, names, options, setting, folder=folder, **places)
    chosen = size_bands(params, bands) if isinstance(bands, int) else list(bands)

    def table(places: np.ndarray) -> dict[str, Correlation]:
        judged = {"within": within, "resamples": resamples, "seed": setting.seed}
        return {
            name: correlate(values[places], known.accuracies[places], params[places], **judged)
            for name, values in found.scores.items()
        }

    parts = [(band, np.flatnonzero(band.holds(params))) for band in chosen]
    result = Ranking(
        known, found, params, within, table(np.arange(len(params))), [(band, table(at)) for band, at in parts]
    )
    if folder is not None:
        write_json(folder / RESULT, result.to_dict())
    return result
