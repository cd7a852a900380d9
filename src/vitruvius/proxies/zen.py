"""Zen-score (Lin et al. 2021): how much the features move when the image does, with the scale that norms took out.

    log mean over images ||f(x + a e) - f(x)|| / a  +  sum over norms of log sigma,    a = 0.01

x and e standard normal images, weights of linear and convolution layers N(0, 1), biases zero. f are the features before
pooling, and before the last norm, which is part of the classifier here.

The paper's batch norms stand on the trunk of a plain network and hide its scale; its sum puts that scale back. In a
pre-norm transformer the norms of the blocks stand on branches: what goes round them keeps its scale, and there is
nothing to put back. Norms on the trunk itself, behind the patches and before or behind a downsampling (in Swin, Twins,
and ViT-ResNAS without main branch), are put back: sigma^2 is the mean over images and tokens of the variance that the
norm divides by. With these weights attention is nearly a choice of one token; that is what the weights of the
definition make of a softmax, and it is left so.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitruvius.models import Backbone
from vitruvius.proxies._base import PROXIES, Needs, OneByOne
from vitruvius.proxies._candidate import Candidate, network

__all__ = ["Zen"]

_STEP = 0.01


def _trunk_norms(model: Backbone) -> list[nn.LayerNorm]:
    branches = model.arch.family == "resvit" and model.arch.main_branch
    places = ("patch_norm", *(() if branches else (f"stages.{s}.downsample.norm" for s in range(len(model.stages)))))
    named = dict(model.named_modules())
    return [named[place] for place in places if place in named]


def _features(model: Backbone, images: Tensor) -> tuple[Tensor, Tensor]:
    """What goes into the last norm, and the sum of the logarithms of the trunk's scales."""
    kept: list[Tensor] = []
    scales = [torch.zeros((), dtype=torch.float64, device=images.device)]

    def scale(norm: nn.LayerNorm, inputs: tuple[Tensor, ...]) -> None:
        variance = inputs[0].double().var(dim=-1, correction=0).mean()
        scales.append((variance + norm.eps).log() / 2)

    handles = [norm.register_forward_pre_hook(scale) for norm in _trunk_norms(model)]
    handles.append(model.norm.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0])))
    try:
        model.forward_features(images)
    finally:
        for handle in handles:
            handle.remove()
    return kept[0], torch.stack(scales).sum()


class Zen(OneByOne):
    name = "zen"
    source = "Lin et al., ICCV 2021"
    needs = Needs(images="batch", init="normal")
    passes = 2

    @torch.no_grad()
    def of(self, candidate: Candidate) -> dict[str, float]:
        setting = candidate.setting
        model = network(candidate.arch, setting, "normal")
        noise = setting.random.normal("zen.noise", tuple(setting.images.shape)).to(setting.device)
        here, scales = _features(model, setting.images)
        there, _ = _features(model, setting.images + _STEP * noise)
        moved = (there.double() - here.double()).flatten(1).norm(dim=1).mean() / _STEP
        return {self.name: float(moved.log() + scales)}


PROXIES.add(Zen.name, Zen())
