"""The whole default journey on Fashion-MNIST, seed after seed: found against hand-made at equal MACs, same recipe.

Every seed is a run folder that the same command goes on with, so it may be stopped at any moment. The table is of the
seeds that are finished.

python bench/journey.py                              # seeds 0, 1, 2; half an hour of one core each
python bench/journey.py --table                      # only the table of what is there
python bench/journey.py --data digits --out runs/digits
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vitruvius.cli._common import show
from vitruvius.costs import short
from vitruvius.pipeline.journey import Journey, read_journey_config

FASHION = "idx:/usr/share/datasets/fashion-mnist"


def table(results: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """A row a network: the mean and, from two seeds on, the standard deviation over them."""
    rows = []
    for name in ("found", "hand-made", "random"):
        found = [row for result in results for row in result["rows"] if row["name"] == name]
        if found:
            shown = {"network": name, "seeds": str(len(found))}
            shown |= {part: percent([row[part] for row in found]) for part in ("test", "validation")}
            for cost in ("macs", "params"):
                shown[cost] = short(float(np.mean([row[cost] for row in found])))
            rows.append(shown)
    return rows


def percent(values: Sequence[float]) -> str:
    spread = f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
    return f"{np.mean(values):.2f}{spread} %"


def differences(results: Sequence[dict[str, Any]], rival: str) -> list[float]:
    """Test accuracy of the found network less the rival's, seed by seed."""
    by_name = [{row["name"]: row["test"] for row in result["rows"]} for result in results]
    return [each["found"] - each[rival] for each in by_name if rival in each]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=FASHION)
    parser.add_argument("--method", default="vitruvius")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("runs/fashion"))
    parser.add_argument("--table", action="store_true", help="only the table of what is there")
    given = parser.parse_args()
    folders = {seed: given.out / f"seed-{seed}" for seed in given.seeds}
    for seed, folder in () if given.table else folders.items():
        config = {"data": given.data, "method": given.method, "seed": seed}
        Journey(read_journey_config(config), folder).run()
    files = [folder / "result.json" for folder in folders.values()]
    results = [json.loads(file.read_text()) for file in files if file.exists()]
    if not results:
        print("no seed is finished")
        return
    show(table(results), False, f"{given.data}, method {given.method}, {results[0]['budget']}")
    for rival in ("hand-made", "random"):
        if found := differences(results, rival):
            each = ", ".join(f"{value:+.2f}" for value in found)
            print(f"found less {rival}, by seed: {each}; in the mean {np.mean(found):+.2f}")
    for kind, what in (("seconds", "of the clock"), ("cpu_seconds", "of one core")):
        minutes = [sum(result[kind].values()) / 60 for result in results]
        print(f"minutes {what}, by seed: {', '.join(f'{each:.1f}' for each in minutes)}")


if __name__ == "__main__":
    main()
