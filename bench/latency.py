"""The latency predictor on one CPU thread, against measurements of networks that it had not seen.

python bench/latency.py                        # the nano spaces
python bench/latency.py --spaces vitas-nano s3-nano --clock wall
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time

import numpy as np

from vitruvius import spaces
from vitruvius.costs import latency

NANO = tuple(name for name in spaces.SPACES if name.endswith("-nano"))
LEAST_SPEARMAN, MOST_ERROR = 0.95, 0.10


def row(by: str, each: latency.Accuracy) -> str:
    return f"{by:<18}{each.spearman:>10.3f}{each.kendall:>10.3f}{each.median_error:>14.1%}{each.error_90:>12.1%}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--spaces", nargs="+", default=NANO)
    parser.add_argument("--clock", default="cpu", help="cpu: processor time, since these cores are shared; or wall")
    parser.add_argument("--repeats", type=int, default=41)
    parser.add_argument("--held-out", type=int, default=50)
    given = parser.parse_args()
    load = os.getloadavg()[0]
    print(
        f"{given.held_out} held-out networks a space, one thread, {given.clock} clock, {given.repeats} repeats in turns"
    )
    print(f"{os.cpu_count()} cores with a load of {load:.1f} when it began")
    print(f"{'':<18}{'Spearman':>10}{'Kendall':>10}{'median error':>14}{'90 % below':>12}")
    for name in given.spaces:
        space = spaces.load(name)
        setting = latency.Setting(img_size=space.img_size, num_classes=10, clock=given.clock)
        start = time.perf_counter()
        made = latency.build_predictor(
            space, setting, held_out=given.held_out, repeats=given.repeats, say=lambda report: None
        )
        built = time.perf_counter() - start
        own, *others = made.accuracy
        met = own.spearman >= LEAST_SPEARMAN and own.median_error <= MOST_ERROR
        print(f"{row(name, own)}   {'met' if met else 'NOT met'}")
        for other in others:
            print(row(f"  by {other.by} alone", other))
        vectors = space.sample_vectors(np.random.default_rng(1), 20_000)
        start = time.perf_counter()
        made(vectors)
        rate = len(vectors) / (time.perf_counter() - start)
        print(f"  {made.parts} parts, built in {built:.0f} s, tells {rate:,.0f} networks a second;", end=" ")
        print(f"what it is checked against spreads by {made.spread:.0%}", flush=True)


if __name__ == "__main__":
    main()
