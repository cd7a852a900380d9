"""SynFlow (Tanaka et al. 2020): the flow through all paths of a positive, linear network, without data.

    sum w * dR/dw,    R = the sum of the outputs of an image of ones

over the weights of linear and convolution layers. SynFlow is defined on networks that are linear once their weights are
positive; a ReLU of positive numbers does nothing. In a transformer three things are not linear, and are replaced here
by what they would be if all tokens were alike and nothing were negative:

- GELU passes its input on, as ReLU would;
- norms pass their input on: a layer norm would make every layer before it count for nothing (the output does not
  change with the scale of its input, so that sum w * dR/dw over that layer is zero);
- attention takes the mean of what a token may see, which is a softmax of equal logits. Queries, keys, and positions
  that only enter logits therefore carry no flow.

In float64: the flow grows exponentially with depth and leaves float32 in the larger spaces.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from vitruvius.models import Backbone
from vitruvius.proxies._base import PROXIES, Needs, OneByOne
from vitruvius.proxies._candidate import Candidate, network, weights_of

__all__ = ["Synflow"]

_LOGITS = (".q.weight", ".q.bias", ".k.weight", ".k.bias", ".bias_table")
"""Parameters that enter attention logits only; at zero all logits are equal."""


class _Linearised(TorchFunctionMode):
    """Norms and nonlinearities that pass their input on (norms are as they start: weights one, biases zero)."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (F.gelu, F.relu, F.layer_norm, F.batch_norm):
            return args[0] if args else (kwargs or {})["input"]
        return func(*args, **(kwargs or {}))


def _positive(model: Backbone) -> Backbone:
    model = model.double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.abs_()
            if name.endswith(_LOGITS) or ".relative_k." in name:
                parameter.zero_()
    return model


class Synflow(OneByOne):
    name = "synflow"
    source = "Tanaka et al., NeurIPS 2020"
    needs = Needs(images="ones", gradients=1, init="positive")
    passes = 3

    def of(self, candidate: Candidate) -> dict[str, float]:
        model = _positive(network(candidate.arch, candidate.setting))
        with _Linearised():
            flow = model(candidate.setting.ones.double()).sum()
        weights = list(weights_of(model).values())
        gradients = torch.autograd.grad(flow, weights, materialize_grads=True)
        with torch.no_grad():
            return {self.name: float(sum((w * g).sum() for w, g in zip(weights, gradients, strict=True)))}


PROXIES.add(Synflow.name, Synflow())
