"""Every dataset name that timm's `create_dataset` takes: torch/, hfds/, hfids/, wds/, tfds/."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from timm.data import create_dataset
from timm.data.dataset import ImageDataset, IterableImageDataset

from vitruvius.arch import refuse
from vitruvius.data._decode import to_pixels
from vitruvius.data._folders import folder
from vitruvius.data._images import DatasetImages, Images, decoded
from vitruvius.data._source import Part, Source

PREFIXES = ("torch", "hfds", "hfids", "wds", "tfds")
_NEEDS = {
    "hfds": "pip install 'vitruvius[datasets]'",
    "hfids": "pip install 'vitruvius[datasets]'",
    "wds": "pip install 'vitruvius[datasets]'",
    "tfds": "pip install tensorflow tensorflow-datasets",
}
_TEST_NAMES = ("test", "validation", "val")
"""Tried in turn where the test split is not named."""


def named(
    name: str, in_chans: int | None, *, root: str | None, train_split: str, test_split: str | None, memory: int
) -> Source:
    prefix, _, rest = name.partition("/")
    prefix = prefix.lower()
    if prefix == "torch" and rest.lower() in ("folder", "image_folder"):
        if root is None:
            refuse(f"{name} needs a root", root, "root=FOLDER, or the folder itself as the source")
        return folder(root, in_chans)
    chans = 3 if in_chans is None else in_chans
    reader = _Reader(name, prefix, root, chans, memory)
    train, classes = reader.part(train_split)
    if prefix == "torch":
        test_split = test_split or "validation"
    tried = _TEST_NAMES if test_split is None else (test_split,)
    test = None
    for split in tried:
        try:
            found = reader.part(split)
        except _NotOpened:
            if test_split is not None:
                raise
            continue
        if test_split is not None or found[0].labels.min() >= 0:  # some test splits come without labels
            test = found
            break
    labels = [train.labels] + ([test[0].labels] if test is not None else [])
    count = int(max(each.max() for each in labels)) + 1
    if min(each.min() for each in labels) < 0:
        refuse(f"every image of {name} needs a label", -1, "0, 1, 2, ...: some splits come without labels")
    if len(classes) < count:
        classes = tuple(map(str, range(count)))
    notes = () if test is not None else (f"no test split found (tried {', '.join(tried)}): a test part is held out",)
    return Source(name, train, None if test is None else test[0], classes, None, chans, notes)


class _NotOpened(ValueError):
    """A split that is not there, unlike one that is and is bad."""


class _Reader:
    def __init__(self, name: str, prefix: str, root: str | None, in_chans: int, memory: int) -> None:
        self.name, self.prefix, self.root, self.in_chans, self.memory = name, prefix, root, in_chans, memory

    def part(self, split: str) -> tuple[Part, tuple[str, ...]]:
        dataset = self._create(split)
        if isinstance(dataset, IterableImageDataset):
            images, classes = self._read_once(dataset, split), _class_names(dataset.reader.class_to_idx)
        elif isinstance(dataset, ImageDataset):
            labels = np.array([-1 if each is None else each for each in _targets_of(dataset)], dtype=np.int64)
            images = DatasetImages(dataset, range(len(labels)), labels, self.in_chans)
            classes = _class_names(dataset.reader.class_to_idx)
        else:
            labels = np.asarray(_targets(dataset))
            images = DatasetImages(dataset, range(len(labels)), labels, self.in_chans)
            classes = tuple(map(str, getattr(dataset, "classes", ())))
        if not len(images):
            refuse(f"split {split!r} of {self.name} has no images", 0, "a split with images")
        content = hashlib.sha256(json.dumps([self.name, split, len(images)]).encode())
        for pixels in images.pixels(np.unique(np.linspace(0, len(images) - 1, 16).astype(np.int64))):
            content.update(np.ascontiguousarray(pixels).data)
        return Part(images, content.hexdigest()), classes

    def _create(self, split: str) -> Any:
        try:
            return create_dataset(
                self.name, root=self.root, split=split, input_img_mode="L" if self.in_chans == 1 else "RGB"
            )
        except (ImportError, ModuleNotFoundError) as error:
            self._missing(error)
        except (AssertionError, RuntimeError, OSError, KeyError, ValueError, TypeError) as error:
            if "install" in str(error).lower() and self.prefix in _NEEDS:
                self._missing(error)
            why = str(error).split("\n")[0] or type(error).__name__
            message = f"timm cannot open split {split!r} of {self.name!r} ({why}); got root={self.root!r}"
            raise _NotOpened(f"{message}; allowed: {_KNOWN}") from None

    def _missing(self, error: BaseException) -> None:
        refuse(
            f"{self.prefix}/ datasets need packages that are not installed ({str(error).splitlines()[0]})",
            self.name,
            f"{_NEEDS.get(self.prefix, 'pip install torchvision')}, or another source",
        )

    def _read_once(self, dataset: IterableImageDataset, split: str) -> Images:
        """Streams have no index: what fits into memory is read into it, whole in every process; else it is refused."""
        reader = dataset.reader
        reader.dist_rank, reader.dist_num_replicas, reader.global_num_workers = 0, 1, 1
        labels: list[int] = []

        def read() -> Iterator[np.ndarray]:
            left = self.memory
            for image, label in dataset:
                pixels = to_pixels(image, self.in_chans)
                left -= pixels.nbytes
                if left < 0:
                    refuse(
                        f"split {split!r} of {self.name} is a stream without an index, too large to be kept in memory",
                        f"more than {self.memory:,} bytes",
                        "unpack it into a folder of images per class, use hfds/ (indexed), or raise `memory`",
                    )
                labels.append(int(label))
                yield pixels

        arrays = list(read())
        known = getattr(reader, "num_samples", 0) or 0
        if len(arrays) < max(known, 1):  # webdataset's readers pass over what they cannot read
            what = f"split {split!r} of {self.name} gives fewer images than it should"
            refuse(what, len(arrays), f"{known or 'one or more'}: mend its shards, or their count")
        return decoded(arrays, labels)


_KNOWN = (
    "torch/NAME (cifar10, cifar100, mnist, kmnist, fashion_mnist, qmnist, imagenet, inaturalist, places365) downloaded "
    "under root, hfds/NAME, wds/NAME, tfds/NAME"
)


def _targets(dataset: Any) -> Any:
    """Of one of torchvision's datasets."""
    targets = getattr(dataset, "targets", None)
    if targets is None and (index := getattr(dataset, "index", None)) is not None:  # iNaturalist
        targets = [category for category, _ in index]
    return [dataset[i][1] for i in range(len(dataset))] if targets is None else targets


def _targets_of(dataset: ImageDataset) -> Any:
    """Of a Hugging Face dataset: its label column, without decoding an image."""
    reader = dataset.reader
    return reader.dataset[reader.label_key]


def _class_names(class_to_idx: Any) -> tuple[str, ...]:
    if not class_to_idx:
        return ()
    return tuple(str(name) for name, _ in sorted(class_to_idx.items(), key=lambda item: item[1]))
