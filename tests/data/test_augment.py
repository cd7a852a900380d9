"""Augmentation: a function of pixels and keys, the same on both ways, in any batch, leaving no trace."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from timm.data import create_transform
from timm.data.mixup import Mixup

from vitruvius.data import Augment, DecodedImages, Images, MemoryImages, Mix, eval_batches, stream_batches
from vitruvius.data._keys import hashes, uniforms

STATISTICS = {1: ((0.3,), (0.4,)), 3: ((0.3, 0.4, 0.5), (0.2, 0.3, 0.4))}


def some_images(count: int = 16, size: int = 32, in_chans: int = 3, seed: int = 0) -> MemoryImages:
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (count, 4, 4, in_chans), dtype=np.uint8)
    array = coarse.repeat(size // 4, axis=1).repeat(size // 4, axis=2)
    return MemoryImages(array, np.arange(count) % 5)


def some_keys(count: int, epoch: int = 0) -> list[tuple[int, ...]]:
    return [(7, epoch, position) for position in range(count)]


def settings(in_chans: int = 3, **options: Any) -> Augment:
    mean, std = STATISTICS[in_chans]
    return Augment(img_size=options.pop("img_size", 32), mean=mean, std=std, **options)


EVERY: dict[str, dict[str, Any]] = {
    "none": {},
    "weak": {"crop": "padded", "hflip": 0.5, "vflip": 0.5},
    "resized": {"crop": "resized", "hflip": 0.5, "interpolation": "random"},
    "jitter": {"crop": "padded", "color_jitter": (0.4, 0.4, 0.4, 0.1)},
    "deit": {"crop": "resized", "hflip": 0.5, "auto_augment": "rand-m9-mstd0.5-inc1", "re_prob": 0.25},
    "erasing": {"re_prob": 1.0, "re_mode": "rand", "re_count": 2},
    "augmix": {"auto_augment": "augmix-m3-w3"},
}


@pytest.mark.parametrize("in_chans", [1, 3])
@pytest.mark.parametrize("name", EVERY)
def test_a_sample_is_its_key_alone(name: str, in_chans: int) -> None:
    augment, images, keys = settings(in_chans, **EVERY[name]), some_images(in_chans=in_chans), some_keys(16)
    together = augment(images, range(16), keys)
    assert together.shape == (16, in_chans, 32, 32)
    assert together.dtype == torch.float32
    for i in (0, 5, 15):
        assert torch.equal(augment(images, [i], [keys[i]])[0], together[i])
    order = [9, 2, 2, 11]
    assert torch.equal(augment(images, order, [keys[i] for i in order]), together[order])
    other = augment(images, range(16), some_keys(16, epoch=1))
    assert torch.equal(other, together) == (name == "none")


@pytest.mark.parametrize("name", EVERY)
def test_global_generators_are_left_as_they_were(name: str) -> None:
    augment, images = settings(**EVERY[name]), some_images()
    random.seed(1)
    np.random.seed(2)  # noqa: NPY002
    torch.manual_seed(3)
    expected = random.random(), np.random.rand(), torch.rand(1)  # noqa: NPY002
    first = augment(images, range(16), some_keys(16))
    random.seed(1)
    np.random.seed(2)  # noqa: NPY002
    torch.manual_seed(3)
    second = augment(images, range(16), some_keys(16))
    assert (random.random(), np.random.rand(), torch.rand(1)) == expected  # noqa: NPY002
    assert torch.equal(first, second)


@pytest.mark.parametrize(
    "options", [{}, {"crop": "padded"}, {"crop": "padded", "hflip": 0.5, "vflip": 0.5, "padding": 3}, {"hflip": 1.0}]
)
@pytest.mark.parametrize("size", [32, 20])
def test_both_ways_have_one_meaning(options: dict[str, Any], size: int) -> None:
    """An erasing of no probability worth mentioning sends samples through PIL, one by one."""
    images, keys = some_images(size=size), some_keys(16)
    fast = settings(**options)
    slow = replace(fast, re_prob=1e-12)
    assert fast.weak
    assert not slow.weak
    assert torch.equal(fast(images, range(16), keys), slow(images, range(16), keys))
    prepared = fast.prepare(images)
    assert isinstance(prepared, MemoryImages)
    assert prepared.array.shape == (16, 32, 32, 3)
    assert torch.equal(fast(prepared, range(16), keys), fast(images, range(16), keys))
    assert torch.equal(slow(prepared, range(16), keys), slow(images, range(16), keys))


def test_padded_crops_and_flips_by_hand() -> None:
    images, keys = some_images(count=64), some_keys(64)
    augment = settings(crop="padded", padding=4, hflip=0.5)
    plain = settings()(images, range(64), keys)
    made = augment(images, range(64), keys)
    black = (0 - torch.tensor(augment.mean)) / torch.tensor(augment.std)
    seen = set()
    for before, after in zip(plain, made, strict=True):
        padded = F.pad(before, (4, 4, 4, 4), value=float("nan"))
        padded = torch.where(padded.isnan(), black.view(3, 1, 1), padded)
        parts = {(y, x): padded[:, y : y + 32, x : x + 32] for y in range(9) for x in range(9)}
        matches = [(*at, False) for at, part in parts.items() if torch.equal(after, part)]
        matches += [(*at, True) for at, part in parts.items() if torch.equal(after, part.flip(-1))]
        assert len(matches) == 1
        seen.add(matches[0])
    assert len(seen) > 45
    assert {y for y, _, _ in seen} == {x for _, x, _ in seen} == set(range(9))
    assert 0.25 < np.mean([flip for _, _, flip in seen]) < 0.75


def test_a_resized_crop_is_timms() -> None:
    """Without flips of ours: timm's own transform, its generators seeded by hand."""
    images, keys = some_images(size=40), some_keys(4)
    augment = settings(crop="resized", auto_augment="rand-m9-mstd0.5-inc1", re_prob=0.5)
    theirs = create_transform(
        32,
        is_training=True,
        hflip=0.0,
        auto_augment="rand-m9-mstd0.5-inc1",
        interpolation="bicubic",
        re_prob=0.5,
        re_mode="pixel",
        mean=augment.mean,
        std=augment.std,
    )
    made = augment(images, range(4), keys)
    for i, word in enumerate(hashes(keys).tolist()):
        random.seed(word)
        np.random.seed(word & 0xFFFFFFFF)  # noqa: NPY002
        torch.manual_seed(word & 0x7FFFFFFFFFFFFFFF)
        assert torch.equal(made[i], theirs(Image.fromarray(images.array[i])))


def test_images_of_different_sizes_become_one_batch() -> None:
    sizes = [(20, 30, 3), (40, 25, 3), (32, 32, 3), (8, 9, 3)]
    rng = np.random.default_rng(0)
    images = DecodedImages([rng.integers(0, 256, size, dtype=np.uint8) for size in sizes], [0, 1, 2, 3])
    augment, keys = settings(crop="padded", hflip=0.5), some_keys(4)
    made = augment(images, range(4), keys)
    assert made.shape == (4, 3, 32, 32)
    assert torch.equal(augment(augment.prepare(images), range(4), keys), made)
    assert augment.prepare(images, memory=100) is images
    random_part = settings(crop="resized")
    assert random_part.prepare(images) is images
    wide = settings(img_size=(16, 48))
    assert wide(images, range(4), keys).shape == (4, 3, 16, 48)


def test_it_travels_to_other_processes() -> None:
    augment = settings(**EVERY["deit"])
    images, keys = some_images(), some_keys(16)
    expected = augment(images, range(16), keys)
    copy, same = pickle.loads(pickle.dumps((augment, images)))
    assert copy == augment
    assert torch.equal(copy(same, range(16), keys), expected)


def test_numbers_of_keys_are_uniform_and_their_own() -> None:
    keys = [(seed, 0, position) for seed in range(4) for position in range(2500)]
    drawn = uniforms(keys, 4)
    assert len(np.unique(drawn)) == drawn.size
    assert 0 <= drawn.min() < drawn.max() < 1
    for column in drawn.T:
        counts = np.histogram(column, bins=20, range=(0, 1))[0]
        assert ((counts - 500) ** 2 / 500).sum() < 45  # chi-square of 19 degrees: one in a thousand above
    assert np.abs(np.corrcoef(drawn.T) - np.eye(4)).max() < 0.05
    assert np.array_equal(uniforms(keys[5:9], 2), drawn[5:9, :2])
    assert hashes([(1, 2)])[0] != hashes([(1, 2, 0)])[0]
    assert hashes([(1, 2)])[0] != hashes([(2, 1)])[0]
    assert hashes([(-1, 2)])[0] != hashes([(1, 2)])[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"crop": "centre"}, "unknown crop"),
        ({"interpolation": "random"}, "unknown interpolation"),
        ({"interpolation": "bicubical"}, "did you mean 'bicubic'"),
        ({"hflip": 1.5}, "hflip must be a probability"),
        ({"scale": (0.5, 0.1)}, "scale must be a range"),
        ({"scale": 0.5}, "scale must be a range"),
        ({"ratio": (0, 1)}, "ratio must be a range"),
        ({"padding": 4}, "of crop 'padded'"),
        ({"crop": "padded", "padding": -1}, "padding"),
        ({"color_jitter": (0.1, 0.2)}, "three or four"),
        ({"auto_augment": "rand-x9"}, "timm takes other augmentations"),
        ({"auto_augment": "nonsense"}, "timm takes other augmentations"),
        ({"re_mode": "colour"}, "unknown re_mode"),
        ({"re_count": 0}, "re_count"),
        ({"img_size": 0}, "image size"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        settings(**options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda augment, images: augment(images, [0, 1], [(1,)]), "every sample has a key"),
        (lambda augment, images: augment(images, [0, 1], [(1,), (1, 2)]), "equally long"),
        (lambda augment, images: augment(images, [0], [(2**70,)]), "64-bit"),
        (lambda augment, images: augment(some_images(in_chans=1), [0], [(1,)]), "as many channels"),
    ],
)
def test_bad_calls_are_refused(call: Callable[[Augment, Images], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(settings(hflip=0.5), some_images())


# -- evaluation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("img_size", "crop_pct", "size"), [(128, None, 200), (32, 0.9, 40), ((24, 32), None, 40)])
def test_evaluation_is_timms(img_size: Any, crop_pct: float | None, size: int) -> None:
    images = some_images(count=5, size=size)
    mean, std = STATISTICS[3]
    theirs = create_transform(
        img_size,
        mean=mean,
        std=std,
        interpolation="bicubic",
        crop_pct=crop_pct or (0.875 if img_size == 128 else 1.0),
    )
    batches = eval_batches(images, 2, img_size=img_size, mean=mean, std=std, crop_pct=crop_pct)
    assert [len(labels) for _, labels in batches] == [2, 2, 1]
    expected = torch.stack([theirs(Image.fromarray(pixels)) for pixels in images.array])
    assert torch.equal(torch.cat([x for x, _ in batches]), expected)
    assert torch.cat([labels for _, labels in batches]).tolist() == images.labels.tolist()


def test_evaluation_of_chosen_images_in_another_dtype() -> None:
    images = some_images()
    mean, std = STATISTICS[3]
    chosen = list(stream_batches(images, 4, img_size=32, mean=mean, std=std, dtype=torch.bfloat16, indices=[3, 1, 2]))
    assert [x.dtype for x, _ in chosen] == [torch.bfloat16]
    assert chosen[0][1].tolist() == [3, 1, 2]
    fitted = settings()(images, [3, 1, 2], some_keys(3))
    assert torch.equal(chosen[0][0], fitted.bfloat16())


@pytest.mark.parametrize("options", [{"crop_pct": 0.0}, {"crop_pct": 1.5}, {"batch_size": 0}, {"std": (0.0,)}])
def test_bad_evaluations_are_refused(options: dict[str, Any]) -> None:
    given = {"batch_size": 2, "img_size": 32, "mean": (0.5,), "std": (0.5,), **options}
    with pytest.raises(ValueError, match="got"):
        stream_batches(some_images(in_chans=1), **given)


# -- mixing ----------------------------------------------------------------------------------------------------------

MIXES: dict[str, dict[str, Any]] = {
    "mixup": {"mixup_alpha": 0.8},
    "cutmix": {"cutmix_alpha": 1.0},
    "both": {"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "label_smoothing": 0.1},
    "elem": {"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "mode": "elem", "prob": 0.7},
    "minmax": {"cutmix_minmax": (0.2, 0.8), "mode": "pair"},
}


@pytest.mark.parametrize("name", MIXES)
def test_mixing_is_timms_at_the_keys_seed(name: str) -> None:
    x = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(8) % 5
    mix = Mix(num_classes=5, **MIXES[name])
    before = x.clone()
    np.random.seed(5)  # noqa: NPY002
    expected_after = np.random.rand()  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    mixed, targets = mix(x, labels, (1, 2))
    assert np.random.rand() == expected_after  # noqa: NPY002
    assert torch.equal(x, before)
    options = {"label_smoothing": 0.0, **MIXES[name]}
    np.random.seed(int(hashes([(1, 2)])[0]) & 0xFFFFFFFF)  # noqa: NPY002
    theirs = Mixup(num_classes=5, **{"mixup_alpha": 0.0, **options})(x.clone(), labels)
    assert torch.equal(mixed, theirs[0])
    assert torch.equal(targets, theirs[1])
    assert torch.allclose(targets.sum(1), torch.ones(8))
    again, other = mix(x, labels, (1, 2)), mix(x, labels, (1, 3))
    assert torch.equal(again[0], mixed)
    assert not torch.equal(other[0], mixed)


def test_without_mixing_labels_are_smoothed() -> None:
    x, labels = torch.randn(3, 1, 4, 4), torch.tensor([0, 1, 3])
    same, targets = Mix(num_classes=4, label_smoothing=0.2)(x, labels, (0,))
    assert torch.equal(same, x)
    assert torch.allclose(targets, torch.full((3, 4), 0.05) + 0.8 * F.one_hot(labels, 4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mixup_alpha": -1.0}, "mixup_alpha"),
        ({"prob": 2.0}, "prob must be"),
        ({"mode": "all"}, "mode of mixing"),
        ({"cutmix_minmax": (0.8, 0.2)}, "cutmix_minmax"),
        ({"num_classes": 0}, "num_classes"),
        ({"mixup_alpha": 1.0, "batch": 5}, "must be even; got 5"),
    ],
)
def test_bad_mixing_is_refused(options: dict[str, Any], message: str) -> None:
    batch = options.pop("batch", 4)
    with pytest.raises(ValueError, match=message):
        Mix(**{"num_classes": 4, **options})(torch.zeros(batch, 1, 4, 4), torch.zeros(batch, dtype=torch.long), (0,))
