"""Closed-form costs equal what is counted on the built network, exactly."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from conftest import ALL_SPACES, NANO_SPACES, some_archs
from vitruvius import Arch, Block, Patch, Stage, costs, spaces
from vitruvius.arch import ImageSize, image_shape
from vitruvius.models import build


def counted(arch: Arch, img_size: ImageSize, num_classes: int = 1000, in_chans: int = 3) -> tuple[int, float]:
    """Parameters and MACs of the built network, which runs forwards and backwards on the meta device."""
    with torch.device("meta"):
        model = build(arch, num_classes=num_classes, img_size=img_size, in_chans=in_chans).to("meta")
        images = torch.zeros(1, in_chans, *image_shape(img_size))
    with FlopCounterMode(display=False) as counter:
        out = model(images)
    out.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    return sum(parameter.numel() for parameter in model.parameters()), counter.get_total_flops() / 2


def check(name: str, count: int) -> None:
    space = spaces.load(name)
    archs = some_archs(space, count)
    cost = costs.cost(archs, img_size=space.img_size)
    for arch, params, macs in zip(archs, cost.params, cost.macs, strict=True):
        assert counted(arch, space.img_size) == (params, macs)


@pytest.mark.parametrize("name", ALL_SPACES)
def test_costs_equal_the_built_network(name: str) -> None:
    check(name, 12 if name in NANO_SPACES else 4)  # 202 of each when there is time, below


@pytest.mark.parametrize("count", [8, pytest.param(202, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NANO_SPACES)
def test_random_networks_run_forwards_and_backwards(name: str, count: int) -> None:
    """Real arithmetic: the counter's numbers again, finite logits, and a gradient for every parameter."""
    space = spaces.load(name)
    for arch in some_archs(space, count):
        cost = costs.cost(arch, img_size=32, num_classes=10)
        model = build(arch, num_classes=10, img_size=32, seed=0)
        with FlopCounterMode(display=False) as counter:
            logits = model(torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
        logits.square().sum().backward()
        assert torch.isfinite(logits).all()
        assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())
        assert counter.get_total_flops() == 2 * cost.macs


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL_SPACES)
def test_costs_equal_200_built_networks(name: str) -> None:
    check(name, 202)


@pytest.mark.parametrize(
    ("name", "img_size"),
    [
        ("vitas-nano", (28, 44)),
        ("autoformer-nano", (24, 40)),
        ("autoformer-nano", 4),
        ("autoformer-nano", (4, 16)),
        ("s3-nano", (22, 36)),
        ("vitas-twins-nano", (24, 40)),
        ("vit-resnas-nano", (32, 48)),
        ("pit-nano", (21, 34)),
        ("s3", 288),
        ("vitas-twins-small", 288),
        ("autoformer-tiny", 384),
    ],
)
def test_costs_at_other_image_sizes_classes_and_channels(name: str, img_size: ImageSize) -> None:
    space = spaces.load(name)
    for arch in some_archs(space, 4):
        cost = costs.cost(arch, img_size=img_size, num_classes=10, in_chans=1)
        assert counted(arch, img_size, 10, 1) == (cost.params, cost.macs)
        bare = costs.cost(arch, img_size=img_size, num_classes=0)
        assert counted_without_classifier(arch, img_size) == bare.params


def counted_without_classifier(arch: Arch, img_size: ImageSize) -> int:
    with torch.device("meta"):
        model = build(arch, num_classes=0, img_size=img_size)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("positions", ["absolute", "relative", "absolute+relative"])
@pytest.mark.parametrize("class_token", [True, False])
def test_every_kind_of_vit(positions: str, class_token: bool) -> None:
    block = Block(heads=4, qk=32, v=48, mlp=50)
    arch = Arch(
        family="vit",
        patch=Patch(size=4),
        stages=(Stage(dim=20, blocks=(block, block)),),
        positions=positions,  # type: ignore[arg-type]
        class_token=class_token,
        pool="mean",
    )
    cost = costs.cost(arch, img_size=(16, 24))
    assert counted(arch, (16, 24)) == (cost.params, cost.macs)


def test_swin_and_resvit_without_their_usual_parts() -> None:
    plain = Arch(
        family="resvit",
        patch=Patch(size=4),
        stages=(Stage(dim=8, blocks=()), Stage(dim=12, blocks=(Block(heads=2, qk=8, v=4, mlp=9),))),
        positions="absolute",
        class_token=True,
        pool="token",
    )
    cost = costs.cost(plain, img_size=32)
    assert counted(plain, 32) == (cost.params, cost.macs)


def test_reductions_without_their_main_branch() -> None:
    """ViT-ResNAS, Table 1: the ablation has parameters and MACs as before, and another output."""
    from dataclasses import replace

    arch = spaces.load("vit-resnas-nano").largest
    bare = replace(arch, main_branch=False)
    assert bare.id != arch.id
    assert Arch.from_json(bare.to_json()) == bare
    assert costs.cost(bare, img_size=32) == costs.cost(arch, img_size=32)
    images = torch.randn(1, 3, 32, 32)
    outputs = [build(each, img_size=32, seed=0).eval()(images) for each in (arch, bare)]
    assert not torch.allclose(*outputs)


@pytest.mark.parametrize("name", ALL_SPACES)
def test_vectors_lists_and_single_architectures_agree(name: str) -> None:
    space = spaces.load(name)
    vectors = space.sample_vectors(np.random.default_rng(3), 40)
    archs = space.decode_many(vectors)
    by_vector = costs.cost(vectors, space=space)
    by_list = costs.cost(archs, img_size=space.img_size)
    assert (by_vector.params == by_list.params).all()
    assert (by_vector.macs == by_list.macs).all()
    one = costs.cost(archs[0], img_size=space.img_size)
    assert (one.params, one.macs) == (by_vector.params[0], by_vector.macs[0])
    assert isinstance(costs.params(archs[0], img_size=space.img_size), int)
    assert costs.macs(vectors[0], space=space) == by_vector.macs[0]


def test_a_list_may_mix_families() -> None:
    archs = [spaces.load(name).smallest for name in ALL_SPACES if spaces.load(name).img_size == 224]
    together = costs.macs(archs)
    assert together.tolist() == [costs.macs(arch) for arch in archs]


def test_deit_by_hand() -> None:
    """DeiT-Tiny's count, written out."""
    from vitruvius import zoo

    block = 4 * (192 * 192 + 192) + 2 * 192 * 768 + 768 + 192 + 4 * 192
    params = 16 * 16 * 3 * 192 + 192 + 192 + 197 * 192 + 12 * block + 2 * 192 + 192 * 1000 + 1000
    macs = 196 * 768 * 192 + 12 * (197 * (4 * 192 * 192 + 2 * 192 * 768) + 2 * 197 * 197 * 192) + 192 * 1000
    cost = costs.cost(zoo.load("deit-tiny"))
    assert (cost.params, cost.macs) == (params, macs) == (5_717_416, 1_253_683_200)
