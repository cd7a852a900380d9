"""Nuclear norms: of slices of shared weights, kept; of gradients, by their rank, and in closed form up to two."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["NuclearNorms", "nuclear_of_products", "nuclear_of_rank"]

_SPARE = 8


class NuclearNorms:
    """The nuclear norms of matrices that every candidate takes the leading rows and columns of."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int, int], float] = {}

    def of(self, name: str, rows: int, columns: int, matrix: Callable[[], Tensor]) -> float:
        """matrix: gives the slice where its norm is not known yet."""
        key = (name, rows, columns)
        if key not in self._kept:
            self._kept[key] = _nuclear(matrix())
        return self._kept[key]


def _nuclear(matrix: Tensor) -> float:
    """By the eigenvalues of its smaller Gram matrix: in float64 half the digits are left, more than float32 has."""
    matrix = matrix.double().contiguous()
    gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    return float(torch.linalg.eigvalsh(gram).clamp_(min=0).sqrt_().sum())


def nuclear_of_rank(matrix: Tensor, rank: int) -> float:
    """Of a matrix of no more than this rank: where that is low, by its products with a few fixed random vectors, which
    span all that it maps to (Halko et al. 2011)."""
    few = rank + _SPARE
    if 2 * few < min(matrix.shape):
        generator = torch.Generator().manual_seed(0)
        vectors = torch.randn(matrix.shape[1], few, generator=generator, dtype=torch.float64).to(matrix.device)
        matrix = matrix.double()
        matrix = torch.linalg.qr(matrix @ vectors).Q.T @ matrix
    return _nuclear(matrix)


def nuclear_of_products(left_BTO: Tensor, right_BTI: Tensor) -> Tensor:
    """(B,): the nuclear norms of sums over one or two tokens of left times right, which have rank one or two.

    Two singular values: the sum of their squares is the squared Frobenius norm, their product the root of the product
    of the factors' Gram determinants.
    """
    left, right = _gram(left_BTO), _gram(right_BTI)
    if left_BTO.shape[1] == 1:
        return (left[0] * right[0]).sqrt()
    squares = left[0] * right[0] + left[1] * right[1] + 2 * left[2] * right[2]
    determinants = [(one * other - mixed.square()).clamp(min=0) for one, other, mixed in (left, right)]
    return (squares + 2 * (determinants[0] * determinants[1]).sqrt()).clamp(min=0).sqrt()


def _gram(x_BTC: Tensor) -> list[Tensor]:
    """Squared lengths of the tokens, and the product of the two if there are two."""
    lengths = [x_BTC[:, t].square().sum(-1) for t in range(x_BTC.shape[1])]
    return lengths if len(lengths) == 1 else [*lengths, (x_BTC[:, 0] * x_BTC[:, 1]).sum(-1)]
