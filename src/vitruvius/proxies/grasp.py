"""GraSP (Wang et al. 2020): what removing each weight would do to the gradient flow, summed.

    - sum w * (H g),    g = dL/dw, H the Hessian

over the weights of linear and convolution layers, L the cross-entropy of one batch. H g is the gradient of g . stop(g).
Logits are not divided by a temperature (as in Abdelfattah et al. 2021; the pruning paper divides them by 200). GELU and
softmax have the second derivatives that ReLU lacks, so here the Hessian is more than that of the loss: nothing is
approximated.
"""

from __future__ import annotations

import torch

from vitruvius.proxies._base import PROXIES, Needs, OneByOne
from vitruvius.proxies._candidate import Candidate

__all__ = ["Grasp"]


class Grasp(OneByOne):
    name = "grasp"
    source = "Wang et al., ICLR 2020"
    needs = Needs(images="batch", labels=True, gradients=2, init="default")
    passes = 9

    def of(self, candidate: Candidate) -> dict[str, float]:
        gradients, weights = candidate.gradients, candidate.weights
        flow = torch.stack([(gradients[name] * gradients[name].detach()).sum() for name in weights]).sum()
        products = torch.autograd.grad(flow, list(weights.values()), retain_graph=True, materialize_grads=True)
        with torch.no_grad():
            parts = [(w * product).double().sum() for w, product in zip(weights.values(), products, strict=True)]
        return {self.name: -float(sum(parts))}


PROXIES.add(Grasp.name, Grasp())
