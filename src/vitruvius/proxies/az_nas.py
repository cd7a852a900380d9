"""AZ-NAS (Lee and Ham 2024): four views of a network, and the sum of the logarithms of their ranks.

    az_nas.expressivity  = sum over blocks of the entropy of the spectrum of the features' covariance
    az_nas.progressivity = the least growth of that entropy from one block to the next
    az_nas.trainability  = mean over blocks of 2 - s - 1/s, s the spectral norm of the block's Jacobian, estimated
    az_nas.complexity    = MACs
    az_nas               = sum over the four of log(rank / n), the worst of n candidates having rank 1

**The score depends on the set**: it ranks candidates among themselves, so that one more can change all of them, and
scores of two sets cannot be compared. The four parts are each candidate's own.

The paper's primary blocks are the transformer blocks here, tokens take the place of pixels, and norms, softmax and GELU
are as they are. A block's Jacobian is estimated from random signs v behind it and their gradient g before it:
mean over images and tokens of g v^T. Block by block the widths agree, so that nothing has to be pooled over a
downsampling. A network of fewer than two blocks has no progressivity, and so no score.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from vitruvius import costs
from vitruvius.proxies._base import PROXIES, Floats, Needs, OneByOne
from vitruvius.proxies._candidate import Candidate

__all__ = ["AzNas", "rank_sum"]


def rank_sum(parts: list[Floats]) -> Floats:
    """(n,): the sum of log(rank / n); candidates without a finite value somewhere have no score and take no rank."""
    table = np.stack(parts)
    finite = np.isfinite(table).all(axis=0)
    scores = np.full(table.shape[1], np.nan)
    if finite.any():
        scores[finite] = np.log(rankdata(table[:, finite], axis=1) / finite.sum()).sum(axis=0)
    return scores


def _entropy(features_BNC: Tensor) -> Tensor:
    rows = features_BNC.detach().flatten(0, 1).double()
    rows = rows - rows.mean(dim=0)
    shares = torch.linalg.eigvalsh(rows.T @ rows / len(rows)).clamp_min(0)
    shares = shares / shares.sum()
    return -torch.xlogy(shares, shares).sum()


class AzNas(OneByOne):
    name = "az_nas"
    source = "Lee and Ham, CVPR 2024"
    needs = Needs(images="batch", gradients=1, init="default", records=frozenset({"blocks"}))
    passes = 2
    of_the_set = True

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(f"az_nas.{part}" for part in ("expressivity", "progressivity", "trainability", "complexity"))

    def of(self, candidate: Candidate) -> dict[str, float]:
        setting, blocks = candidate.setting, candidate.trace.blocks
        counting = {"img_size": setting.img_size, "num_classes": setting.num_classes, "in_chans": setting.in_chans}
        entropies = np.array([float(_entropy(after)) for _, after in blocks])
        flows = [self._flow(candidate, place) for place in range(len(blocks))]
        values = (
            entropies.sum() if blocks else np.nan,
            np.diff(entropies).min() if len(blocks) > 1 else np.nan,
            np.mean(flows) if flows else np.nan,
            costs.macs(candidate.arch, **counting),
        )
        return {part: float(value) for part, value in zip(self.parts, values, strict=True)}

    @staticmethod
    def _flow(candidate: Candidate, place: int) -> float:
        before, after = candidate.trace.blocks[place]
        random = candidate.setting.random.uniform(f"az_nas.{place}", tuple(after.shape))
        signs = torch.where(random < 0, -1.0, 1.0).to(after)
        (flowed,) = torch.autograd.grad(after, before, signs, retain_graph=True)
        jacobian = flowed.flatten(0, 1).T.double() @ signs.flatten(0, 1).double() / (after.shape[0] * after.shape[1])
        norm = float(torch.linalg.matrix_norm(jacobian, 2))
        return 2 - norm - 1 / max(norm, 1e-6)

    def combine(self, measured: Mapping[str, Floats]) -> Floats:
        return rank_sum([measured[part] for part in self.parts])


PROXIES.add(AzNas.name, AzNas())
