"""TF-TAS's search (Section 3.4): sample within a budget, score without training, keep the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitruvius import costs, proxies
from vitruvius.arch import Arch, ImageSize, require_positive
from vitruvius.correlation import Floats, kendall_matrix
from vitruvius.costs import Budget
from vitruvius.files import write_json
from vitruvius.pipeline._measuring import Scores, measured_scores
from vitruvius.proxies import BASELINES, best_first
from vitruvius.search import Domain
from vitruvius.spaces import Space
from vitruvius.training.run import RESULT, begin_folder, versions

__all__ = ["Score", "ScoreConfig", "score_space"]

SAMPLES = 8000
"""As many as TF-TAS samples."""
_FREE = ("versions",)


@dataclass(frozen=True, kw_only=True)
class ScoreConfig:
    """What decides the result.

    proxies: the first one ranks; the baselines are measured beside them always.
    budget: as `Budget.of` takes it, of params and MACs.
    n: samples, of which equal networks are scored once.
    """

    space: Space
    proxies: tuple[str, ...] = ("dss",)
    n: int = SAMPLES
    budget: str | Mapping[str, str] | None = None
    seed: int = 0
    num_classes: int | None = None
    img_size: ImageSize | None = None
    in_chans: int | None = None
    batch_size: int = 16
    data: str | None = None

    def __post_init__(self) -> None:
        require_positive("the number of samples", self.n)
        proxies.chosen_proxies(self.proxies)

    @property
    def names(self) -> tuple[str, ...]:
        """The proxies and the baselines beside them."""
        return tuple(dict.fromkeys([*self.proxies, *BASELINES]))

    def record(self) -> dict[str, Any]:
        plain = {**asdict(self), "space": self.space.to_dict(), "proxies": list(self.proxies)}
        return plain | {"budget": None if self.budget is None else str(Budget.of(self.budget))}


@dataclass(frozen=True)
class Score:
    """Sampled networks with their scores and costs."""

    archs: list[Arch]
    found: Scores
    costs: costs.Cost
    ranking: str
    """The proxy that ranks."""

    @property
    def scores(self) -> dict[str, Floats]:
        return self.found.scores

    def best(self, count: int) -> list[int]:
        """Places of the best, those without a finite score left out."""
        found: list[int] = best_first(self.scores[self.ranking])[:count]
        return found

    def row(self, place: int) -> dict[str, Any]:
        """One network as plain data; None where a proxy has no number for it."""
        values = {name: float(each[place]) for name, each in self.scores.items() if name not in ("params", "macs")}
        own = {name: value if math.isfinite(value) else None for name, value in values.items()}
        arch = self.archs[place]
        counted = {"params": int(self.costs.params[place]), "macs": int(self.costs.macs[place])}
        return {"id": arch.id, **own, **counted, "arch": arch.to_dict()}

    def unranked(self) -> dict[str, str]:
        """Why networks have no rank, by their ids."""
        places = range(len(self.archs))
        why = ((self.archs[place].id, self.found.reason(place, self.ranking)) for place in places)
        return {name: reason for name, reason in why if reason}

    def agreement(self) -> dict[str, dict[str, float]]:
        """Kendall's tau of every two of the proxies and baselines over the sampled networks."""
        names = list(self.scores)
        table = kendall_matrix([self.scores[name] for name in names]).tolist()
        return {name: dict(zip(names, row, strict=True)) for name, row in zip(names, table, strict=True)}


def score_space(
    config: ScoreConfig,
    out: str | Path | None = None,
    *,
    top: int = 10,
    executor: str = "local",
    workers: int | None = None,
    address: str | None = None,
    device: str = "cpu",
    quiet: bool = False,
) -> Score:
    """Samples, scores, ranks; with a folder, resumably, and the `top` are written into its result.

    executor: "local", or "ray" with `workers` actors, on the cluster at `address` or one of its own.
    """
    options = {
        "seed": config.seed,
        "num_classes": config.num_classes,
        "img_size": config.space.img_size if config.img_size is None else config.img_size,
        "in_chans": config.in_chans,
        "batch_size": config.batch_size,
        "data": config.data,
        "device": device,
    }
    setting = proxies.setting_of(**options)  # refuses what cannot be, before any work
    counting = {"img_size": setting.img_size, "num_classes": setting.num_classes, "in_chans": setting.in_chans}
    domain = Domain(config.space, config.budget, **counting)
    archs = _distinct(config.space.decode_many(domain.draw(np.random.default_rng(config.seed), config.n)))
    folder = None if out is None else Path(out)
    if folder is not None:
        split = None if setting.data is None else {"source": config.data, "hash": setting.data.hash}
        record = {"version": 1, "kind": "score", "config": config.record(), "data": split, "job": {}}
        begin_folder(folder, record | {"versions": versions()}, _FREE)
    found = measured_scores(
        archs,
        config.names,
        options,
        setting,
        folder=folder,
        executor=executor,
        workers=workers,
        address=address,
        quiet=quiet,
    )
    result = Score(archs, found, costs.cost(archs, **counting), config.proxies[0])
    if folder is not None:
        best = [result.row(place) for place in result.best(top)]
        unranked = result.unranked()
        write_json(folder / RESULT, {"sampled": config.n, "different": len(archs), "unranked": unranked, "top": best})
    return result


def _distinct(archs: Sequence[Arch]) -> list[Arch]:
    """In a space where several paths lead to one network, samples repeat."""
    return list(dict.fromkeys(archs))
