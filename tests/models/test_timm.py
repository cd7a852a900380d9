"""timm's networks and ours, with equal weights, give equal output; AutoFormer's are checked by reference logits."""

from __future__ import annotations

import numpy as np
import pytest
import timm
import torch

from autoformer_reference import LARGEST, ROWS, SUBNETS, arch_of, made, reference_weights
from vitruvius import costs, spaces, zoo
from vitruvius.models import build, from_timm

TIMM = {
    "deit-tiny": "deit_tiny_patch16_224",
    "deit-small": "deit_small_patch16_224",
    "deit-base": "deit_base_patch16_224",
    "pit-ti": "pit_ti_224",
    "pit-xs": "pit_xs_224",
    "pit-s": "pit_s_224",
    "s3-tiny": "swin_s3_tiny_224",
    "s3-small": "swin_s3_small_224",
    "s3-base": "swin_s3_base_224",
    "swin-tiny": "swin_tiny_patch4_window7_224",
    "swin-small": "swin_small_patch4_window7_224",
    "swin-base": "swin_base_patch4_window7_224",
    "twins-svt-small": "twins_svt_small",
    "twins-svt-base": "twins_svt_base",
    "twins-svt-large": "twins_svt_large",
}


def shaken(model: torch.nn.Module) -> torch.nn.Module:
    """Weights from which a wrong mapping would show: no zeros, no ones."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.05)
    return model.eval()


@pytest.mark.parametrize("ours", TIMM)
def test_timms_weights_give_timms_output(ours: str) -> None:
    theirs = shaken(timm.create_model(TIMM[ours], pretrained=False))
    arch = zoo.load(ours)
    model = build(arch).eval()
    model.load_state_dict(from_timm(arch, theirs.state_dict()))
    assert sum(p.numel() for p in theirs.parameters()) == costs.params(arch)
    few = 1 if ours.endswith(("base", "large")) else 2  # two images are enough to see that images do not mix
    images = torch.randn(few, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = theirs(images)
        found = model(images)
    assert expected.std() > 1e-3
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize(
    ("ours", "img_size"), [("s3-tiny", (160, 192)), ("twins-svt-small", (192, 256)), ("pit-ti", 160)]
)
def test_timms_output_at_other_image_sizes(ours: str, img_size: int | tuple[int, int]) -> None:
    theirs = shaken(timm.create_model(TIMM[ours], pretrained=False, img_size=img_size))
    arch = zoo.load(ours)
    model = build(arch, img_size=img_size).eval()
    model.load_state_dict(from_timm(arch, theirs.state_dict()))
    sides = (img_size, img_size) if isinstance(img_size, int) else img_size
    images = torch.randn(1, 3, *sides, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected, found = theirs(images), model(images)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


def test_weights_of_another_network_are_refused() -> None:
    theirs = timm.create_model("deit_small_patch16_224").state_dict()
    with pytest.raises(ValueError, match="differ from the architecture's widths; got 1152; allowed: 576"):
        from_timm(zoo.load("deit-tiny"), theirs)
    with pytest.raises(ValueError, match="no networks of this family"):
        from_timm(zoo.load("vit-res-tiny"), theirs)


def test_published_counts() -> None:
    assert [costs.params(zoo.load(f"s3-{size}")) for size in ("tiny", "small", "base")] == [
        28_328_674,
        49_737_298,
        71_125_762,
    ]


@pytest.mark.parametrize(("space", "index"), SUBNETS)
def test_autoformers_reference_logits(space: str, index: int) -> None:
    row = ROWS[space][index]
    arch = arch_of(row)
    assert spaces.load(space).contains(arch)
    assert costs.params(arch) == row["params"]
    model = build(arch).eval()
    model.load_state_dict(reference_weights(model.state_dict(), LARGEST[space]))
    with torch.no_grad():
        logits = model(made("input", (2, 3, 224, 224), 1.0))
    np.testing.assert_allclose(logits[:, :8], row["logits_first8"], atol=2e-6)
    np.testing.assert_allclose(logits.sum(dim=1), row["logits_sum"], atol=1e-4)
