"""Token labels: a label's mass is its source's mass of pixels, in both branches; the head is beside the network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from vitruvius import build, spaces
from vitruvius.arch import token_grids
from vitruvius.training.token_labels import (
    LabelMaps,
    TokenLabels,
    soft_cross_entropy,
    token_label_loss,
)

BATCH, CLASSES = 8, 11


def sources(size: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Image i is one in channel i and zero elsewhere, and of class i + 2: channels of a mixture are its sources."""
    images = torch.eye(BATCH)[:, :, None, None].expand(-1, -1, *size).contiguous()
    return images, torch.arange(BATCH) + 2


def branch(labelled: Any) -> str:
    values = labelled.images.unique()
    return "cut" if set(values.tolist()) <= {0.0, 1.0} else "mixed"


@pytest.mark.parametrize(
    ("size", "grid"),
    [((32, 32), (4, 4)), ((56, 56), (4, 4)), ((28, 56), (7, 7)), ((30, 31), (4, 7)), ((16, 16), (1, 1))],
)
def test_a_labels_mass_is_its_sources_mass_of_pixels(size: tuple[int, int], grid: tuple[int, int]) -> None:
    images, labels = sources(size)
    before = images.clone()
    make = TokenLabels(num_classes=CLASSES, grid=grid)
    seen = {"cut": 0, "mixed": 0}
    shares = []
    for step in range(16):
        made = make(images, labels, (3, step))
        assert torch.equal(images, before)
        seen[branch(made)] += 1
        pixels = made.images.double().mean(dim=(2, 3))
        torch.testing.assert_close(made.targets[:, 2 : 2 + BATCH].double(), pixels, rtol=0, atol=1e-6)
        assert torch.count_nonzero(made.targets[:, :2]) == 0
        rows, columns = (torch.arange(n) * k // n for n, k in zip(size, grid, strict=True))
        for patch in range(grid[0] * grid[1]):
            inside = (rows == patch // grid[1])[:, None] & (columns == patch % grid[1])[None, :]
            mass = made.images[:, :, inside].double().mean(dim=2)
            found = made.patch_targets[:, patch, 2 : 2 + BATCH].double()
            torch.testing.assert_close(found, mass, rtol=0, atol=1e-6)
            if branch(made) == "cut":
                assert torch.equal(found, mass)
        if branch(made) == "mixed":
            assert torch.equal(made.patch_targets, made.targets.unsqueeze(1).expand_as(made.patch_targets))
        elif 16 % (grid[0] * grid[1]) == 0 and size[0] * size[1] % 256 == 0 and size[0] == size[1] != 56:
            assert torch.equal(made.targets[:, 2 : 2 + BATCH].double(), pixels)
        shares.append(made.targets.diagonal(2)[:BATCH])
    assert min(seen.values()) >= 3 or grid == (1, 1)
    assert torch.stack(shares).std() > 0.1


def test_partners_are_timms_and_masks_their_own() -> None:
    images, labels = sources((32, 32))
    made = TokenLabels(num_classes=CLASSES, grid=(4, 4), switch_prob=1.0)(images, labels, (0,))
    for i in range(BATCH):
        here = set(made.images[i].amax(dim=(1, 2)).nonzero().flatten().tolist())
        assert here <= {i, BATCH - 1 - i}
    own = made.images[torch.arange(BATCH), torch.arange(BATCH)]
    assert len({mask.numpy().tobytes() for mask in own}) > BATCH // 2


def test_it_is_a_function_of_the_key() -> None:
    images, labels = sources((16, 16))
    make = TokenLabels(num_classes=CLASSES, grid=(4, 4), label_smoothing=0.1)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    expected = torch.rand(1), np.random.rand()  # noqa: NPY002
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    batches = [make(images, labels, (1, step)) for step in range(6)]
    assert (torch.rand(1), np.random.rand()) == expected  # noqa: NPY002
    for step, batch in enumerate(batches):
        again = make(images, labels, (1, step))
        assert all(torch.equal(one, other) for one, other in zip(batch, again, strict=True))
        assert torch.allclose(batch.targets.sum(-1), torch.ones(BATCH))
        assert torch.allclose(batch.patch_targets.sum(-1), torch.ones(BATCH, 16))
    assert len({batch.images.numpy().tobytes() for batch in batches}) == 6


def test_dense_labels_follow_their_patches(tmp_path: Path) -> None:
    images, labels = sources((32, 32))
    scores = np.random.default_rng(0).random((20, 4, 4, CLASSES)).astype(np.float32)
    np.save(tmp_path / "maps.npy", scores)
    maps = LabelMaps(tmp_path / "maps.npy", images=20, grid=(4, 4), num_classes=CLASSES)
    chosen = [3, 1, 4, 15, 9, 2, 6, 5]
    batch = maps(chosen)
    torch.testing.assert_close(batch, torch.from_numpy(scores[chosen] / scores[chosen].sum(-1, keepdims=True)))
    cut = TokenLabels(num_classes=CLASSES, grid=(4, 4), switch_prob=1.0)(images, labels, (0,), batch)
    plain = TokenLabels(num_classes=CLASSES, grid=(4, 4), switch_prob=1.0)(images, labels, (0,))
    assert torch.equal(cut.images, plain.images)
    assert torch.equal(cut.targets, plain.targets)
    for i in range(BATCH):
        for patch in range(16):
            source = int(plain.patch_targets[i, patch].argmax()) - 2
            assert torch.equal(cut.patch_targets[i, patch], batch[source, patch // 4, patch % 4])
    mixed = TokenLabels(num_classes=CLASSES, grid=(4, 4), switch_prob=0.0)(images, labels, (0,), batch)
    assert torch.equal(mixed.patch_targets[:, 5], mixed.targets)


@pytest.mark.parametrize("family", ["vit-resnas-nano", "s3-nano", "pit-nano", "autoformer-nano"])
def test_the_head_is_beside_the_network(family: str) -> None:
    space = spaces.load(family)
    arch = space.smallest
    options = {"num_classes": 5, "img_size": space.img_size, "seed": 0}
    plain = build(arch, **options).double().eval()
    model = build(arch, **options, token_head=True).double().eval()
    x = torch.randn(2, 3, *model.img_size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    logits, patches = model(x, patch_logits=True)
    assert torch.equal(logits, model(x))
    grid = token_grids(arch, space.img_size)[-1]
    assert patches.shape == (2, grid[0] * grid[1], 5)
    tokens = model.forward_features(x)[:, model.num_prefix_tokens :]
    torch.testing.assert_close(patches, tokens @ model.token_head.weight.T + model.token_head.bias)
    model.drop_token_head()
    assert set(model.state_dict()) == set(plain.state_dict())
    assert torch.equal(model(x), logits)


def test_losses_by_hand() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, patches = torch.randn(4, 3, generator=generator), torch.randn(4, 6, 3, generator=generator)
    targets = torch.rand(4, 3, generator=generator).softmax(-1)
    patch_targets = torch.rand(4, 6, 3, generator=generator).softmax(-1)
    image_loss = F.cross_entropy(logits, targets)
    patch_loss = F.cross_entropy(patches.flatten(0, 1), patch_targets.flatten(0, 1))
    torch.testing.assert_close(soft_cross_entropy(patches, patch_targets), patch_loss)
    torch.testing.assert_close(token_label_loss(logits, patches, targets, patch_targets), image_loss + patch_loss)
    with pytest.raises(ValueError, match="other grids"):
        token_label_loss(logits, patches[:, :5], targets, patch_targets)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid": 4}, "rows and columns"),
        ({"grid": (0, 4)}, "a side of the token grid"),
        ({"switch_prob": 1.5}, "switch_prob"),
        ({"mixup_alpha": 0.0}, "needs its alpha"),
        ({"cutmix_alpha": 0.0}, "needs its alpha"),
        ({"num_classes": 0}, "num_classes"),
        ({"batch": 3}, "must be even; got 3"),
        ({"size": 2}, "every patch needs a pixel"),
        ({"maps": torch.zeros(4, 16, 11)}, "label maps have one row"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], message: str) -> None:
    batch, size, maps = options.pop("batch", 4), options.pop("size", 8), options.pop("maps", None)
    with pytest.raises(ValueError, match=message):
        TokenLabels(**{"num_classes": CLASSES, "grid": (4, 4), **options})(
            torch.zeros(batch, 1, size, size), torch.zeros(batch, dtype=torch.long), (0,), maps
        )


def test_bad_maps_are_refused(tmp_path: Path) -> None:
    options: dict[str, Any] = {"images": 2, "grid": (2, 2), "num_classes": 3}
    with pytest.raises(ValueError, match="cannot be read"):
        LabelMaps(tmp_path / "none.npy", **options)
    np.save(tmp_path / "short.npy", np.ones((2, 2, 3), np.float32))
    with pytest.raises(ValueError, match="do not fit"):
        LabelMaps(tmp_path / "short.npy", **options)
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="cannot be read"):
        LabelMaps(tmp_path / "objects.npy", **options)
    np.save(tmp_path / "zeros.npy", np.zeros((2, 2, 2, 3), np.float32))
    with pytest.raises(ValueError, match="not all zero"):
        LabelMaps(tmp_path / "zeros.npy", **options)([0])
