"""SNIP (Lee et al. 2019): how much of the loss hangs on each weight, summed.

    sum |w * dL/dw|

over the weights of linear and convolution layers, L the cross-entropy of one batch. Nothing in it depends on the kind
of nonlinearity. Norms, biases, tokens, embeddings and relative tables are not counted: pruning them is not the question
that SNIP asks, and biases start at zero.
"""

from __future__ import annotations

import torch

from vitruvius.proxies._base import PROXIES, Needs, OneByOne
from vitruvius.proxies._candidate import Candidate

__all__ = ["Snip"]


class Snip(OneByOne):
    name = "snip"
    source = "Lee et al., ICLR 2019"
    needs = Needs(images="batch", labels=True, gradients=1, init="default")
    passes = 3

    def of(self, candidate: Candidate) -> dict[str, float]:
        gradients = candidate.gradients
        with torch.no_grad():
            parts = [(weight * gradients[name]).abs().double().sum() for name, weight in candidate.weights.items()]
        return {self.name: float(sum(parts))}


PROXIES.add(Snip.name, Snip())
