"""Every method's whole journey on the digits, in its nano form: what each found, and what that took.

Every method is a run folder that the same command goes on with, so it may be stopped at any moment. The table is of the
methods that are finished; minutes are of one core.

python bench/methods.py                              # the default epochs: about 30 minutes of one core
python bench/methods.py --epochs 40                  # of superformers (S3: 10 in each of four spaces) and retraining
python bench/methods.py --methods s3 tf-tas
python bench/methods.py --table                      # only the table of what is there
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from vitruvius.cli._common import show
from vitruvius.costs import short
from vitruvius.pipeline.journey import Journey, read_journey_config
from vitruvius.pipeline.methods import METHODS

SPACES = 4
"""That S3 trains a superformer of."""
PHASES = ("superformer", "search", "retrain")


def row(method: str, result: dict[str, Any]) -> dict[str, str]:
    """The found network, what it is compared with, and core minutes by phase."""
    networks = {each["name"]: each for each in result["rows"]}
    found = networks["found"]
    shown = {"method": method, "space": METHODS[method].nano, "found": f"{found['test']:.2f} %"}
    for rival in ("hand-made", "random"):
        shown[rival] = f"{networks[rival]['test']:.2f} %" if rival in networks else "the same"
    shown |= {"MACs": short(found["macs"]), "params": short(found["params"])}
    return shown | {phase: f"{result['cpu_seconds'][phase] / 60:.1f}" for phase in PHASES}


def shortened(epochs: int, method: str) -> dict[str, Any]:
    """Settings of a journey with so many epochs."""
    superformer = {"epochs": max(1, epochs // SPACES if METHODS[method].evolves else epochs)}
    if METHODS[method].evolves:
        return {"evolve": {"superformer": superformer}, "retrain": {"epochs": epochs}}
    trains = next(iter(METHODS[method].spaces.values())) is not None
    return {"retrain": {"epochs": epochs}, **({"superformer": superformer} if trains else {})}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--budget", help="the same for all; the mean MACs of each method's own space without it")
    parser.add_argument("--epochs", type=int, help="of every training; the journey's own choice without it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/methods"))
    parser.add_argument("--table", action="store_true", help="only the table of what is there")
    given = parser.parse_args()
    for method in () if given.table else given.methods:
        config = {"data": "digits", "method": method, "seed": given.seed, "budget": given.budget}
        if given.epochs is not None:
            config |= shortened(given.epochs, method)
        Journey(read_journey_config(config), given.out / method).run()
    files = {method: given.out / method / "result.json" for method in given.methods}
    rows = [row(method, json.loads(file.read_text())) for method, file in files.items() if file.exists()]
    if not rows:
        print("no method is finished")
        return
    show(rows, False, "digits; minutes of one core", right=tuple(rows[0])[2:])


if __name__ == "__main__":
    main()
