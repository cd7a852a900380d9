"""How well collapsed networks (`fast`) order architectures as the whole networks (`exact`) do: Kendall's tau.

python bench/dss_agreement.py                                  # every setting below; hours of one thread
python bench/dss_agreement.py --space pit-ti --pixels 96 -n 50
python bench/dss_agreement.py --keep scores.jsonl              # goes on with the exact scores that are there
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import kendalltau

from vitruvius import spaces
from vitruvius.proxies import PROXIES, Setting
from vitruvius.proxies.dss import admits, exact, fast

VARIANTS = ("dss", "dss-reference")


@dataclass(frozen=True)
class Row:
    space: str
    pixels: int
    n: int


ROWS = (
    Row("autoformer-nano", 32, 1000),
    *(Row(name, 32, 300) for name in ("vitas-nano", "s3-nano")),
    Row("pit-nano", 96, 300),
    *(Row(name, 224, 100) for name in ("pit-ti", "pit-xs", "pit-s")),
    *(Row(name, 224, 50) for name in ("vitas-v1", "vitas-v1-block", "vitas-v1-large")),
    *(Row(name, 224, 50) for name in ("vitas-deit-tiny", "vitas-deit-small")),
    *(Row(name, 224, 50) for name in ("s3", "s3-tiny", "s3-small", "s3-base")),
    *(Row(name, 224, 1000) for name in ("autoformer-tiny", "autoformer-small", "autoformer-base")),
)
"""Every space whose networks collapse."""


class Kept:
    """Exact scores that are known, a line of JSON each."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        self.scores = {tuple(key): score for key, score in map(json.loads, lines)}

    def add(self, key: tuple[object, ...], score: float) -> None:
        self.scores[key] = score
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps([key, score]) + "\n")


def lines(row: Row, kept: Kept, seed: int) -> Iterator[str]:
    space = spaces.load(row.space)
    setting = Setting(img_size=row.pixels, seed=seed)
    drawn = space.decode_many(space.sample_vectors(np.random.default_rng(seed), 2 * row.n))
    archs = [arch for arch in dict.fromkeys(drawn) if admits(arch, setting)][: row.n]
    for name in VARIANTS:
        variant = PROXIES[name].variant
        keys = [(name, row.pixels, seed, arch.id) for arch in archs]
        missing = [place for place, key in enumerate(keys) if key not in kept.scores]
        for place in missing:
            kept.add(keys[place], float(exact([archs[place]], setting, variant)[0]))
        whole = np.array([kept.scores[key] for key in keys])
        collapsed = fast(archs, setting, variant)
        tau = kendalltau(collapsed, whole).statistic
        scored = whole != 0  # a network all of whose layers are the identity scores nothing, on both paths
        error = np.abs(collapsed[scored] / whole[scored] - 1).max()
        yield f"{row.space:<18}{row.pixels:>6}{len(archs):>7}  {name:<15}{tau:>9.5f}{error:>12.1e}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--space")
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("-n", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    rows = ROWS if given.space is None else (Row(given.space, given.pixels, given.n),)
    kept = Kept(given.keep)
    print("Kendall's tau between collapsed and whole networks, random different architectures")
    print(f"{'space':<18}{'pixels':>6}{'n':>7}  {'proxy':<15}{'tau':>9}{'rel. error':>12}")
    for row in rows:
        for line in lines(row, kept, given.seed):
            print(line, flush=True)


if __name__ == "__main__":
    main()
