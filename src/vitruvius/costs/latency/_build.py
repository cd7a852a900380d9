"""How a predictor is made: parts and whole networks are timed side by side, and the sum is fitted to the networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from vitruvius.arch import Arch, refuse, require_positive
from vitruvius.arrays import IntArray, arrays_of
from vitruvius.costs import cost
from vitruvius.costs.latency._interpolate import designed, interpolated
from vitruvius.costs.latency._measure import Measured, measure_works
from vitruvius.costs.latency._parts import FIELDS, Part, Rows, parts_of_space
from vitruvius.costs.latency._predictor import Accuracy, Predictor, Table, summed
from vitruvius.costs.latency._setting import Setting, machine_of, require_available, versions_of
from vitruvius.costs.latency._timing import Progress
from vitruvius.costs.latency._workloads import Network, Workload
from vitruvius.spaces import Space

Floats = NDArray[np.float64]

MOST_PARTS = 640
_POOL = 2048
"""Random networks among which those to be timed are chosen."""


def build_predictor(
    space: Space,
    setting: Setting | None = None,
    *,
    calibration: int = 30,
    held_out: int = 30,
    repeats: int = 15,
    most_parts: int = MOST_PARTS,
    seed: int = 0,
    cache: Path | str | None = None,
    progress: Progress | None = None,
    say: Callable[[str], object] = print,
    measuring: Callable[..., list[Measured]] = measure_works,
) -> Predictor:
    """Times the parts of a space's networks, fits their sum to whole networks, and says its error on others.

    calibration: how many networks the sum is fitted to, from the smallest to the largest. held_out: how many random
    ones it is then checked on. most_parts: where the space has more parts, about so many are measured and the others
    interpolated (see `_interpolate`). cache: as in `measure`; a killed build goes on from it.
    """
    if not isinstance(space, Space):
        refuse("a predictor is built for a Space", type(space).__name__, "spaces.load('vitas-v1'), say")
    setting = setting or Setting(img_size=space.img_size)
    require_positive("most_parts", most_parts)
    for what, count in (("calibration", calibration), ("held_out", held_out)):
        if type(count) is not int or count < 3:
            refuse(f"{what} must be a number of networks", count, "3 or more")
    require_available(setting)
    fitted, others = _networks(space, setting, calibration, held_out, seed)
    parts = parts_of_space(space, setting.img_size)
    chosen = designed(parts, most_parts)
    timed = [_part(space, kind, row) for kind, mask in chosen.items() for row in parts[kind][mask].tolist()]
    works: list[Workload] = [*timed, *map(Network, fitted), *map(Network, others)]
    found = measuring(works, setting, repeats=repeats, cache=cache, progress=progress)
    tables = _tables(parts, chosen, found[: len(timed)], space, setting)
    ours, theirs = found[len(timed) : len(timed) + len(fitted)], found[len(timed) + len(fitted) :]
    sums = summed(tables, arrays_of(fitted), setting)
    latency = np.array([each.latency for each in ours])
    predictor = Predictor(
        space=space,
        setting=setting,
        machine=machine_of(setting),
        versions=versions_of(setting),
        tables=tables,
        coefficients=_relative_nnls(sums.columns, latency),
        memory_scale=_memory_scale(sums.memory, ours),
        parts_measured=len(timed),
        accuracy=(),
        checked=(),
        spread=float(np.median([each.timing.spread for each in theirs])),
    )
    true = np.array([each.latency for each in theirs])
    checked = tuple(zip(predictor(others)["latency"].tolist(), true.tolist(), strict=True))
    predictor = replace(predictor, accuracy=_accuracy(predictor, fitted, latency, others, true), checked=checked)
    say(predictor.report())
    return predictor


def _part(space: Space, kind: str, row: Sequence[int]) -> Part:
    return Part(space.family, space.positions, space.class_token, space.pool, kind, tuple(row))


def _networks(
    space: Space, setting: Setting, calibration: int, held_out: int, seed: int
) -> tuple[list[Arch], list[Arch]]:
    """Those to fit to: the smallest, the largest, and random ones evenly by rank in MACs; and random others."""
    rng = np.random.default_rng(seed)
    pool = list(dict.fromkeys(space.decode_many(space.sample_vectors(rng, _POOL))))
    ends = [space.smallest, space.largest]
    pool = [arch for arch in pool if arch not in ends and arch.depth]
    if len(pool) < calibration + held_out:
        refuse(
            f"space {space.name!r} has too few different networks to fit and to check a predictor",
            calibration + held_out,
            f"at most {len(pool)} in all; measure them instead",
        )
    others, rest = pool[:held_out], pool[held_out:]
    macs = cost(rest, img_size=setting.img_size, num_classes=setting.num_classes, in_chans=setting.in_chans).macs
    ranks = np.linspace(0, len(rest) - 1, calibration - len(ends)).round().astype(int)
    return [*ends, *(rest[place] for place in np.argsort(macs, kind="stable")[ranks].tolist())], others


def _tables(
    parts: Rows, chosen: dict[str, NDArray[np.bool_]], found: Sequence[Measured], space: Space, setting: Setting
) -> dict[str, Table]:
    tables, taken = {}, iter(found)
    for kind in FIELDS:
        rows, mask = parts[kind], chosen[kind]
        ours = [next(taken) for _ in range(int(mask.sum()))]
        seconds = np.ones(len(rows))
        seconds[mask] = [each.latency for each in ours]
        resident, live = (np.zeros(len(rows)) for _ in range(2))
        resident[mask] = [each.resident for each in ours]
        told = all(each.live is not None for each in ours)
        live[mask] = [each.live or 0 for each in ours]
        if not mask.all():
            seconds, resident, live = (
                interpolated(kind, rows, mask, values) if (values[mask] > 0).all() else values
                for values in (seconds, resident, live)
            )
        whole: list[IntArray] = [np.rint(values).astype(np.int64) for values in (resident, live)]
        tables[kind] = Table(kind, rows, seconds, whole[0], whole[1] if told else None)
    return tables


def _relative_nnls(columns: Floats, latency: Floats) -> Floats:
    """Coefficients of at least zero, so that no part makes a network faster, that fit in relative terms."""
    coefficients, _ = nnls(columns / latency[:, None], np.ones(len(latency)))
    if not coefficients.any():
        refuse("no sum of parts fits the networks' latencies", latency.tolist(), "more repeats, or a quieter machine")
    return np.asarray(coefficients)


def _memory_scale(summed_bytes: Floats | None, measured: Sequence[Measured]) -> float:
    known = [each.memory for each in measured]
    if summed_bytes is None or any(bytes_ is None for bytes_ in known):
        return 1.0
    return float(np.median(np.array(known, dtype=np.float64) / summed_bytes))


def _accuracy(
    predictor: Predictor, fitted: Sequence[Arch], latency: Floats, others: Sequence[Arch], true: Floats
) -> tuple[Accuracy, ...]:
    setting = predictor.setting
    options: Any = {name: getattr(setting, name) for name in ("img_size", "num_classes", "in_chans")}
    rows = [Accuracy.of("predictor", predictor(others)["latency"], true)]
    seen, unseen = cost(fitted, **options), cost(others, **options)
    for metric in ("macs", "params"):
        known, asked = (np.asarray(getattr(each, metric), dtype=np.float64) for each in (seen, unseen))
        weights = _relative_nnls(np.stack([np.ones(len(known)), known], axis=1), latency)
        rows.append(Accuracy.of(metric, weights[0] + weights[1] * asked, true))
    return tuple(rows)
