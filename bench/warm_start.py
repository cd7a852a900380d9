"""What the weights of one space's superformer are worth to the next one's, on the digits.

For every seed a space moves once; the second space's superformer is then trained for several lengths, from fresh
weights and from the first one's, and the same random networks are scored with each.

python bench/warm_start.py
python bench/warm_start.py --seeds 0 1 2 --epochs 3 10 30 --out runs/warm-start
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from vitruvius.evaluation.accuracy import InheritedAccuracy
from vitruvius.pipeline.evolve_config import EvolveSpaceConfig, read_evolve_config
from vitruvius.pipeline.evolve_space import evolve_space
from vitruvius.pipeline.evolved import EvolvedSpace, open_evolution
from vitruvius.search.space_evolution import e_t_error
from vitruvius.superformer import Superformer, carry
from vitruvius.training import Run, open_run, read_config, train


def carried(before: Path, after: EvolvedSpace, run: Run) -> float:
    """The part of the second superformer's numbers that comes from the first."""
    old, new = open_run(before / "superformer").superformer(), run.superformer()
    fresh = Superformer(
        after.space, num_classes=old.num_classes, in_chans=old.in_chans, sharing=old.rule.name, private=()
    )
    found = carry(old, fresh)
    assert sum(p.numel() for p in new.parameters()) == found.of_numbers
    return found.numbers / found.of_numbers


def error_of(space: EvolvedSpace, run: Run, config: EvolveSpaceConfig) -> float:
    evaluator = InheritedAccuracy(run.superformer(), run.data.search, images=config.images, seed=config.seed)
    evaluator.place(config.device)
    errors = [100 - evaluator.outcome(trial.arch).scores["accuracy"] for trial in space.drawn]
    return float(e_t_error(np.array(errors), config.top))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, nargs="+", default=[3, 10, 30])
    parser.add_argument("--out", type=Path, default=Path("runs/warm-start"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("E-T error (%) of the second space on the digits, from fresh weights and from the first space's\n")
    print(f"{'seed':>4}  {'carried':>7}  {'epochs':>6}  {'fresh':>6}  {'warm':>6}  {'warm - fresh':>12}")
    for seed in given.seeds:
        config = read_evolve_config({"recipe": "digits-evolve-space", "iterations": 1, "seed": seed, "device": "cpu"})
        folder = given.out / f"seed-{seed}"
        evolve_space(config, folder, quiet=True)
        first, second = open_evolution(folder)
        for epochs in given.epochs:
            found = {}
            for start in (None, str((first.folder / "superformer" / "final").resolve())):
                settings = config.superformer_config(str((second.folder / "space.yaml").resolve()), start)
                settings = read_config(
                    type(settings), {**settings.model_dump(exclude={"recipe"}), "epochs": epochs, "warmup_epochs": 1}
                )
                place = folder / f"{'fresh' if start is None else 'warm'}-{epochs}"
                run = train(settings, place, quiet=True)
                found[start is None] = error_of(second, run, config)
            part = carried(first.folder, second, run)
            fresh, warm = found[True], found[False]
            print(f"{seed:4}  {part:7.1%}  {epochs:6}  {fresh:6.2f}  {warm:6.2f}  {warm - fresh:+12.2f}", flush=True)


if __name__ == "__main__":
    main()
