"""Weights at another image size: as timm resamples them, and nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.interpolate
import scipy.optimize
import timm
import torch
import torch.nn.functional as F
from timm.models.swin_transformer import checkpoint_filter_fn as swin_filter
from timm.models.vision_transformer import checkpoint_filter_fn as vit_filter

from vitruvius import Arch, Block, Patch, Stage, build, spaces, zoo
from vitruvius.arch import token_grids
from vitruvius.models import Backbone, from_timm
from vitruvius.training.resample import _table, arch_at_size, at_size, side_step, with_new_head


def shaken(model: torch.nn.Module) -> Any:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model.eval()


def images(*size: int) -> torch.Tensor:
    return torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(1))


def swin(window: int, depth: int = 2) -> Arch:
    def stage(dim: int, heads: int) -> Stage:
        mixers = ["window", "shifted"] * depth
        common = {"window": window, "heads": heads, "qk": dim, "v": dim, "mlp": 2 * dim}
        return Stage(dim=dim, blocks=tuple(Block(mixer=mixer, **common) for mixer in mixers[:depth]))

    return Arch(
        family="swin",
        patch=Patch(size=4),
        stages=(stage(16, 2), stage(32, 4)),
        positions="bias",
        class_token=False,
        pool="mean",
    )


@pytest.mark.parametrize(
    ("name", "theirs", "old", "new", "options", "windows", "reference"),
    [
        ("deit-tiny", "deit_tiny_patch16_224", 64, 96, {}, "keep", vit_filter),
        ("deit-tiny", "deit_tiny_patch16_224", 96, (64, 128), {}, "keep", vit_filter),
        ("swin-tiny", "swin_tiny_patch4_window7_224", 224, 256, {"window_size": 8}, "scale", swin_filter),
        ("twins-svt-small", "twins_svt_small", 224, 256, {}, "pad", lambda weights, model: weights),
    ],
)
def test_the_output_is_timms_at_the_new_size(
    name: str, theirs: str, old: Any, new: Any, options: dict[str, Any], windows: Any, reference: Any
) -> None:
    arch = zoo.load(name)
    source = shaken(timm.create_model(theirs, img_size=old, num_classes=7))
    goal = timm.create_model(theirs, img_size=new, num_classes=7, **options).eval()
    goal.load_state_dict(reference(source.state_dict(), goal))
    ours = build(arch, img_size=old, num_classes=7).eval()
    ours.load_state_dict(from_timm(arch, source.state_dict()))
    larger = at_size(ours, new, windows)
    assert larger is not ours
    assert not larger.training
    x = images(*larger.img_size)
    with torch.no_grad():
        expected, found = goal(x), larger(x)
    assert expected.std() > 1e-3
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("name", ["vit-resnas-nano", "pit-nano"])
def test_position_embeddings_of_every_stage(name: str) -> None:
    space = spaces.load(name)
    arch = space.largest
    model = shaken(build(arch, num_classes=3, img_size=space.img_size))
    size = space.img_size + 2 * side_step(arch) if side_step(arch) > 1 else space.img_size + 12
    larger = at_size(model, size)
    before, after = model.state_dict(), larger.state_dict()
    resampled = [name for name in before if name.endswith("pos_embed")]
    assert len(resampled) == (len(arch.stages) if arch.family == "resvit" else 1)
    for key in before:
        if key not in resampled:
            assert torch.equal(before[key], after[key]), key
    grids = token_grids(arch, space.img_size), token_grids(arch, size)
    for key in resampled:
        stage = int(key.split(".")[1]) if "." in key else 0
        old, new = grids[0][stage], grids[1][stage]
        prefix = before[key].shape[1] - old[0] * old[1]
        assert prefix == int(arch.family == "resvit" and stage == 0)
        assert torch.equal(after[key][:, :prefix], before[key][:, :prefix])
        maps = before[key][:, prefix:].reshape(1, *old, -1).permute(0, 3, 1, 2)
        expected = F.interpolate(maps, new, mode="bicubic", antialias=True).permute(0, 2, 3, 1).flatten(1, 2)
        torch.testing.assert_close(after[key][:, prefix:], expected)
    assert larger(images(*larger.img_size)).shape == (1, 3)


def test_a_constant_embedding_stays_constant() -> None:
    space = spaces.load("vitas-nano")
    model = build(space.smallest, num_classes=3, img_size=space.img_size)
    with torch.no_grad():
        model.pos_embed.fill_(0.25)  # type: ignore[union-attr]
    larger = at_size(model, 2 * space.img_size)
    torch.testing.assert_close(larger.pos_embed, torch.full_like(larger.pos_embed, 0.25))


@pytest.mark.parametrize("name", [name for name in spaces.SPACES if name.endswith("-nano")])
def test_the_same_size_is_the_same_network(name: str) -> None:
    space = spaces.load(name)
    model = shaken(build(space.smallest, num_classes=3, img_size=space.img_size))
    same = at_size(model, space.img_size)
    assert same.arch == model.arch
    for key, tensor in model.state_dict().items():
        assert torch.equal(same.state_dict()[key], tensor)


def test_autoformers_relative_tables_serve_any_size() -> None:
    space = spaces.load("autoformer-nano")
    model = shaken(build(space.largest, num_classes=3, img_size=space.img_size))
    larger = at_size(model, 3 * space.img_size)
    tables = [key for key in model.state_dict() if "table" in key]
    assert tables
    for key in tables:
        assert torch.equal(larger.state_dict()[key], model.state_dict()[key])
    built = build(space.largest, num_classes=3, img_size=3 * space.img_size)
    built.load_state_dict(larger.state_dict())
    x = images(*larger.img_size)
    torch.testing.assert_close(built.eval()(x), larger(x))


def test_windows_that_were_cut_grow_back() -> None:
    """At 32 pixels the second stage's grid is 4x4, and its windows of 8 were cut to it."""
    model = shaken(build(swin(8), num_classes=3, img_size=32))
    larger = at_size(model, 64)
    assert larger.arch == model.arch
    table = "stages.1.blocks.0.attn.bias_table"
    assert model.state_dict()[table].shape == (49, 4)
    assert larger.state_dict()[table].shape == (225, 4)
    grown = larger.state_dict()[table].reshape(15, 15, 4)
    torch.testing.assert_close(grown[7, 7], model.state_dict()[table].reshape(7, 7, 4)[3, 3])
    unchanged = "stages.0.blocks.0.attn.bias_table"
    assert torch.equal(larger.state_dict()[unchanged], model.state_dict()[unchanged])
    # An image of other proportions, and grids of one row.
    wide = at_size(model, (16, 64))
    assert wide.state_dict()[table].shape == ((2 * 2 - 1) * (2 * 8 - 1), 4)
    back = at_size(wide, (32, 32))
    assert back.state_dict()[table].shape == (49, 4)
    flat = shaken(build(swin(8), num_classes=3, img_size=(8, 32)))
    assert at_size(flat, 32)(images(32, 32)).shape == (1, 3)
    assert at_size(flat, 32).state_dict()[table].shape == (49, 4)


@pytest.mark.parametrize(("old", "new"), [(5, 7), (7, 12), (8, 14)])
def test_window_tables_are_interpolated_between_geometric_places(old: int, new: int) -> None:
    """Known offsets stand at sums of powers of q, the outermost at the new window's outermost (timm: while q < 1.5)."""
    q = scipy.optimize.brentq(lambda q: sum(q**i for i in range(old - 1)) - (new - 1), 1.0, 3.0)
    half = np.cumsum([q**i for i in range(old - 1)])
    places = np.concatenate([-half[::-1], [0.0], half])
    table = torch.randn((2 * old - 1) ** 2, 3, generator=torch.Generator().manual_seed(0))
    values = table.reshape(2 * old - 1, 2 * old - 1, 3).double().numpy()
    known = scipy.interpolate.RegularGridInterpolator((places, places), values, bounds_error=False, fill_value=None)
    offsets = np.arange(-(new - 1), new)
    expected = known(np.stack(np.meshgrid(offsets, offsets, indexing="ij"), axis=-1)).reshape(-1, 3)
    found = _table(table, (old, old), (new, new))
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-3)


def test_windows_scale_with_the_image() -> None:
    for small, large in (("s3-small", "s3-small-384"), ("s3-base", "s3-base-384")):
        assert arch_at_size(zoo.load(small), 224, 384, "scale") == zoo.load(large)
    twins = arch_at_size(zoo.load("twins-svt-small"), 224, 448, "scale")
    assert {block.window for stage in twins.stages for block in stage.blocks} == {14, None}
    deit = zoo.load("deit-tiny")
    assert arch_at_size(deit, 224, 384, "scale") == deit


@pytest.mark.parametrize(
    ("name", "size", "windows", "message"),
    [
        ("vit-resnas-tiny", 230, "keep", "got .230, 230.; allowed: multiples of 56, such as 168, 224, 280, 336"),
        ("vit-resnas-tiny", 252, "keep", "must be even; got .252, 252.; allowed: multiples of 56"),
        ("deit-tiny", 250, "keep", "allowed: multiples of 16, such as 224, 240, 256, 272"),
        ("pit-ti", 8, "keep", "allowed: sides of 16 or more"),
        ("swin-tiny", 384, "keep", "windows of 7 must tile stage 1's grid of 96x96; .*224, 448.*or windows='scale'"),
        ("twins-svt-small", 256, "keep", "windows of 7 must tile stage 1's grid of 64x64; .*224, 448"),
        ("twins-svt-small", 300, "pad", "allowed: multiples of 32, such as 256, 288, 320"),
        ("swin-tiny", 260, "scale", "windows of 7 must grow to a whole number with stage 1's grid of 65x65"),
        ("swin-tiny", (224, 448), "scale", "must grow to a whole number"),
        ("swin-tiny", 384, "stretch", "unknown windows"),
        ("deit-tiny", 0, "keep", "image size"),
    ],
)
def test_sizes_that_cannot_be_are_refused_with_those_that_can(name: str, size: Any, windows: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        arch_at_size(zoo.load(name), 224, size, windows)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["vit-resnas-tiny", "vit-resnas-medium"])
def test_vit_resnas_goes_to_the_papers_sizes(name: str) -> None:
    arch = zoo.load(name)
    assert side_step(arch) == 56
    for size in (280, 336, 392):  # Section 3.3
        assert arch_at_size(arch, 224, size) == arch


def test_a_new_head() -> None:
    space = spaces.load("vitas-nano")
    model = build(space.smallest, num_classes=3, img_size=space.img_size, seed=0)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    other = with_new_head(model, 12, seed=5)
    assert torch.equal(torch.rand(1), expected)
    assert isinstance(other, Backbone)
    assert other.num_classes == 12
    for key, tensor in other.state_dict().items():
        assert key.startswith("head.") or torch.equal(tensor, before[key])
    assert other.head.weight.shape == (12, model.num_features)
    again = with_new_head(build(space.smallest, num_classes=3, img_size=space.img_size, seed=0), 12, seed=5)
    assert torch.equal(again.head.weight, other.head.weight)
    with pytest.raises(ValueError, match="num_classes"):
        with_new_head(model, 0)


def test_a_token_head_is_left_behind() -> None:
    space = spaces.load("vit-resnas-nano")
    model = build(space.smallest, num_classes=3, img_size=space.img_size, token_head=True, seed=0)
    larger = at_size(model, space.img_size + side_step(space.smallest))
    assert not any(name.startswith("token_head") for name in larger.state_dict())
    assert larger(images(*larger.img_size)).shape == (1, 3)
    other = with_new_head(model, 5)
    assert not any(name.startswith("token_head") for name in other.state_dict())
    assert other(images(*other.img_size)).shape == (1, 5)
