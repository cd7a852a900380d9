"""superformer(x, arch) == extract(arch)(x), gradients included, for every family, rule and privatisation (float64)."""

from __future__ import annotations

import pytest
import torch

from conftest import NANO_SPACES, some_archs
from vitruvius import Space, Superformer, spaces
from vitruvius.spaces import StageSpace
from vitruvius.superformer import PARTS, RULES
from vitruvius.testing import check_law, fixed_batch

PRIVATE = [(), ("class_token", "qk"), ("v",), ("qk", "v"), PARTS]


def small(name: str) -> Space:
    """A nano space on small images, with what else may be private or shared by a rule of its own."""
    if name == "vitas-nano":  # patch sizes: class tokens, stems and positions of their own
        return spaces.load(name, img_size=16, patch=(4, 8))
    patch = 4 if name in ("vit-resnas-nano", "autoformer-nano", "pit-nano") else 2
    return spaces.load(name, img_size=16, patch=patch)


def superformer(space: Space, sharing: str, private: tuple[str, ...] = ()) -> Superformer:
    made = Superformer(space, sharing=sharing, private=private, num_classes=3, seed=0).double()
    with torch.no_grad():  # no zeros and ones, from which a wrong slice would not show
        generator = torch.Generator().manual_seed(0)
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return made


@pytest.mark.parametrize("private", PRIVATE, ids=lambda private: "+".join(private) or "nothing")
@pytest.mark.parametrize("sharing", RULES)
@pytest.mark.parametrize("name", NANO_SPACES)
def test_the_law(name: str, sharing: str, private: tuple[str, ...]) -> None:
    space = small(name)
    made = superformer(space, sharing, private)
    count = 12 if private == ("class_token", "qk") else 4  # 52 of each when there is time, below
    for arch in some_archs(space, count):
        for side in range(made.rule.sides):
            check_law(made, arch, side=side, images=1)


@pytest.mark.slow
@pytest.mark.parametrize("private", PRIVATE, ids=lambda private: "+".join(private) or "nothing")
@pytest.mark.parametrize("sharing", RULES)
@pytest.mark.parametrize("name", NANO_SPACES)
def test_the_law_on_50_architectures_of_each(name: str, sharing: str, private: tuple[str, ...]) -> None:
    made = superformer(small(name), sharing, private)
    for arch in some_archs(made.space, 52, seed=1):
        for side in range(made.rule.sides):
            check_law(made, arch, side=side, images=1)


PARTS_THAT_FOLLOW = {
    "windows": Space(
        name="windows",
        family="swin",
        patch=(2, 4),
        class_token=False,
        pool="mean",
        positions="bias",
        img_size=(16, 24),
        stages=(
            StageSpace(
                dim=(8, 12),
                depth=(1, 2),
                stage={"mixer": "window+shifted", "head_dim": 4},
                block={"qkv": (4, 8, 12), "window": (2, 3, 5), "mlp": (6, 9)},
            ),
        )
        * 2,
    ),
    "reductions": Space(
        name="reductions",
        family="twins",
        patch=2,
        class_token=False,
        pool="mean",
        positions="conv",
        img_size=16,
        stages=(
            StageSpace(
                dim=(8, 12),
                depth=(0, 1, 2),
                block={"mixer": "subsampled", "reduction": (2, 4), "heads": (1, 2), "qkv": (4, 8), "mlp": (6, 9)},
            ),
            StageSpace(
                dim=(8, 16),
                depth=2,
                identity="anywhere",
                block={"mixer": ("local", "global"), "window": 2, "heads": (1, 2), "qkv": (4, 8), "mlp": (6, 9)},
            ),
        ),
    ),
    "heads that follow from widths": Space(
        name="heads that follow from widths",
        family="swin",
        patch=2,
        class_token=False,
        pool="mean",
        positions="bias",
        img_size=8,
        stages=(
            StageSpace(
                dim=8, depth=2, block={"mixer": "window", "window": 2, "qkv": (8, 24), "head_dim": (4, 8), "mlp": 9}
            ),
            StageSpace(
                dim=8, depth=1, block={"mixer": "window", "window": 2, "heads": (1, 2, 4), "qkv": (8, 16), "mlp": 9}
            ),
        ),
    ),
    "stages that cannot all follow each other": Space(
        name="stages that cannot all follow each other",
        family="pit",
        patch=4,
        stride=2,
        class_token=True,
        pool="token",
        positions="absolute",
        img_size=16,
        stages=(
            StageSpace(depth=1, stage={"heads": (2, 3), "head_dim": 4}, block={"mlp_ratio": 1}),
            StageSpace(depth=1, stage={"heads": (2, 4), "head_dim": 4}, block={"mlp_ratio": (1, 2)}),
        ),
    ),
    "widths of heads": Space(
        name="widths of heads",
        family="vit",
        patch=4,
        class_token=False,
        pool="mean",
        positions="absolute+relative",
        img_size=(8, 12),
        stages=(
            StageSpace(
                dim=(8, 13), depth=(1, 3), block={"heads": (1, 2), "qk": (4, 6, 10), "v": (2, 8), "mlp_ratio": (1, 2.5)}
            ),
        ),
    ),
}


@pytest.mark.parametrize("sharing", RULES)
@pytest.mark.parametrize("name", PARTS_THAT_FOLLOW)
def test_the_law_on_parts_that_follow_a_choice(name: str, sharing: str) -> None:
    """Bias tables per window, convolutions per ratio and patch, tables per width of heads, positions per grid."""
    space = PARTS_THAT_FOLLOW[name]
    for private in ((), PARTS):
        made = superformer(space, sharing, private)
        for arch in some_archs(space, 15):
            for side in range(made.rule.sides):
                check_law(made, arch, side=side, images=1)


@pytest.mark.parametrize("name", NANO_SPACES)
def test_the_law_on_the_logits_of_patch_tokens(name: str) -> None:
    space = small(name)
    made = Superformer(space, sharing="cyclic", num_classes=3, seed=0, token_head=True).double()
    for arch in some_archs(space, 4):
        check_law(made, arch, images=1, patch_logits=True)
        model = made.extract(arch)
        model.drop_token_head()
        assert torch.equal(model(fixed_batch(made, 1)), made(fixed_batch(made, 1), arch))
    with pytest.raises(ValueError, match="need a token head"):
        model(fixed_batch(made, 1), patch_logits=True)


def test_a_path_chooses_which_layers_weights_are_used() -> None:
    space = small("vitas-nano")
    made = superformer(space, "cyclic")
    arch = next(a for a in some_archs(space, 40, seed=2) if a.depth == 3)
    x = fixed_batch(made, 2)
    outputs = []
    for path in (((0, 1, 2),), ((0, 3, 5),)):
        check_law(made, arch, path=path)
        outputs.append(made(x, arch, path))
        used = {part.shared.split(".")[3] for name, part in made.slices_of(arch, path).items() if ".blocks." in name}
        assert used == {str(layer) for layer in path[0]}
    assert not torch.allclose(*outputs)
    assert torch.equal(made(x, arch), outputs[0])  # the first layers, unless said otherwise
    assert torch.equal(made(x, arch, [[0, 3, 5]]), outputs[1])  # as JSON has it
    with pytest.raises(ValueError, match="a path names the layers of every stage"):
        made(x, arch, (0, 3, 5))
    with pytest.raises(ValueError, match="cannot place 3 blocks on layers"):
        made(x, arch, ((0, 1),))
    with pytest.raises(ValueError, match="cannot place 3 blocks on layers"):
        made(x, arch, ((1, 2, 3),))  # layer 0 must stay


def test_unused_private_copies_have_no_gradient_and_no_weight_decay() -> None:
    space = small("vitas-nano")
    made = superformer(space, "cyclic", ("class_token", "qk"))
    optimizer = torch.optim.AdamW(made.parameters(), lr=0.1, weight_decay=0.5)
    before = {name: parameter.detach().clone() for name, parameter in made.shared.items()}
    arch = some_archs(space, 3)[2]
    made(fixed_batch(made, 2), arch).square().sum().backward()
    optimizer.step()
    used = {part.shared.replace(".", "/") for part in made.slices_of(arch).values()}
    assert any("@heads" in name for name in set(made.shared) - used)
    for name, parameter in made.shared.items():
        assert torch.equal(parameter, before[name]) == (name not in used)


def test_private_copies_are_those_of_the_choice() -> None:
    space = small("vitas-nano")
    names = set(superformer(space, "cyclic", ("class_token", "qk")).shared)
    for heads in (1, 2, 4):
        assert f"stages/0/blocks/0/attn/q/weight@heads={heads}" in names
    assert {"cls_token@patch=4", "cls_token@patch=8", "pos_embed@patch=4", "patch_embed/weight@patch=8"} <= names
    assert "stages/0/blocks/0/attn/v/weight" in names
    nothing = set(superformer(space, "cyclic").shared)
    assert "cls_token" in nothing
    assert not any("@heads" in name for name in nothing)
    with pytest.raises(ValueError, match="unknown private part"):
        Superformer(space, private=("class_tokens",))
    with pytest.raises(ValueError, match="given as a tuple"):
        Superformer(space, private="qk")


@pytest.mark.parametrize("name", NANO_SPACES)
def test_without_private_parts_it_owns_the_largest_network_and_no_more(name: str) -> None:
    space = spaces.load(name)
    made = Superformer(space, private=(), num_classes=3, seed=0)
    largest = sum(parameter.numel() for parameter in made.extract(space.largest).parameters())
    owned = sum(parameter.numel() for parameter in made.parameters())
    only_others = sum(p.numel() for n, p in made.shared.items() if "reduce" in n and "subsampled" in str(space.net))
    extra = owned - largest - only_others
    # Twins' largest network has plain layers where another mixer has a convolution
    reduces = sum(p.numel() for n, p in made.shared.items() if "reduce" in n)
    assert extra in (
        0,
        reduces - sum(p.numel() for n, p in made.extract(space.largest).named_parameters() if "reduce" in n),
    )


@pytest.mark.parametrize("name", NANO_SPACES)
def test_parameters_of_an_architecture_are_those_of_the_extracted_network_and_lead_back(name: str) -> None:
    superformer = Superformer(spaces.load(name), num_classes=3, seed=0)
    for arch in some_archs(superformer.space, 4):
        found = superformer.parameters_of(arch)
        expected = dict(superformer.extract(arch).named_parameters())
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[key], expected[key]) for key in found)
        superformer.zero_grad()
        torch.stack([tensor.sum() for tensor in found.values()]).sum().backward()
        reached = sum(int((p.grad != 0).sum()) for p in superformer.parameters() if p.grad is not None)
        assert reached == sum(p.numel() for p in expected.values())


def test_the_plan_is_kept_within_its_bound() -> None:
    space = small("autoformer-nano")
    made = Superformer(space, num_classes=3, cache=3, seed=0)
    for arch in some_archs(space, 8):
        made.slices_of(arch)
        assert made.slices_of(arch) is not None
    assert len(made._plans) == 3


def test_training_mode_and_dropout_reach_the_skeleton() -> None:
    space = small("autoformer-nano")
    made = Superformer(space, num_classes=3, seed=0, drop_path_rate=0.5, drop_rate=0.5)
    x = fixed_batch(made, 4)
    assert not torch.equal(made(x, space.largest), made(x, space.largest))
    made.eval()
    assert torch.equal(made(x, space.largest), made(x, space.largest))
    assert not made.extract(space.largest).training


def test_equal_seeds_are_equal_superformers() -> None:
    space = small("s3-nano")
    first, second = (Superformer(space, num_classes=3, seed=1).state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_an_architecture_of_another_space_is_refused() -> None:
    made = Superformer(small("s3-nano"), num_classes=3, seed=0)
    with pytest.raises(ValueError, match="family differs"):
        made(fixed_batch(made, 1), small("vitas-nano").largest)
    with pytest.raises(ValueError, match="runs an Arch"):
        made(fixed_batch(made, 1), "s3-tiny")
    with pytest.raises(ValueError, match="needs a Space"):
        Superformer("s3-nano")
    for options, rule in (
        ({"sharing": "circular"}, "unknown sharing rule"),
        ({"private": None}, "given as a tuple"),
        ({"cache": 0}, "cache must be"),
        ({"drop_rates": 0.1}, "unknown dropout rate.*did you mean 'drop_rate'"),
    ):
        with pytest.raises(ValueError, match=rule):
            Superformer(small("s3-nano"), **options)
