"""Solved tables of the cyclic rule for whole ladders (widths 1..l of l groups): a test solves them again.

python -m vitruvius.superformer.cyclic    # prints this file's tables, and every rule's gap beside the paper's
"""

CYCLIC: dict[int, tuple[int, ...]] = {
    2: (1, 1),
    3: (2, 0, 0),
    4: (1, 2, 2, 2),
    5: (4, 2, 0, 3, 0),
    6: (2, 0, 3, 3, 1, 3),
    7: (6, 4, 1, 0, 3, 4, 0),
    8: (0, 6, 3, 1, 1, 5, 4, 0),
    9: (4, 2, 8, 5, 5, 0, 1, 6, 0),
    10: (0, 8, 5, 1, 1, 2, 5, 7, 6, 0),
    11: (0, 9, 6, 2, 1, 1, 6, 7, 4, 2, 0),
    12: (0, 10, 1, 6, 1, 4, 3, 10, 4, 5, 6, 0),
    13: (0, 1, 3, 9, 6, 3, 6, 8, 12, 11, 8, 0, 0),
}
