"""The laws of shared weights."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from vitruvius.arch import Arch
from vitruvius.spaces import Path
from vitruvius.superformer import SharingRule, Superformer

_TIGHT = {"rtol": 1e-8, "atol": 1e-10}


def fixed_batch(superformer: Superformer, images: int, seed: int = 0) -> Tensor:
    """Random images as the superformer takes them, in its own precision."""
    reference = next(superformer.parameters())
    generator = torch.Generator().manual_seed(seed)
    shape = (images, superformer.in_chans, *superformer.img_size)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(reference)


def _joined(logits: Tensor | tuple[Tensor, ...]) -> Tensor:
    """Logits, or those of the image and of its patches, as one row an image."""
    return torch.cat([part.flatten(1) for part in logits], 1) if isinstance(logits, tuple) else logits


def check_law(
    superformer: Superformer,
    arch: Arch,
    path: Path | None = None,
    side: int = 0,
    images: int = 2,
    **options: bool,
) -> None:
    """The law: the superformer's output is the extracted network's, and so are the gradients, scattered back.

    Shared parameters that the architecture does not use get no gradient, and channels outside its slices exactly zero.
    The superformer should be in float64.
    """
    x = fixed_batch(superformer, images)
    superformer.zero_grad(set_to_none=True)
    model = superformer.extract(arch, path, side)
    assert not model.state_dict().keys() ^ {*superformer.slices_of(arch, path, side), *_buffers(model)}
    shared, alone = _joined(superformer(x, arch, path, side, **options)), _joined(model(x, **options))
    torch.testing.assert_close(shared, alone, **_TIGHT, msg=lambda text: f"output of {arch.id}: {text}")
    shared.square().sum().backward()
    alone.square().sum().backward()
    expected: dict[str, Tensor] = {}
    inside: dict[str, Tensor] = {}
    for name, part in superformer.slices_of(arch, path, side).items():
        own = superformer.shared[part.shared.replace(".", "/")]
        for found, value in ((expected, model.get_parameter(name).grad), (inside, torch.ones_like(part.of(own)))):
            assert value is not None, f"{name} of {arch.id} has no gradient"
            found[part.shared] = found.get(part.shared, torch.zeros_like(own)) + _scattered(part, own, value)
    for name, own in superformer.shared.items():
        key = name.replace("/", ".")
        if key not in expected:
            assert own.grad is None, f"{key} is no part of {arch.id} and has a gradient"
            continue
        assert own.grad is not None, f"{key} is a part of {arch.id} and has no gradient"
        torch.testing.assert_close(
            own.grad, expected[key], **_TIGHT, msg=lambda text, k=key: f"gradient of {k}: {text}"
        )
        assert not own.grad[inside[key] == 0].any(), f"{key} has a gradient outside the slice of {arch.id}"


def _buffers(model: torch.nn.Module) -> set[str]:
    return model.state_dict().keys() - {name for name, _ in model.named_parameters()}


def _scattered(part: object, whole: Tensor, value: Tensor) -> Tensor:
    """A slice's values where the slice comes from, by the rule's own channels: not by autograd."""
    from vitruvius.superformer import Slice

    assert isinstance(part, Slice)
    index = [torch.arange(size) for size in whole.shape]
    for dimension, pieces in part.cuts:
        index[dimension] = torch.tensor([start + i for start, length in pieces for i in range(length)])
    scattered = torch.zeros_like(whole)
    scattered[torch.meshgrid(*index, indexing="ij")] = value.to(whole)
    return scattered


def check_masks(
    superformer: Superformer,
    archs: Sequence[Arch],
    paths: Sequence[Path] | None = None,
    side: int = 0,
    images: int = 1,
    **options: bool,
) -> None:
    """Masked execution is sliced execution, sample by sample, in outputs and in gradients."""
    x = fixed_batch(superformer, images * len(archs))
    found = []
    for how in ("sliced", "masked"):
        superformer.zero_grad(set_to_none=True)
        logits = _joined(superformer.several(x, archs, paths, side, how, **options))
        logits.square().sum().backward()
        # A parameter that no sample uses has no gradient when sliced, and zeros when masked.
        grads = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in superformer.shared.items()}
        found.append((logits.detach(), grads))
    (sliced, sliced_grads), (masked, masked_grads) = found
    torch.testing.assert_close(masked, sliced, **_TIGHT)
    for name, gradient in sliced_grads.items():
        torch.testing.assert_close(
            masked_grads[name], gradient, **_TIGHT, msg=lambda text, n=name: f"gradient of {n}: {text}"
        )


def check_rule(rule: SharingRule, widths: tuple[int, ...]) -> None:
    """Whatever the rule: the network of width k has k different channels of the axis, and the widest all of them."""
    length = widths[-1]
    for side in range(rule.sides):
        for width in widths:
            pieces, channels = rule.pieces(widths, width, side), rule.channels(widths, width, side)
            assert len(channels) == len(set(channels)) == width, (
                f"width {width} of {widths} has {len(channels)} channels"
            )
            assert set(channels) <= set(range(length)), f"width {width} of {widths} leaves the axis"
            assert all(n > 0 for _, n in pieces)
            assert list(accumulate(n for _, n in pieces))[-1] == width
        assert sorted(rule.channels(widths, length, side)) == list(range(length))
