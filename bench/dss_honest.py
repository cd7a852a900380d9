"""How much DSS, as TF-TAS's released code computes it, says that the parameter count does not (docs/dss-honest.md).

python bench/dss_honest.py
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.stats import kendalltau

from vitruvius import costs, proxies, spaces

SAMPLES, COUNT, SEEDS = 8, 100, 4


def tau(a: object, b: object) -> float:
    return float(kendalltau(a, b).statistic)


def main() -> None:
    torch.set_num_threads(1)
    space = spaces.load("autoformer-tiny")
    print(f"autoformer-tiny, {COUNT} random networks a sample: Kendall's tau of dss-reference")
    print(f"{'sample':>6}{'params':>9}{'MACs':>9}")
    found = []
    for sample in range(SAMPLES):
        archs = space.decode_many(space.sample_vectors(np.random.default_rng(sample), COUNT))
        scores = proxies.score("dss-reference", archs)
        found.append([tau(scores, costs.params(archs)), tau(scores, costs.macs(archs))])
        print(f"{sample:>6}{found[-1][0]:>9.3f}{found[-1][1]:>9.3f}", flush=True)
    print(f"{'mean':>6}" + "".join(f"{value:>9.3f}" for value in np.mean(found, axis=0)))
    others = [proxies.score("dss-reference", archs, seed=seed) for seed in range(1, SEEDS)]
    agreement = " ".join(f"{tau(scores, other):.3f}" for other in others)
    print(f"the last sample with itself under {SEEDS - 1} other initialisations: {agreement}")


if __name__ == "__main__":
    main()
