"""DSS: collapsed networks side by side (`fast`) over whole ones, one by one with a full SVD of every matrix (`exact`).

python bench/dss.py                # one thread; then the search of TF-TAS, 8,000 candidates, on two
python bench/dss.py --no-search
python bench/dss.py --clock cpu    # the process' own time, for a machine that others use too
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from vitruvius import spaces
from vitruvius.proxies import PROXIES, Setting
from vitruvius.proxies.dss import exact, fast

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
SPACES = ("autoformer-tiny", "autoformer-small", "autoformer-base")
SEARCH = ("score", "autoformer-tiny", "--proxy", "dss", "-n", "8000", "--params", "5M..6M", "--top", "3")


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    work()
    return clock() - start


def row(name: str, proxy: str, count: int, few: int, clock: Callable[[], float]) -> str:
    space, variant, setting = spaces.load(name), PROXIES[proxy].variant, Setting()
    archs = space.decode_many(space.sample_vectors(np.random.default_rng(0), count))
    exact([space.largest], setting, variant, full_svd=True)  # both find the random weights made
    slow = seconds(lambda: exact(archs[:few], setting, variant, full_svd=True), clock) / few
    first, again = (seconds(lambda: fast(archs, setting, variant), clock) / count for _ in range(2))
    speeds = f"{1 / slow:>10.2f}/s{1 / first:>10.1f}/s{1 / again:>10.1f}/s"
    return f"{name:<18}{proxy:<15}{speeds}{slow / first:>9.0f}x{slow / again:>9.0f}x"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--space", choices=SPACES, action="append")
    parser.add_argument("-n", type=int, default=1000, help="candidates of the fast path")
    parser.add_argument("--few", type=int, default=4, help="candidates of the exact path")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--no-search", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"Architectures a second at 224 pixels, one thread: {given.n} random ones fast, the first {given.few} exact")
    print(f"{'space':<18}{'proxy':<15}{'exact':>12}{'first':>12}{'again':>12}{'ratio':>10}{'ratio':>10}")
    for name in given.space or SPACES:
        for proxy in ("dss", "dss-reference"):
            print(row(name, proxy, given.n, given.few, CLOCKS[given.clock]), flush=True)
    if not given.no_search:
        print(f"\nTwo threads: vitruvius {' '.join(SEARCH)}")
        command = [sys.executable, "-m", "vitruvius", *SEARCH]
        took = seconds(lambda: subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "2"}))
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"{took:.1f} s, everything included; {spent.ru_utime + spent.ru_stime:.1f} s of the processor")


if __name__ == "__main__":
    main()
