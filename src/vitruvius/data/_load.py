"""`load`: a source, split three ways. Search gets two of the parts; the third has one door."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vitruvius.arch import refuse
from vitruvius.data._arrays import digits, idx
from vitruvius.data._decode import check_channels
from vitruvius.data._folders import folder
from vitruvius.data._images import MEMORY, Images, in_memory_if_small, joined
from vitruvius.data._source import Source
from vitruvius.data._splits import check_val, hold_out_test, hold_out_val, require_enough, split_hash
from vitruvius.data._timm import PREFIXES, named

VAL = 0.2
"""The share of train that search is validated on; the papers take 50K of ImageNet's images, or 25 of each class."""
_IMAGENET = {3: ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), 1: ((0.449,), (0.226,))}
"""Of RGB, as everywhere; of grey, of images with those means."""


@dataclass(frozen=True)
class SearchData:
    """What search and training may see: never the test split."""

    train: Images
    val: Images
    hash: str
    """Of the source, its labels and its three splits: it goes into every record."""
    classes: tuple[str, ...]
    in_chans: int
    mean: tuple[float, ...]
    """Per channel, of pixels from 0 to 1: of train where it is in memory, else ImageNet's."""
    std: tuple[float, ...]

    def whole(self) -> Images:
        """Train and search-validation together: what a found network is retrained on."""
        return joined(self.train, self.val)


@dataclass(frozen=True)
class Data:
    name: str
    search: SearchData
    notes: tuple[str, ...]
    """What was decided about the source, for people."""
    _test: Images = field(repr=False)
    _memory: int = field(repr=False)

    def test(self) -> Images:
        """The test split. Nothing else leads to it."""
        return in_memory_if_small(self._test, self._memory)

    def summary(self) -> dict[str, Any]:
        """Name, hash, sizes, and what whoever uses the trained network without its images must know, as plain data."""
        return {
            "source": self.name,
            "hash": self.search.hash,
            "classes": len(self.search.classes),
            "class_names": list(self.search.classes),
            "in_chans": self.search.in_chans,
            "mean": list(self.search.mean),
            "std": list(self.search.std),
            "train": len(self.search.train),
            "val": len(self.search.val),
            "test": len(self._test),
            "notes": list(self.notes),
        }


def load(
    source: str = "digits",
    *,
    val: float | int = VAL,
    split_seed: int = 0,
    in_chans: int | None = None,
    root: str | None = None,
    train_split: str = "train",
    test_split: str | None = None,
    memory: int = MEMORY,
) -> Data:
    """A source, split into train, search-validation and test.

    source: "digits"; a folder of images per class; "idx:FOLDER"; or a name of timm's `create_dataset`, such as
        "torch/cifar10", "hfds/NAME", "wds/NAME", "tfds/NAME".
    val: held out of each class of train: a share, or a number of images. A folder's own three splits are kept.
    split_seed: of search-validation. A test part that has to be held out is always the same fifth.
    in_chans: 1 (grey) or 3; the source's own unless said otherwise (3 of files).
    root, train_split, test_split: of timm's names.
    memory: sets of no more bytes, decoded, are kept in memory.
    """
    check_val(val)
    check_channels(in_chans)
    for what, value in (("split_seed", split_seed), ("memory", memory)):
        if type(value) is not int or value < 0:
            refuse(f"{what} must be a whole number", value, "0 or more")
    by_timm = isinstance(source, str) and source.partition("/")[0].lower() in PREFIXES and "/" in source
    if not by_timm and (root is not None or test_split is not None or train_split != "train"):
        refuse(
            "root, train_split and test_split belong to timm's names", source, "torch/NAME, hfds/NAME, wds/NAME, ..."
        )
    if by_timm:
        options = {"root": root, "train_split": train_split, "test_split": test_split}
        found = named(source, in_chans, **options, memory=memory)
    elif source == "digits":
        found = digits()
    elif isinstance(source, str) and source.startswith("idx:"):
        found = idx(source.removeprefix("idx:"))
    elif isinstance(source, str) and source:
        found = folder(source, in_chans)
    else:
        refuse("a source of images is a text", source, "digits, a folder, idx:FOLDER, torch/NAME, hfds/NAME, ...")
    return _split(source, found, val, split_seed, in_chans, memory)


def _split(name: str, source: Source, val: float | int, seed: int, in_chans: int | None, memory: int) -> Data:
    chans = in_chans if in_chans is not None else source.in_chans or _own_channels(source.train.images)
    train = source.train.with_channels(chans)
    holds_val, holds_test = source.val is None, source.test is None
    labels = train.labels
    require_enough(labels, source.classes, val=val if holds_val else None, holds_test=holds_test, where=name)
    kept, test_at = hold_out_test(labels) if holds_test else (np.arange(len(labels)), None)
    if holds_val:
        kept_of_kept, val_of_kept = hold_out_val(labels[kept], val, seed)
        train_at, val_at = kept[kept_of_kept], kept[val_of_kept]
    else:
        train_at, val_at = kept, None
    given = {part: found.with_channels(chans) for part, found in source.parts().items()}
    images = {
        "train": train.images if len(train_at) == len(labels) else train.images.subset(train_at),
        "val": given["val"].images if val_at is None else train.images.subset(val_at),
        "test": given["test"].images if test_at is None else train.images.subset(test_at),
    }
    identity = {
        "kind": source.kind,
        "classes": source.classes,
        "content": {part: found.content for part, found in source.parts().items()},
    }
    at = [np.empty(0, np.int64) if each is None else each.astype(np.int64) for each in (train_at, val_at, test_at)]
    made = split_hash(identity, [*(found.labels for found in source.parts().values()), *at])
    ready = {part: in_memory_if_small(images[part], memory) for part in ("train", "val")}
    mean, std = _mean_std(ready["train"], chans)
    search = SearchData(ready["train"], ready["val"], made, source.classes, chans, mean, std)
    notes = source.notes
    if not holds_val:
        notes = (*notes, "the folder's own validation part is search-validation: val and split_seed change nothing")
    return Data(name, search, notes, images["test"], memory)


def _own_channels(images: Images) -> int:
    return images.pixels([0])[0].shape[2]


def _mean_std(images: Images, in_chans: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Per channel, exactly, from the counts of the 256 values."""
    if not images.in_memory:
        return _IMAGENET[in_chans]
    counts = np.zeros((in_chans, 256))
    for first in range(0, len(images), 256):
        for pixels in images.pixels(range(first, min(first + 256, len(images)))):
            for channel in range(in_chans):
                counts[channel] += np.bincount(pixels[:, :, channel].ravel(), minlength=256)
    values = np.arange(256) / 255
    shares = counts / counts.sum(axis=1, keepdims=True)
    mean = shares @ values
    std = np.sqrt((shares * (values - mean[:, None]) ** 2).sum(axis=1))
    return tuple(mean.tolist()), tuple(np.maximum(std, 1 / 255).tolist())
