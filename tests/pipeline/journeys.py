"""What the tests of journeys share: settings of the shortest ones, and a process that makes one."""

from __future__ import annotations

import warnings
from typing import Any

_EVOLUTION = {"initial": 6, "generations": 3, "parents": 3, "mutations": 3, "crossovers": 3}
_NSGA2 = {"population": 6, "generations": 2, "parents": 3, "mutations": 3}
_SEARCH = {"vitas-v1": _NSGA2, "vitas-v2": _NSGA2, "tf-tas": {"evaluations": 12}}


def shortest(method: str = "vitruvius", **given: Any) -> dict[str, Any]:
    """A journey of seconds on the digits: a few steps and candidates, every phase."""
    config: dict[str, Any] = {"data": "digits", "method": method, "device": "cpu", "retrain": {"epochs": 2}}
    if method == "s3":
        evolve = {"iterations": 1, "archs": 20, "top": 4, "least": 4, "superformer": {"epochs": 1}}
        return config | {"evolve": {**evolve, "search": _EVOLUTION}} | given
    if method != "tf-tas":
        config["superformer"] = {"epochs": 2}
    return config | {"search": _SEARCH.get(method, _EVOLUTION)} | given


def work(config: dict[str, Any], folder: str) -> None:
    import torch

    from vitruvius.pipeline.journey import Journey, read_journey_config

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    Journey(read_journey_config(config), folder, quiet=True).run()
