"""TE-NAS (Chen et al. 2021): trainability and expressivity, from the neural tangent kernel and from linear regions.

    te_nas = te_nas.regions + te_nas.ntk
    te_nas.ntk     = - log of the condition number of the kernel J J^T
    te_nas.regions =   log of the number of linear regions between two images

J has a row an image: the gradient of the sum of its logits by the weights of linear and convolution layers.

The paper adds ranks, so that a score depends on the candidates around it. Logarithms are added here instead: both parts
are positive quantities that differ by factors, and a sum of logarithms is the candidate's own. The parts are kept, and
whoever wants ranks can add those.

Linear regions. A GELU is not piecewise linear; its units' signs stand for those of a ReLU, as in `naswot`. The paper
counts the different sign patterns among thousands of images of a few pixels. With whole images that count says nothing:
all images have patterns of their own, whatever the network (tested). Counted is instead what the patterns are there
for, how many regions the network has: to get from one image to the next, each unit whose sign differs has to be crossed
where it changes, and every crossing enters another region. So the number of units that differ, and one, is a lower
bound of the regions on the line between two images; its mean over the batch's neighbours is taken.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vitruvius.proxies._base import PROXIES, Floats, Needs, OneByOne
from vitruvius.proxies._candidate import Candidate

__all__ = ["TeNas", "tangent_kernel"]

_MEMORY = 2**29
"""So many bytes of gradients are held at once; wide networks take several passes."""


def tangent_kernel(candidate: Candidate) -> Tensor:
    """(B, B), float64: the products of the images' gradients."""
    images = candidate.setting.images
    kernel = torch.zeros(len(images), len(images), dtype=torch.float64, device=images.device)
    weights = list(candidate.weights.values())
    while weights:
        part = [weights.pop()]
        size = part[0].numel()
        while weights and (size := size + weights[-1].numel()) * 4 * len(images) <= _MEMORY:
            part.append(weights.pop())
        rows = [
            torch.autograd.grad(candidate.model(image).sum(), part, materialize_grads=True) for image in images.split(1)
        ]
        for same in zip(*rows, strict=True):
            rows_BP = torch.stack([gradient.flatten() for gradient in same]).double()
            kernel += rows_BP @ rows_BP.T
    return kernel


class TeNas(OneByOne):
    name = "te_nas"
    source = "Chen et al., ICLR 2021"
    needs = Needs(images="batch", gradients=1, init="default", records=frozenset({"units"}))
    passes = 4

    @property
    def parts(self) -> tuple[str, ...]:
        return ("te_nas.ntk", "te_nas.regions")

    def of(self, candidate: Candidate) -> dict[str, float]:
        values = torch.linalg.eigvalsh(tangent_kernel(candidate))
        condition = values[-1] / values[0].clamp_min(0)
        agreement = candidate.agreement
        crossed = agreement.diagonal()[1:] - agreement.diagonal(1)
        regions = (1 + crossed).mean()
        return {"te_nas.ntk": -float(condition.log()), "te_nas.regions": float(regions.log())}

    def combine(self, measured: Mapping[str, Floats]) -> Floats:
        return measured["te_nas.ntk"] + measured["te_nas.regions"]


PROXIES.add(TeNas.name, TeNas())
