"""Every sharing rule's influence gap by one formula, beside what the paper prints (ViTAS v2, Table 16), and the solved
tables of the cyclic rule.

    python bench/sharing.py
"""

from __future__ import annotations

import time

import numpy as np

from vitruvius.superformer.cyclic import MOST_GROUPS, free_use, influence_gap, optimal_starts, pieces, runs

PAPER = {
    5: "30.3 / 10.0 / 0.6",
    6: "48.1 / 19.0 / 0.3",
    7: "70.6 / 30.6 / 0.7",
    8: "99.1 / 46.1 / 0.5",
    9: "130.0 / 66.1 / 0.8",
    10: "167.4 / 88.7 / 0.5",
}
"""Ordinal, bilateral, cyclic."""


def main() -> None:
    print("Sum over ordered pairs of groups of squared influence differences, divided by the number of groups")
    print(f"{'groups':>6}{'ordinal':>10}{'bilateral':>11}{'cyclic':>9}{'free':>9}", end="")
    print(f"{'pieces: cyclic':>16}{'free':>6}{'seconds: cyclic':>17}{'free':>7}   the paper's")
    tables = {}
    for groups in range(2, MOST_GROUPS + 1):
        widths = tuple(range(1, groups + 1))
        start = time.perf_counter()
        tables[groups] = optimal_starts(groups, widths)
        middle = time.perf_counter()
        free = free_use(groups, widths)
        seconds = (middle - start, time.perf_counter() - middle)
        first, cyclic = runs(groups, widths, [0] * groups), runs(groups, widths, tables[groups])
        both = np.concatenate([first, first[:, ::-1]])
        gaps = [influence_gap(first, widths), influence_gap(both, widths * 2)]
        gaps += [influence_gap(cyclic, widths), influence_gap(free, widths)]
        print(f"{groups:>6}{gaps[0]:>10.3f}{gaps[1]:>11.3f}{gaps[2]:>9.3f}{gaps[3]:>9.3f}", end="")
        print(f"{pieces(cyclic):>16}{pieces(free):>6}{seconds[0]:>17.2f}{seconds[1]:>7.2f}   {PAPER.get(groups, '')}")
    print("\nCYCLIC: dict[int, tuple[int, ...]] = {")
    for groups, starts in tables.items():
        print(f"    {groups}: {starts},")
    print("}")


if __name__ == "__main__":
    main()
