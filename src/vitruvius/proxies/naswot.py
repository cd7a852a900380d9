"""NASWOT (Mellor et al. 2021): how well the nonlinear units tell a batch's images apart, before any training.

    log |det K|,    K_ij = in how many units images i and j are on the same side of zero

A ReLU unit is on or off, and an image's code is the list of them. A transformer's units are its GELUs (of every token;
and the ReLUs of a convolutional stem): a GELU is close to a ReLU, and whether its input is positive says which side an
image is on. Softmax and norms have no sides and are not counted.
"""

from __future__ import annotations

import torch

from vitruvius.proxies._base import PROXIES, Needs, OneByOne
from vitruvius.proxies._candidate import Candidate

__all__ = ["Naswot"]


class Naswot(OneByOne):
    name = "naswot"
    source = "Mellor et al., ICML 2021"
    needs = Needs(images="batch", init="default", records=frozenset({"units"}))
    passes = 1

    def of(self, candidate: Candidate) -> dict[str, float]:
        return {self.name: float(torch.linalg.slogdet(candidate.agreement).logabsdet)}


PROXIES.add(Naswot.name, Naswot())
