"""Gradient norm (Abdelfattah et al. 2021): the Euclidean norm of the loss gradient of each layer, summed.

    sum over layers of ||dL/dW||_2

over the weights of linear and convolution layers, L the cross-entropy of one batch. Nothing in it depends on the kind
of nonlinearity.
"""

from __future__ import annotations

from vitruvius.proxies._base import PROXIES, Needs, OneByOne
from vitruvius.proxies._candidate import Candidate

__all__ = ["GradNorm"]


class GradNorm(OneByOne):
    name = "grad_norm"
    source = "Abdelfattah et al., ICLR 2021"
    needs = Needs(images="batch", labels=True, gradients=1, init="default")
    passes = 3

    def of(self, candidate: Candidate) -> dict[str, float]:
        gradients = candidate.gradients
        return {self.name: float(sum(gradients[name].detach().double().norm() for name in candidate.weights))}


PROXIES.add(GradNorm.name, GradNorm())
