"""Masked execution equals sliced execution, sample by sample; masked layer norm equals the narrow tensor's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from superformer.test_law import PARTS_THAT_FOLLOW, superformer
from vitruvius import Space, Superformer, spaces
from vitruvius.spaces import StageSpace
from vitruvius.superformer import RULES
from vitruvius.superformer.masks import masked_layer_norm
from vitruvius.testing import check_masks, fixed_batch


def one_kind_of_head() -> dict[str, Space]:
    """Spaces of every family in which only widths and depths differ."""
    twins = StageSpace(
        dim=(8, 12, 20),
        depth=(0, 1, 2),
        stage={"mixer": "local+subsampled", "window": 2, "reduction": 2},
        block={"heads": (1, 2, 3), "head_dim": 4, "mlp": (6, 9, 13)},
    )
    return {
        "vit": spaces.load("autoformer-nano", img_size=16),
        "swin": spaces.load("s3-nano", img_size=16).with_choices("stage1.window", [2]),
        "twins": Space(
            name="one kind of twins",
            family="twins",
            patch=2,
            class_token=False,
            pool="mean",
            positions="conv",
            img_size=16,
            stages=(twins, twins),
        ),
        "resvit": spaces.load("vit-resnas-nano", img_size=16),
        "pit": spaces.load("pit-nano", img_size=16).with_choices("head_dim", [8]),
    }


SPACES = one_kind_of_head()
SKIPPING = Space(
    name="twins that skip anywhere",
    family="twins",
    patch=2,
    class_token=False,
    pool="mean",
    positions="conv",
    img_size=16,
    stages=(
        StageSpace(
            dim=(8, 12, 20),
            depth=3,
            identity="anywhere",
            block={"mixer": "local", "window": 2, "heads": (1, 2, 3), "head_dim": 4, "mlp": (6, 9)},
        ),
    )
    * 2,
)


@pytest.mark.parametrize("sharing", RULES)
@pytest.mark.parametrize("family", SPACES)
def test_masked_is_sliced(family: str, sharing: str) -> None:
    space = SPACES[family]
    made = superformer(space, sharing).eval()  # batch norms of the stem see the whole batch when training
    rng = np.random.default_rng(0)
    archs = [space.smallest, space.largest, *(space.sample(rng) for _ in range(14))]
    assert len(set(archs)) > 12
    for side in range(made.rule.sides):
        check_masks(made, archs, side=side)


def test_skipped_layers_of_any_path_are_passed_by() -> None:
    space = SPACES["resvit"]
    made = superformer(space, "ordinal").eval()
    check_masks(made, [space.sample(np.random.default_rng(seed), identity=0.5) for seed in range(16)], images=2)
    vectors = space.sample_vectors(np.random.default_rng(1), 16, identity=0.5)
    archs, paths = space.decode_many(vectors), [space.path_of(vector) for vector in vectors]
    firsts = [made.path_of(arch) for arch in archs]
    assert paths != firsts
    check_masks(made, archs, paths=paths)
    x = fixed_batch(made, 16)
    assert torch.equal(made.several(x, archs, how="sliced", paths=firsts), made.several(x, archs, how="sliced"))
    assert not torch.allclose(made.several(x, archs, paths=paths), made.several(x, archs))
    with pytest.raises(ValueError, match="every architecture has a path; got '1 paths'; allowed: 16"):
        made.several(x, archs, paths=paths[:1])


@pytest.mark.parametrize("sharing", ["ordinal", "cyclic"])
def test_twins_positions_follow_a_samples_own_first_block(sharing: str) -> None:
    made = superformer(SKIPPING, sharing)
    vectors = SKIPPING.sample_vectors(np.random.default_rng(0), 16, identity=0.6)
    paths = [SKIPPING.path_of(vector) for vector in vectors]
    assert {stage[:1] for path in paths for stage in path} == {(), (0,), (1,), (2,)}
    check_masks(made, SKIPPING.decode_many(vectors), paths=paths)
    late = [i for i, path in enumerate(paths) if path[0][:1] == (2,)]
    check_masks(made, SKIPPING.decode_many(vectors[late]), paths=[paths[i] for i in late])


@pytest.mark.parametrize("family", SPACES)
def test_masked_is_sliced_for_the_logits_of_patch_tokens(family: str) -> None:
    space = SPACES[family]
    made = Superformer(space, sharing="ordinal", private=(), num_classes=3, seed=0, token_head=True).double().eval()
    rng = np.random.default_rng(0)
    check_masks(made, [space.sample(rng) for _ in range(4)], patch_logits=True)


def test_masked_layer_norm_is_the_narrow_tensors() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, 12, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(12, generator=generator, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(12, generator=generator, dtype=torch.float64, requires_grad=True)
    channels = [[0, 1, 2, 3, 4], list(range(12)), [9, 10, 11, 0]]
    mask = torch.zeros(3, 1, 12, dtype=torch.float64)
    for row, kept in enumerate(channels):
        mask[row, 0, kept] = 1
    masked = masked_layer_norm(x, mask, weight, bias, 1e-6)
    assert not masked[(mask == 0).expand_as(masked)].any()
    narrow = [
        torch.nn.functional.layer_norm(x[i][:, kept], (len(kept),), weight[kept], bias[kept], 1e-6)
        for i, kept in enumerate(channels)
    ]
    for i, kept in enumerate(channels):
        torch.testing.assert_close(masked[i][:, kept], narrow[i], rtol=1e-10, atol=1e-12)
    ours = torch.autograd.grad(masked.pow(3).sum(), (x, weight, bias))
    theirs = torch.autograd.grad(sum(part.pow(3).sum() for part in narrow), (x, weight, bias))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("name", "sharing", "private", "rule"),
    [
        ("vitas-nano", "ordinal", ("qk",), "they must share every part"),
        ("s3-nano", "cyclic", (), "one mixer, window and width of heads"),
        ("pit-nano", "ordinal", (), "one mixer, window and width of heads"),
    ],
)
def test_what_one_run_cannot_do_is_refused(name: str, sharing: str, private: tuple[str, ...], rule: str) -> None:
    space = spaces.load(name)
    made = Superformer(space, sharing=sharing, private=private, num_classes=3, seed=0)
    archs = [space.sample(np.random.default_rng(seed)) for seed in range(8)]
    with pytest.raises(ValueError, match=rule):
        made.several(torch.zeros(8, 3, 32, 32), archs, how="masked")
    assert made.several(torch.zeros(8, 3, 32, 32), archs).shape == (8, 3)


def test_a_largest_network_without_the_widest_stage_is_refused() -> None:
    space = PARTS_THAT_FOLLOW["stages that cannot all follow each other"]
    made = Superformer(space, sharing="cyclic", private=(), num_classes=3, seed=0)
    images, archs = torch.zeros(2, 3, 16, 16), [space.smallest, space.largest]
    with pytest.raises(ValueError, match=r"every channel of .*whose widest stages cannot follow each other"):
        made.several(images, archs, how="masked")
    assert made.several(images, archs).shape == (2, 3)


def test_the_faster_way_is_taken_where_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    from vitruvius.superformer import superformer as module

    taken = []
    monkeypatch.setattr(module, "masked_forward", lambda *_, **__: taken.append("masked") or torch.zeros(1))
    space = SPACES["vit"]
    made = Superformer(space, sharing="ordinal", private=(), num_classes=3, seed=0)
    archs = [space.smallest, space.largest]
    made.several(torch.zeros(4, 3, 16, 16), archs)  # 2 samples each: one run
    assert taken == ["masked"]
    made.several(torch.zeros(8, 3, 16, 16), archs)  # 4 samples each: two runs
    private = Superformer(space, sharing="ordinal", private=("qk",), num_classes=3, seed=0)
    private.several(torch.zeros(4, 3, 16, 16), archs)  # cannot be masked
    assert taken == ["masked"]


def test_shares_and_ways_are_checked() -> None:
    space = SPACES["vit"]
    made = Superformer(space, sharing="ordinal", private=(), num_classes=3, seed=0)
    images = torch.zeros(6, 3, 16, 16)
    for archs in ([], [space.largest] * 4):
        with pytest.raises(ValueError, match="share the batch evenly"):
            made.several(images, archs)
    with pytest.raises(ValueError, match="unknown way to run several"):
        made.several(images, [space.largest], how="both")
