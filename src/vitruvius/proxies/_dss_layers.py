"""The collapsed network's layers, forward and backward by hand, for a group of candidates that share their slices.

Tokens travel as x_BTC in float64: a class token, where there is one, and one mean patch, which stands for all patches.
Backward, a mean patch's gradient is the sum over the patches it stands for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vitruvius.proxies._dss_batch import product

__all__ = ["Attended", "Normed", "Relative", "attend", "attend_back", "gelu_back", "saliency"]


@dataclass(frozen=True, slots=True)
class Normed:
    """A layer norm's output, and what its gradient needs."""

    out: Tensor
    x: Tensor
    mean: Tensor
    rstd: Tensor
    weight: Tensor
    bias: Tensor

    @classmethod
    def of(cls, x_BTC: Tensor, weight: Tensor, bias: Tensor, eps: float, spread_B: Tensor | None = None) -> Normed:
        """spread_B: the mean variance of a patch's distance from the mean patch, which the mean patch itself, the last
        token, does not have."""
        out, mean, rstd = torch.native_layer_norm(x_BTC, [x_BTC.shape[-1]], weight, bias, eps)
        if spread_B is not None:
            own = rstd[:, -1]
            smaller = (1 + spread_B[:, None] * own.square()).rsqrt()
            out[:, -1] = (out[:, -1] - bias) * smaller + bias
            rstd[:, -1] = own * smaller
        return cls(out, x_BTC, mean, rstd, weight, bias)

    def back(self, gradient: Tensor) -> Tensor:
        shape, parts = [self.x.shape[-1]], [True, False, False]
        found = torch.ops.aten.native_layer_norm_backward(
            gradient.contiguous(), self.x, shape, self.mean, self.rstd, self.weight, self.bias, parts
        )
        return found[0]


def gelu_back(gradient: Tensor, x: Tensor) -> Tensor:
    return torch.ops.aten.gelu_backward(gradient, x)


@dataclass(frozen=True, slots=True)
class Relative:
    """Vectors of relative positions, (d,): of any pair with the class token, and the mean over pairs of patches."""

    token: Tensor
    patches: Tensor

    def pair(self, query: int, key: int, tokens: int) -> Tensor:
        return self.patches if query == key == tokens - 1 else self.token


@dataclass(frozen=True, slots=True)
class Attended:
    """Attention of a group with one number of heads, and what its gradient needs; (B, T, heads, d), T queries in a list
    of T keys each for the attention."""

    q: Tensor
    k: Tensor
    v: Tensor
    attention: list[list[Tensor]]
    out: Tensor


def attend(
    q_BTW: Tensor,
    k_BTW: Tensor,
    v_BTW: Tensor,
    heads: int,
    scale: float,
    patches: int,
    relative: tuple[Relative, Relative] | None,
) -> Attended:
    """The mean patch is `patches` equal keys, so the logarithm of that is added to its logit."""
    q, k, v = (x.unflatten(-1, (heads, -1)) for x in (q_BTW, k_BTW, v_BTW))
    tokens = q.shape[1]
    rows, outs = [], []
    for i in range(tokens):
        logits = []
        for j in range(tokens):
            key = k[:, j] if relative is None else k[:, j] + relative[0].pair(i, j, tokens)
            logit = (q[:, i] * key).sum(-1) * scale
            logits.append(logit + math.log(patches) if j == tokens - 1 else logit)
        rows.append(_softmax(logits))
        values = [v[:, j] if relative is None else v[:, j] + relative[1].pair(i, j, tokens) for j in range(tokens)]
        outs.append(sum(a.unsqueeze(-1) * value for a, value in zip(rows[-1], values, strict=True)))
    return Attended(q, k, v, rows, torch.stack(outs, dim=1).flatten(-2))


def _softmax(logits: list[Tensor]) -> list[Tensor]:
    if len(logits) == 1:
        return [torch.ones_like(logits[0])]
    most = torch.maximum(*logits)
    powers = [_exp(logit - most) for logit in logits]
    total = powers[0] + powers[1]
    return [power / total for power in powers]


def _exp(x: Tensor) -> Tensor:
    """Torch computes what is left over from whole vector registers in another way, which may differ in the last bit; so
    nothing is left over. (GELU sees whole tiles of rows.)"""
    flat = x.reshape(-1)
    return F.pad(flat, (0, -len(flat) % 16)).exp()[: len(flat)].view(x.shape)


def attend_back(
    saved: Attended, gradient_BTW: Tensor, scale: float, relative: tuple[Relative, Relative] | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v, (B, T, W)."""
    q, k, v = saved.q, saved.k, saved.v
    heads, tokens = q.shape[2], q.shape[1]
    d_out = gradient_BTW.unflatten(-1, (heads, -1))
    dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
    for i in range(tokens):
        row, d_row = saved.attention[i], []
        for j in range(tokens):
            value = v[:, j] if relative is None else v[:, j] + relative[1].pair(i, j, tokens)
            d_row.append((d_out[:, i] * value).sum(-1))
            dv[:, j] += row[j].unsqueeze(-1) * d_out[:, i]
        mean = sum(a * d for a, d in zip(row, d_row, strict=True))
        for j in range(tokens):
            d_logit = (row[j] * (d_row[j] - mean) * scale).unsqueeze(-1)
            key = k[:, j] if relative is None else k[:, j] + relative[0].pair(i, j, tokens)
            dq[:, i] += d_logit * key
            dk[:, j] += d_logit * q[:, i]
    return dq.flatten(-2), dk.flatten(-2), dv.flatten(-2)


def saliency(left_BTO: Tensor, right_BTI: Tensor, positive_OI: Tensor) -> Tensor:
    """(B,): the sum of |W| times |G| over a layer, G the sum over the tokens of left times right.

    With one token that is |left| |W| |right|. With two, one of them outweighs the other nearly everywhere; there the
    sign of G is known, and |G| is that sign times G, so that two bilinear forms are all there is. Where it does not
    (where its own factor happens to be close to zero) the other's part is lost, which is of second order.
    """
    if left_BTO.shape[1] == 1:
        return (left_BTO.abs() * product(right_BTI.abs(), positive_OI.T)).sum((1, 2))
    lengths = [torch.linalg.vector_norm(x, dim=-1) for x in (left_BTO, right_BTI)]
    weight = lengths[0] * lengths[1]
    first = weight[:, 0] >= weight[:, 1]
    left, right = (_signed_by(x, first) for x in (left_BTO, right_BTI))
    return (left * product(right, positive_OI.T)).sum(-1).sum(-1)


def _signed_by(x_BTC: Tensor, first: Tensor) -> Tensor:
    """Times the signs of the first or of the second token."""
    if first.any() and not first.all():
        return x_BTC * torch.where(first[:, None], x_BTC[:, 0], x_BTC[:, 1]).sign().unsqueeze(1)
    return x_BTC * x_BTC[:, 0 if first.any() else 1].sign().unsqueeze(1)
