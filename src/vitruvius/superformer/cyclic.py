"""Where each width's channels start on the circle: the tables of the cyclic sharing rule, proven optimal.

ViTAS v2 (Section 4, A.11) divides an axis into l groups; width j uses a contiguous, wrapping run of j groups. The
starts are chosen so that every group is trained equally often (counts differ by at most one, Eq. 12) and has the most
even influence (Eq. 13, a width of j groups giving each of them 1/j).

The sum over ordered pairs of squared differences of influence is 2 (l S - T^2) with S the sum of squared influences and
T their sum, which no choice of starts changes: so the least S is sought. The search places the widths one after the
other, smallest first, keeps all partial placements whose bound does not exceed the best known solution, and so ends
with an optimum. The bound: what a group still lacks in count it must get from the remaining widths, at least the
lightest of them; and what influence remains is at best poured where there is least.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations, permutations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_GROUPS = 13
"""Up to here the optimum is proven in about a second; beyond it arcs are chained."""
_EPS = 1e-9


def influence_gap(use: NDArray[np.bool_], widths: Sequence[int]) -> float:
    """The quantity of the paper's Table 16: the sum over ordered pairs of groups of squared differences, over groups.

    use: (m, groups), which groups each width uses.
    """
    influence = (use / np.asarray(widths, dtype=np.float64)[:, None]).sum(axis=0)
    differences = influence[:, None] - influence[None, :]
    return float((differences**2).sum() / len(influence))


def runs(groups: int, widths: Sequence[int], starts: Sequence[int]) -> NDArray[np.bool_]:
    """(m, groups): the groups of each width's run."""
    place = (np.arange(groups)[None, :] - np.asarray(starts)[:, None]) % groups
    return place < np.asarray(widths)[:, None]


def _squares(groups: int, widths: Sequence[int], starts: Sequence[int]) -> float:
    influence = (runs(groups, widths, starts) / np.asarray(widths)[:, None]).sum(axis=0)
    return float((influence**2).sum())


def chained(groups: int, widths: Sequence[int]) -> tuple[int, ...]:
    """Starts whose unused arcs follow each other around the circle, which alone makes the counts fair.

    The best order of the arcs is sought by trying all of them (up to 7 widths) or by swapping pairs.
    """

    def starts(order: Sequence[int]) -> tuple[int, ...]:
        found, end = [0] * len(widths), 0
        for i in order:
            end = (end + groups - widths[i]) % groups  # the arc that width i leaves out ends here, and its run starts
            found[i] = end
        return tuple(found)

    order = list(range(len(widths)))
    if len(order) <= 7:
        return min((starts(each) for each in permutations(order)), key=lambda s: _squares(groups, widths, s))
    best, least, improved = order, _squares(groups, widths, starts(order)), True
    while improved:
        improved = False
        for i in range(len(order)):
            for j in range(i):
                other = best.copy()
                other[i], other[j] = other[j], other[i]
                if (squares := _squares(groups, widths, starts(other))) < least - _EPS:
                    best, least, improved = other, squares, True
    return starts(best)


def _bounds(influence: Floats, count: Ints, left: Sequence[int], low: int, high: int) -> Floats:
    """(n,): no completion of a partial placement has a smaller sum of squared influences; inf if none is fair."""
    weights = np.sort(1.0 / np.asarray(left, dtype=np.float64)) if left else np.zeros(0)
    lightest = np.concatenate([[0.0], np.cumsum(weights)])
    lacking = np.maximum(low - count, 0)
    impossible = ((count > high) | (lacking > len(left))).any(axis=1)
    base = influence + lightest[np.minimum(lacking, len(left))]
    remaining = len(left) - lightest[np.minimum(lacking, len(left))].sum(axis=1)
    impossible |= remaining < -_EPS
    # Pour what remains where there is least: with the k lowest groups filled to one level, and the others as they are.
    ordered = np.sort(base, axis=1)
    filled = np.cumsum(ordered, axis=1)
    k = np.arange(1, base.shape[1] + 1)
    level = (np.maximum(remaining, 0.0)[:, None] + filled) / k
    following = np.concatenate([ordered[:, 1:], np.full((len(ordered), 1), np.inf)], axis=1)
    first = (level <= following + _EPS).argmax(axis=1)
    rows = np.arange(len(base))
    above = (base**2).sum(axis=1) - np.cumsum(ordered**2, axis=1)[rows, first]
    return np.where(impossible, np.inf, (first + 1) * level[rows, first] ** 2 + above)


@lru_cache(maxsize=256)
def optimal_starts(groups: int, widths: tuple[int, ...]) -> tuple[int, ...]:
    """Starts of the runs of these widths among groups groups, with the least influence gap of all fair ones."""
    total = sum(widths)
    low, high = total // groups, -(-total // groups)
    order = sorted(range(len(widths)), key=lambda i: widths[i])
    best = chained(groups, widths)
    least = _squares(groups, widths, best)
    starts = np.zeros((1, 0), dtype=np.int64)
    influence, count = np.zeros((1, groups)), np.zeros((1, groups), dtype=np.int64)
    for depth, i in enumerate(order):
        width, left = widths[i], [widths[j] for j in order[depth + 1 :]]
        places = np.arange(
            groups if depth and width < groups else 1
        )  # turning the circle changes nothing: the first starts at 0
        use = runs(groups, [width] * len(places), places.tolist())
        rows, kept = [], []
        for place in places:
            grown = influence + use[place] / width
            counted = count + use[place]
            bound = _bounds(grown, counted, left, low, high)
            rows.append(np.flatnonzero(bound < least - _EPS))
            kept.append(np.full(len(rows[-1]), place))
        parent, place = np.concatenate(rows), np.concatenate(kept)
        starts = np.concatenate([starts[parent], place[:, None]], axis=1)
        influence = influence[parent] + use[place] / width
        count = count[parent] + use[place]
        influence, count, starts = _distinct(influence, count, starts)
        if not len(starts):
            return best
    squares = (influence**2).sum(axis=1)
    found = starts[int(squares.argmin())]
    return tuple(int(found[order.index(i)]) for i in range(len(widths)))


def _distinct(influence: Floats, count: Ints, starts: Ints) -> tuple[Floats, Ints, Ints]:
    """One of all partial placements that agree in influence and count."""
    if not len(starts):
        return influence, count, starts
    keys = np.concatenate([np.rint(influence * 1e9).astype(np.int64), count], axis=1)
    _, first = np.unique(keys, axis=0, return_index=True)
    return influence[first], count[first], starts[first]


def _patterns(groups: int, widths: Sequence[int]) -> list[tuple[int, ...]]:
    """Every set of widths that one group may serve: the full one, and as many others as fairness asks for."""
    total = sum(widths)
    sizes = {total // groups, -(-total // groups)}
    full = [i for i, width in enumerate(widths) if width == groups]
    others = [i for i, width in enumerate(widths) if width < groups]
    return [(*chosen, *full) for size in sizes for chosen in combinations(others, size - len(full))]


def free_use(groups: int, widths: Sequence[int]) -> NDArray[np.bool_]:
    """(m, groups): the fairest use of groups when a width's groups need not be neighbours, by an integer program.

    A group is known by the set of widths that it serves, and the gap is a sum over groups: so the unknowns are how many
    groups serve each set, every width must be served as often as it has groups, and the program is linear.
    """
    from scipy.optimize import LinearConstraint, milp

    patterns = _patterns(groups, widths)
    serves = np.array([[i in pattern for pattern in patterns] for i in range(len(widths))], dtype=np.float64)
    influence = (serves / np.asarray(widths)[:, None]).sum(axis=0)
    solved = milp(
        influence**2,
        integrality=np.ones(len(patterns)),
        constraints=LinearConstraint(serves, widths, widths),
        options={"mip_rel_gap": 0.0},
    )
    if not solved.success:
        raise RuntimeError(f"the integer program of {groups} groups was not solved: {solved.message}")
    amounts = np.rint(solved.x).astype(int)
    groups = [pattern for pattern, amount in zip(patterns, amounts, strict=True) for _ in range(amount)]
    # Turning like groups next to each other keeps the gathers few.
    return np.array([[i in group for group in sorted(groups)] for i in range(len(widths))], dtype=bool)


def pieces(use: NDArray[np.bool_]) -> int:
    """How many contiguous pieces all widths together are gathered from."""
    padded = np.concatenate([np.zeros((len(use), 1), dtype=bool), use], axis=1)
    return int((padded[:, 1:] & ~padded[:, :-1]).sum())
