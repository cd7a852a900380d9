"""Searchers on problems whose answers are known, 20 seeds each; and NSGA-II beside pymoo's.

python bench/searchers.py                 # needs the extra `bench` for the second table
python bench/searchers.py --only known
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import moocore
import numpy as np
from scipy.stats import mannwhitneyu

from vitruvius import costs, recipes, spaces
from vitruvius.arrays import IntArray
from vitruvius.pipeline.search import read_search_config
from vitruvius.search import Domain, make_searcher
from vitruvius.search._variation import Rates, Variation
from vitruvius.testing.searchers import PROBLEMS, Problem, Solved, solve, tell_all

EVALUATIONS = 2000
ENTRANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "evolution (S3)": ("evolution", {}),
    "evolution (AutoFormer)": ("evolution", {}),
    "evolution (ViT-ResNAS)": ("evolution", {}),
    "nsga2": ("nsga2", {}),
    "nsga2 (ViTAS)": ("nsga2", {}),
    "random": ("random", {"evaluations": EVALUATIONS}),
}
_RECIPES = {
    "AutoFormer": "autoformer-search",
    "S3": "s3-search",
    "ViT-ResNAS": "vit-resnas-search",
    "ViTAS": "vitas-search",
}


def entrant(name: str) -> tuple[str, dict[str, Any]]:
    """A searcher and its settings; the papers' from their recipes, with generations for 2,000 evaluations."""
    searcher, settings = ENTRANTS[name]
    for paper, recipe in _RECIPES.items():
        if f"({paper})" in name:
            settings = read_search_config({"recipe": recipe, "objectives": "dss"}).settings
            if searcher == "evolution":
                children = settings["mutations"] + settings["crossovers"]
                settings = {**settings, "generations": 1 + -(-(EVALUATIONS - settings["initial"]) // children)}
    return searcher, settings


def solved(problem: Problem, name: str, seed: int) -> Solved:
    searcher, settings = entrant(name)
    made = make_searcher(searcher, problem.domain(), problem.objectives, seed=seed, settings=settings)
    return solve(made, problem, EVALUATIONS)


def quality(problem: Problem, found: Solved) -> float:
    """More is better: the best score, or the part of the true front's hypervolume."""
    return found.volume if "," in problem.objectives else -found.best


def closed_form(seeds: int, problems: Sequence[str]) -> None:
    print(f"{EVALUATIONS:,} evaluations, {seeds} seeds; spaces of 199,017 networks, all of which were looked at\n")
    print(f"{'problem':<31}{'searcher':<25}{'reached':>9}{'median':>9}{'worst':>9}{'of':>7}{'p against random':>18}")
    for problem in map(PROBLEMS.__getitem__, problems):
        several = "," in problem.objectives
        names = [name for name in ENTRANTS if not several or "evolution" not in name]
        values = {}
        rows = []
        for name in names:
            found = [solved(problem, name, seed) for seed in range(seeds)]
            values[name] = [quality(problem, each) for each in found]
            rows.append((name, sum(each.reached for each in found)))
        most = 1.0 if several else -float(problem.answer[0, 0])
        for name, reached in rows:
            ours = np.array(values[name])
            p = mannwhitneyu(ours, values["random"], alternative="greater").pvalue
            said = "" if name == "random" else f"{p:.1e}"
            label = f"{problem.name} ({len(problem.answer)})" if several else problem.name
            digits = ".4f" if several else ".0f"
            print(
                f"{label:<31}{name:<25}{reached:>6}/{seeds}{np.median(ours):>9{digits}}{ours.min():>9{digits}}"
                f"{most:>7.0f}{said:>18}",
                flush=True,
            )
    print("\nWith several objectives: the share of the true front's hypervolume, in brackets the points of that front;")
    print("reached: the optimum, or every point of the true front and no other.")


# -- beside pymoo ------------------------------------------------------------------------------------------------------

SHARED = {"autoformer-tiny": "params <= 6.5M", "vitas-nano": "params <= 150k"}
"""Spaces far too large to enumerate, so that neither can be perfect."""


class Shared:
    """Maximise a score with ups and downs, minimise MACs, within a budget of parameters."""

    def __init__(self, name: str) -> None:
        self.space = spaces.load(name)
        self.domain = Domain(self.space, SHARED[name])
        self.reference = np.array([0.0, 1.1 * costs.macs(self.space.largest, img_size=self.space.img_size)])

    def values(self, vectors: IntArray) -> np.ndarray:
        """(n, 2), less being better."""
        stage = self.space.arrays(vectors).stages[0]
        place = 1 + np.arange(stage.active.shape[1]) % 3
        order = np.cumsum(stage.active, axis=1) % 3 + 1
        ratio = np.round(2 * stage.mlp / stage.dim[:, None]).astype(np.int64)
        worth = (stage.heads * order + ratio + place) % 7 + stage.heads + ratio
        score = (worth * stage.active).sum(axis=1) + stage.dim / 16
        return np.stack([-score, costs.cost(vectors, space=self.space).macs], axis=1).astype(np.float64)

    def volume(self, values: np.ndarray) -> float:
        return float(moocore.hypervolume(values, ref=self.reference))


def ours(shared: Shared, seed: int) -> float:
    searcher = make_searcher("nsga2", shared.domain, "score,macs", seed=seed)
    found = []
    while archs := searcher.ask():
        values = shared.values(np.stack([shared.space.encode(arch) for arch in archs]))
        found.append(values)
        tell_all(searcher, archs, (-values[:, 0]).tolist())
    return shared.volume(np.concatenate(found))


def theirs(shared: Shared, seed: int, own_operators: bool) -> float:
    """pymoo's NSGA-II: with our sampling and variation, or with its operators for whole numbers."""
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.core.crossover import Crossover
    from pymoo.core.problem import Problem as PymooProblem
    from pymoo.core.repair import Repair
    from pymoo.core.sampling import Sampling
    from pymoo.operators.crossover.sbx import SBX
    from pymoo.operators.mutation.nom import NoMutation
    from pymoo.operators.mutation.pm import PM
    from pymoo.optimize import minimize

    layout, domain = shared.space.layout, shared.domain
    variation = Variation(shared.space, Rates(0.1, 0.1, 0.1))
    rng = np.random.default_rng(seed)
    found = []

    class Ours(PymooProblem):
        def __init__(self) -> None:
            upper = layout.counts - 1
            super().__init__(n_var=len(upper), n_obj=2, n_ieq_constr=1, xl=np.zeros(len(upper)), xu=upper, vtype=int)

        def _evaluate(self, x: Any, out: Any, *args: Any, **kwargs: Any) -> None:
            vectors = variation.packed(np.asarray(x, dtype=np.int64))
            allowed = domain.allows(vectors)
            out["F"] = shared.values(vectors)
            out["G"] = np.where(allowed, -1.0, 1.0)[:, None]
            found.append(out["F"][allowed])

    class Drawn(Sampling):
        def _do(self, problem: Any, n_samples: int, **kwargs: Any) -> Any:
            return variation.packed(domain.draw(rng, n_samples))

    class HalfCrossed(Crossover):
        """Of two parents one child by crossover and one by mutation, both inside the budget, as ours."""

        def __init__(self) -> None:
            super().__init__(2, 2, prob=1.0)

        def _do(self, problem: Any, x: Any, **kwargs: Any) -> Any:
            a, b = x.astype(np.int64)
            return np.stack([_inside(variation.crossed, a, b), _inside(lambda r, p, _: variation.mutated(r, p), a, b)])

    def _inside(make: Callable[..., IntArray], a: IntArray, b: IntArray) -> IntArray:
        made = make(rng, a, b)
        for _ in range(20):
            outside = ~domain.allows(made)
            if not outside.any():
                break
            made[outside] = make(rng, a[outside], b[outside])
        return made

    class Packed(Repair):
        """Whole numbers, and equal vectors for equal networks."""

        def _do(self, problem: Any, x: Any, **kwargs: Any) -> Any:
            return variation.packed(np.rint(x).astype(np.int64))

    options: dict[str, Any] = {"sampling": Drawn(), "eliminate_duplicates": True}
    if own_operators:
        options |= {"crossover": HalfCrossed(), "mutation": NoMutation()}
    else:
        whole: dict[str, Any] = {"vtype": float, "repair": Packed()}
        options |= {"crossover": SBX(prob=0.9, eta=3, **whole), "mutation": PM(eta=3, **whole)}
    minimize(Ours(), NSGA2(pop_size=50, **options), ("n_eval", EVALUATIONS), seed=seed, verbose=False)
    return shared.volume(np.concatenate(found))


def by_chance(shared: Shared, seed: int) -> float:
    return shared.volume(shared.values(shared.domain.draw(np.random.default_rng(seed), EVALUATIONS)))


def beside_pymoo(seeds: int) -> None:
    print(f"\nHypervolume at {EVALUATIONS:,} evaluations, population 50, {seeds} seeds; the mean of ours is 1\n")
    print(f"{'space':<18}{'NSGA-II of':<42}{'mean':>9}{'sd':>8}{'p against ours':>16}")
    for name in SHARED:
        shared = Shared(name)
        rows = {
            "vitruvius": [ours(shared, seed) for seed in range(seeds)],
            "pymoo, our variation": [theirs(shared, seed, True) for seed in range(seeds)],
            "pymoo, its operators for whole numbers": [theirs(shared, seed, False) for seed in range(seeds)],
            "(random)": [by_chance(shared, seed) for seed in range(seeds)],
        }
        scale = np.mean(rows["vitruvius"])
        for label, volumes in rows.items():
            values = np.array(volumes) / scale
            p = "" if label == "vitruvius" else f"{mannwhitneyu(rows['vitruvius'], volumes).pvalue:.2g}"
            print(f"{name:<18}{label:<42}{np.mean(values):>9.4f}{np.std(values):>8.4f}{p:>16}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", choices=("known", "pymoo"), help="one of the two tables")
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS), choices=PROBLEMS, metavar="PROBLEM")
    given = parser.parse_args()
    assert all(name in recipes.names("search") for name in _RECIPES.values())
    if given.only != "pymoo":
        closed_form(given.seeds, given.problems)
    if given.only != "known":
        beside_pymoo(given.seeds)


if __name__ == "__main__":
    main()
