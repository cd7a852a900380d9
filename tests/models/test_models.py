"""Models behave as timm's do: features, heads, intermediates, groups, checkpointing."""

from __future__ import annotations

import pytest
import torch
from timm.models import group_parameters
from timm.optim import param_groups_layer_decay, param_groups_weight_decay

from conftest import NANO_SPACES
from vitruvius import Arch, spaces
from vitruvius.models import build


def nano(name: str) -> Arch:
    return spaces.load(name).largest


def image(size: int = 32, channels: int = 3) -> torch.Tensor:
    return torch.randn(2, channels, size, size, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", NANO_SPACES)
def test_forward_backward_and_head(name: str) -> None:
    model = build(nano(name), num_classes=7, img_size=32)
    features = model.forward_features(image())
    assert features.shape[-1] == model.num_features == model.head_hidden_size
    pooled = model.forward_head(features, pre_logits=True)
    assert pooled.shape == (2, model.num_features)
    logits = model(image())
    assert torch.equal(logits, model.forward_head(features))
    logits.square().sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


@pytest.mark.parametrize("name", NANO_SPACES)
def test_classifier_can_be_replaced(name: str) -> None:
    model = build(nano(name), num_classes=7, img_size=32)
    assert model.get_classifier().out_features == 7
    model.reset_classifier(3)
    assert model(image()).shape == (2, 3)
    model.reset_classifier(0)
    assert model(image()).shape == (2, model.num_features)
    model.reset_classifier(0, "")
    assert model(image()).ndim == 3
    with pytest.raises(ValueError, match="unknown global_pool"):
        model.reset_classifier(3, "max")


@pytest.mark.parametrize("name", NANO_SPACES)
def test_features_and_intermediates(name: str) -> None:
    arch = nano(name)
    model = build(arch, img_size=32).eval()
    last, maps = model.forward_intermediates(image())
    assert torch.equal(last, model.forward_features(image()))
    assert len(maps) == len(model.feature_info)
    for found, info in zip(maps, model.feature_info, strict=True):
        assert found.shape[1] == info["num_chs"]
    # the last tap is the last features, before the norm
    tokens = maps[-1].flatten(2).transpose(1, 2)
    assert torch.allclose(model.norm(tokens), last[:, model.num_prefix_tokens :], atol=1e-5)
    early = model.forward_intermediates(image(), indices=[0], stop_early=True, intermediates_only=True)
    assert len(early) == 1
    assert torch.equal(early[0], maps[0])
    if model.num_prefix_tokens:
        (_, prefix), *_ = model.forward_intermediates(image(), return_prefix_tokens=True, intermediates_only=True)
        assert prefix.shape == (2, 1, model.feature_info[0]["num_chs"])


@pytest.mark.parametrize("name", NANO_SPACES)
def test_features_only(name: str) -> None:
    arch = nano(name)
    whole = build(arch, img_size=32).eval()
    model = build(arch, img_size=32, features_only=True, out_indices=(0, 1)).eval()
    missing = model.model.load_state_dict(whole.state_dict(), strict=False).missing_keys
    assert not missing
    channels, strides = model.feature_info.channels(), model.feature_info.reduction()
    for found, expected, channel, stride in zip(
        model(image()),
        whole.forward_intermediates(image(), indices=[0, 1], intermediates_only=True),
        channels,
        strides,
        strict=True,
    ):
        assert torch.equal(found, expected)
        assert found.shape[1] == channel
        assert abs(32 / found.shape[2] - stride) <= stride / 2
    assert len(build(arch, img_size=32, features_only=True)(image())) == len(whole.feature_info)


@pytest.mark.parametrize("name", NANO_SPACES)
def test_parameter_groups(name: str) -> None:
    model = build(nano(name), img_size=32)
    parameters = dict(model.named_parameters())
    assert model.no_weight_decay() <= parameters.keys()
    assert all(("cls" in n or "pos" in n or "table" in n) for n in model.no_weight_decay())
    groups = group_parameters(model, model.group_matcher())
    assert sorted(n for names in groups.values() for n in names) == sorted(parameters)
    blocks = sum(len(stage.blocks) for stage in model.arch.stages)
    assert len(groups) >= blocks + 2  # the stem, the blocks, the head
    decayed = param_groups_layer_decay(model, 0.05, no_weight_decay_list=model.no_weight_decay(), layer_decay=0.7)
    assert sum(len(group["params"]) for group in decayed) == len(parameters)
    scale = {id(p): group["lr_scale"] for group in decayed for p in group["params"]}
    order = [
        [scale[id(p)] for n, p in parameters.items() if n.startswith(prefix)]
        for prefix in (
            "patch_embed",
            *(f"stages.{s}.blocks.{b}." for s, st in enumerate(model.arch.stages) for b in range(len(st.blocks))),
            "head",
        )
    ]
    assert all(len(set(scales)) == 1 for scales in order)  # one rate a block, that grows with depth
    assert [scales[0] for scales in order] == sorted({scales[0] for scales in order})
    assert order[-1][0] == 1.0
    by_decay = param_groups_weight_decay(model, 0.05, no_weight_decay_list=model.no_weight_decay())
    no_decay = next(g for g in by_decay if not g["weight_decay"])
    kept = {id(parameter) for parameter in no_decay["params"]}
    assert all(id(parameters[n]) in kept for n in model.no_weight_decay())


@pytest.mark.parametrize("name", NANO_SPACES)
def test_gradient_checkpointing_changes_nothing(name: str) -> None:
    model = build(nano(name), img_size=32)
    gradients = []
    for enable in (False, True):
        model.set_grad_checkpointing(enable)
        model.zero_grad()
        model(image()).square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize("name", NANO_SPACES)
def test_dropout_and_drop_path(name: str) -> None:
    rates = {
        "drop_rate": 0.1,
        "pos_drop_rate": 0.1,
        "proj_drop_rate": 0.1,
        "attn_drop_rate": 0.1,
        "drop_path_rate": 0.3,
    }
    model = build(nano(name), img_size=32, **rates)
    paths = [block.drop_path for stage in model.stages for block in stage.blocks]
    assert max(paths) == pytest.approx(0.3)
    assert paths == sorted(paths)
    assert not torch.equal(model(image()), model(image()))
    model.eval()
    assert torch.equal(model(image()), model(image()))


@pytest.mark.parametrize("name", NANO_SPACES)
def test_other_channels_and_oblong_images(name: str) -> None:
    model = build(nano(name), img_size=(32, 48), in_chans=1, num_classes=3)
    assert model(torch.zeros(1, 1, 32, 48)).shape == (1, 3)
    with pytest.raises(ValueError, match=r"images differ from what the model was built for; got \(1, 3, 32, 48\)"):
        model(torch.zeros(1, 3, 32, 48))


@pytest.mark.parametrize("name", NANO_SPACES)
def test_autocast(name: str) -> None:
    model = build(nano(name), num_classes=5, img_size=32)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(image()).float().square().sum()
    loss.backward()
    assert torch.isfinite(loss)


def test_empty_stages_run() -> None:
    space = spaces.load("vitas-twins-small")
    assert space.smallest.depth == 0
    assert build(space.smallest, num_classes=2, img_size=64)(image(64)).shape == (2, 2)
    assert build(spaces.load("vitas-v1").smallest, num_classes=2, img_size=32)(image()).shape == (2, 2)


def test_a_seed_makes_equal_weights() -> None:
    before = torch.random.get_rng_state()
    first, second, other = (build(nano("s3-nano"), img_size=32, seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)
