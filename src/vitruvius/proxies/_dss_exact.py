"""DSS as defined, of any family: the plain network, its gradients, singular values. What is fast is held to this."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.func import functional_call

from vitruvius.models import Backbone
from vitruvius.models.layers import TransformerBlock
from vitruvius.proxies._dss_norms import NuclearNorms, nuclear_of_rank

__all__ = ["PAPER", "RELEASED", "Variant", "exact_score"]

_TOKENS = ("cls_token", "pos_embed")


@dataclass(frozen=True, slots=True)
class Variant:
    """What a score is made of, and which weights are made positive before."""

    diversity: tuple[str, ...]
    """The linear layers of attention whose synaptic diversity counts."""
    saliency: Literal["signed", "absolute"]
    """Whether the MLP's products of weight and gradient are added as they are, or without their signs."""
    positive: Literal["all", "tokens"]
    """"tokens": class token and position embeddings only."""

    def prepared(self, name: str, weight: Tensor) -> Tensor:
        return weight.abs() if self.positive == "all" or name.rsplit(".", 1)[-1] in _TOKENS else weight


PAPER = Variant(diversity=("q", "k", "v", "proj"), saliency="signed", positive="all")
"""TF-TAS, Eq. 4 to 6."""
RELEASED = Variant(diversity=("proj",), saliency="absolute", positive="tokens")
"""What the released code computes."""


def exact_score(model: Backbone, variant: Variant, norms: NuclearNorms | None = None) -> float:
    """The score of a network with these weights (those of its start, in evaluation).

    norms: what is known of the weights' slices already. A gradient then is also reduced to its rank, which is no more
        than the number of tokens. Without, every matrix goes through a full SVD; the two differ by rounding.
    """
    prepared = {name: variant.prepared(name, weight.detach()) for name, weight in model.named_parameters()}
    layers = {f"{name}.weight": rank for name, rank in _layers(model, variant)}
    if not layers:
        return 0.0
    counted = [prepared[name].requires_grad_(True) for name in layers]
    reference = counted[0]
    image = torch.ones(1, model.in_chans, *model.img_size, device=reference.device, dtype=reference.dtype)
    loss = functional_call(model, prepared, (image,)).sum()
    # The last block's layers may have no part in it: what a class token reads, patch tokens' MLPs do not change.
    gradients = torch.autograd.grad(loss, counted, materialize_grads=True)
    score = 0.0
    for name, parameter, gradient in zip(layers, counted, gradients, strict=True):
        weight, rank = parameter.detach(), layers[name]
        if rank is None:
            product = gradient.double() * weight.double()
            score += float((product if variant.saliency == "signed" else product.abs()).sum())
        elif norms is None:
            score += float(_nuclear(gradient)) * float(_nuclear(weight))
        else:
            score += nuclear_of_rank(gradient, rank) * norms.of(name, *weight.shape, lambda w=weight: w)
    return score


def _layers(model: Backbone, variant: Variant) -> Iterator[tuple[str, int | None]]:
    """The names of the linear layers that count; for those of diversity, the most that a gradient's rank can be."""
    for name, module in model.named_modules():
        if isinstance(module, TransformerBlock):
            rows, columns = model.grids[int(name.split(".")[1])]
            tokens = rows * columns + model.num_prefix_tokens
            yield from ((f"{name}.attn.{layer}", tokens) for layer in variant.diversity)
            yield from ((f"{name}.mlp.{layer}", None) for layer in ("fc1", "fc2"))


def _nuclear(matrix: Tensor) -> Tensor:
    return torch.linalg.svdvals(matrix).sum()
