"""Fisher information of activations (Theis et al. 2018, Turner et al. 2020), as a score (Abdelfattah et al. 2021).

    sum over layers and channels of mean over images of 1/2 (sum over places of a * dL/da)^2

where a are the outputs of linear and convolution layers. In a convolutional network a place is a pixel. Here it is a
token (in every window, where there are windows): what is pruned, and therefore judged, is a channel, wherever it is.
L is the mean cross-entropy of a batch, as in the literature's comparisons; the score falls with the square of the batch
size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitruvius.proxies._base import PROXIES, Needs, OneByOne
from vitruvius.proxies._candidate import Candidate

__all__ = ["Fisher"]


class Fisher(OneByOne):
    name = "fisher"
    source = "Turner et al., ICLR 2020; Abdelfattah et al., ICLR 2021"
    needs = Needs(images="batch", labels=True, gradients=1, init="default", records=frozenset({"layers"}))
    passes = 3

    def of(self, candidate: Candidate) -> dict[str, float]:
        gradients, trace = candidate.gradients, candidate.trace
        with torch.no_grad():
            parts = [
                _information(output * gradients[f"layers.{name}"], 1 if name in trace.convolutions else -1)
                for name, output in trace.layers.items()
            ]
        return {self.name: float(sum(parts))}


def _information(products: Tensor, channels: int) -> Tensor:
    """Of (B, ..., C), or with channels=1 of (B, C, ...): added up over places, squared, the mean over images."""
    sums_BC = products.double().movedim(channels, 1).flatten(2).sum(-1) if products.ndim > 2 else products.double()
    return sums_BC.square().mean(dim=0).sum() / 2


PROXIES.add(Fisher.name, Fisher())
