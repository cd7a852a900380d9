"""What a search's time goes to: candidates a second, the share of forward passes, and the searcher's own part.

python bench/search.py                                            # digits, and vitas-v1 without images
python bench/search.py --data digits idx:/usr/share/datasets/fashion-mnist
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import tempfile
import time
from pathlib import Path

import torch

from vitruvius import Superformer, data, spaces
from vitruvius.evaluation import InheritedAccuracy, InProcess
from vitruvius.pipeline._drive import drive
from vitruvius.search import Domain, make_searcher
from vitruvius.search.study import Study
from vitruvius.testing.searchers import tell_all

LEAST_SHARE, MOST_OVERHEAD = 0.90, 2e-3
SIZES = {"digits": (8, 200)}
"""Pixels, and candidates; 28 and 40 of others."""


def overhead(candidates: int) -> None:
    """The searcher's part of a candidate: proposing, counting, taking in. And what recording one takes."""
    space, budget = spaces.load("vitas-v1"), "macs: 1.3G +- 1%"
    print(f"vitas-v1 at {budget}, {candidates:,} candidates, processor time a candidate\n")
    print(f"{'searcher':<12}{'prepare':>9}{'ask, count and tell':>21}{'write to the journal':>22}")
    for name, objectives in (("random", "score"), ("evolution", "score"), ("nsga2", "score,macs")):
        settings = {"evaluations": candidates} if name == "random" else {"generations": candidates // 50}
        start = time.process_time()
        searcher = make_searcher(name, Domain(space, budget), objectives, settings=settings)
        prepared = time.process_time() - start
        spent = written = 0.0
        count = 0
        with tempfile.TemporaryDirectory() as folder:
            study = Study(Path(folder) / "study.log", "s", space=space, objectives=searcher.objectives, record={})
            while True:
                start = time.process_time()
                archs = searcher.ask()
                if not archs:
                    break
                scores = [float(sum(block.mlp for block in arch.stages[0].blocks)) for arch in archs]
                trials = tell_all(searcher, archs, scores)
                spent += time.process_time() - start
                count += len(archs)
                start = time.process_time()
                for trial in trials[:10]:
                    study.add(trial)
                written += (time.process_time() - start) / min(10, len(trials)) * len(trials)
        met = "met" if spent / count <= MOST_OVERHEAD else "NOT met"
        ask = f"{1e3 * spent / count:.2f} ms ({met})"
        print(f"{name:<12}{prepared:>7.2f} s{ask:>21}{1e3 * written / count:>19.2f} ms", flush=True)
    print(f"asked for: at most {1e3 * MOST_OVERHEAD:.0f} ms a candidate of the searcher's own")


def forward_share(source: str, searched: int | None) -> None:
    images = data.load(source)
    size, candidates = SIZES.get(source, (28, 40))
    candidates = searched or candidates
    space = spaces.load("vitas-nano", img_size=size, patch=4)
    found = images.search
    superformer = Superformer(space, num_classes=len(found.classes), in_chans=found.in_chans, seed=0)
    evaluator = InheritedAccuracy(superformer, found)
    domain = Domain(space, img_size=size, num_classes=len(found.classes), in_chans=found.in_chans)
    half = candidates // 2
    settings = {"initial": half, "generations": 2, "mutations": half // 2, "crossovers": half - half // 2}
    searcher = make_searcher("evolution", domain, "accuracy", settings=settings)
    with tempfile.TemporaryDirectory() as folder, InProcess(evaluator, "cpu") as executor:
        study = Study(Path(folder) / "study.log", "s", space=space, objectives=searcher.objectives, record={})
        evaluator([space.smallest])  # prepares the batches
        evaluator.forward_seconds = 0.0
        start = time.perf_counter()
        drive(searcher, executor, study)
        spent = time.perf_counter() - start
        trials = study.trials()
    rate, share = len(trials) / spent, evaluator.forward_seconds / spent
    evaluated = sum(trial.seconds for trial in trials) / spent
    name = source.rstrip("/").rpartition("/")[2]
    met = ("met" if share >= LEAST_SHARE else "NOT met") if size == 28 else ""
    print(
        f"{name:<16}{evaluator.images:>8,}{len(trials):>12}{rate:>13.1f}{60 * rate:>13,.0f}{evaluated:>12.1%}"
        f"{share:>10.1%} {met}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", nargs="+", default=["digits"])
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--searched", type=int, help="candidates on images; 200 on digits, 40 on others")
    given = parser.parse_args()
    torch.set_num_threads(1)
    overhead(given.candidates)
    print("\nInherited accuracy on all of search-validation, vitas-nano, evolution, one thread, the record on disk\n")
    print(f"{'images':<16}{'of them':>8}{'candidates':>12}{'/s':>13}{'a minute':>13}{'evaluating':>12}{'forward':>10}")
    for source in given.data:
        forward_share(source, given.searched)


if __name__ == "__main__":
    main()
