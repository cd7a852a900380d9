"""Labelled images by index: in memory, in files, or behind somebody's dataset."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from os import cpu_count
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from timm.data.dataset import ImageDataset

from vitruvius.arch import refuse
from vitruvius.data._decode import READ_ERRORS, read_image, refuse_image, to_pixels

Indices: TypeAlias = Sequence[int] | np.ndarray

MEMORY = 2**30
"""So many bytes of decoded pixels are kept in memory; larger sets are decoded on demand."""


class Images(ABC):
    """Labelled images. Picklable, so that a DataLoader's workers can have them."""

    labels: np.ndarray
    """(N,) int64"""
    in_memory: bool
    """Whether `pixels` only copies; else it decodes, and is worth a DataLoader's workers."""

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def pixels(self, indices: Indices) -> list[np.ndarray]:
        """uint8 (H, W, C), each of its own size."""

    @abstractmethod
    def subset(self, indices: Indices) -> Images:
        """Some of the images, in this order. Arrays are copied and paths picked: the others are not behind them."""


class MemoryImages(Images):
    """Decoded images, all of one size: `array` is (N, H, W, C) uint8."""

    in_memory = True

    def __init__(self, array_NHWC: np.ndarray, labels: Indices) -> None:
        if array_NHWC.dtype != np.uint8 or array_NHWC.ndim != 4:
            refuse("images in memory are one uint8 array", (array_NHWC.dtype, array_NHWC.shape), "uint8 (N, H, W, C)")
        self.array = array_NHWC
        self.labels = _labels(labels, len(array_NHWC))

    def pixels(self, indices: Indices) -> list[np.ndarray]:
        return list(self.array[np.asarray(indices, dtype=np.int64)])

    def subset(self, indices: Indices) -> MemoryImages:
        indices = np.asarray(indices, dtype=np.int64)
        return MemoryImages(self.array[indices], self.labels[indices])


class DecodedImages(Images):
    """Decoded images of different sizes."""

    in_memory = True

    def __init__(self, arrays: Sequence[np.ndarray], labels: Indices) -> None:
        self.arrays = list(arrays)
        self.labels = _labels(labels, len(self.arrays))

    def pixels(self, indices: Indices) -> list[np.ndarray]:
        return [self.arrays[index] for index in indices]

    def subset(self, indices: Indices) -> DecodedImages:
        return DecodedImages(self.pixels(indices), self.labels[np.asarray(indices, dtype=np.int64)])


class FileImages(Images):
    """Image files, decoded on demand; `load` keeps small sets decoded (`in_memory_if_small`)."""

    in_memory = False

    def __init__(self, paths: Sequence[str | Path], labels: Indices, in_chans: int = 3) -> None:
        self.paths = [str(path) for path in paths]
        self.labels = _labels(labels, len(self.paths))
        self.in_chans = in_chans

    def pixels(self, indices: Indices) -> list[np.ndarray]:
        return [read_image(self.paths[index], self.in_chans, self.paths[index]) for index in indices]

    def subset(self, indices: Indices) -> FileImages:
        indices = np.asarray(indices, dtype=np.int64)
        return FileImages([self.paths[index] for index in indices], self.labels[indices], self.in_chans)


class DatasetImages(Images):
    """Some of a map-style dataset's images: one of torchvision's, or timm's `ImageDataset`.

    The dataset stays whole behind a private name. Where it had no test split of its own, the held-out part is in there.
    """

    in_memory = False

    def __init__(self, dataset: Any, places: Indices, labels: Indices, in_chans: int = 3) -> None:
        self._dataset = dataset
        self._places = np.asarray(places, dtype=np.int64)
        self.labels = _labels(labels, len(self._places))
        self.in_chans = in_chans

    def pixels(self, indices: Indices) -> list[np.ndarray]:
        return [self._one(int(self._places[index])) for index in indices]

    def _one(self, place: int) -> np.ndarray:
        name = f"image {place} of the dataset"
        if isinstance(self._dataset, ImageDataset):
            # By the reader: the dataset itself would replace an unreadable image by the next one, label and all.
            with self._dataset.reader[place][0] as file:
                return read_image(file, self.in_chans, name)
        try:
            return to_pixels(self._dataset[place][0], self.in_chans)
        except READ_ERRORS as error:
            refuse_image(name, error)

    def subset(self, indices: Indices) -> DatasetImages:
        indices = np.asarray(indices, dtype=np.int64)
        return DatasetImages(self._dataset, self._places[indices], self.labels[indices], self.in_chans)


class JoinedImages(Images):
    """Some images of two sets: a place is an index into the first, or past its end into the second."""

    def __init__(self, first: Images, second: Images, places: Indices) -> None:
        self._first, self._second = first, second
        self._places = np.asarray(places, dtype=np.int64)
        self.labels = np.concatenate([first.labels, second.labels])[self._places]
        self.in_memory = first.in_memory and second.in_memory

    def pixels(self, indices: Indices) -> list[np.ndarray]:
        split = len(self._first)
        return [
            (self._first.pixels([place]) if place < split else self._second.pixels([place - split]))[0]
            for place in self._places[np.asarray(indices, dtype=np.int64)].tolist()
        ]

    def subset(self, indices: Indices) -> JoinedImages:
        """The parts stay whole: both belong to whoever joined them."""
        return JoinedImages(self._first, self._second, self._places[np.asarray(indices, dtype=np.int64)])


def joined(first: Images, second: Images) -> Images:
    """Two sets as one; in memory, as one array if they are of one size."""
    match first, second:
        case MemoryImages(), MemoryImages() if first.array.shape[1:] == second.array.shape[1:]:
            labels = np.concatenate([first.labels, second.labels])
            return MemoryImages(np.concatenate([first.array, second.array]), labels)
    return JoinedImages(first, second, range(len(first) + len(second)))


def decoded(pixels: Iterable[np.ndarray], labels: Indices) -> Images:
    """Images in memory, as one array if they are of one size."""
    arrays = list(pixels)
    if len({array.shape for array in arrays}) == 1:
        return MemoryImages(np.stack(arrays), labels)
    return DecodedImages(arrays, labels)


def in_memory_if_small(images: Images, memory: int) -> Images:
    """The images decoded, if they take no more bytes than `memory`; the size is estimated from some of them first."""
    if images.in_memory or not len(images):
        return images
    probes = np.unique(np.linspace(0, len(images) - 1, 32).astype(np.int64))
    size = np.mean([pixels.nbytes for pixels in images.pixels(probes)])
    if size * len(images) > memory:
        return images
    arrays: list[np.ndarray] = []
    left = memory
    parts = [range(first, min(first + 64, len(images))) for first in range(0, len(images), 64)]
    with ThreadPoolExecutor(min(16, cpu_count() or 1)) as pool:
        for array in chain.from_iterable(pool.map(images.pixels, parts)):
            arrays.append(array)
            left -= array.nbytes
            if left < 0:
                return images
    return decoded(arrays, images.labels)


def _labels(labels: Indices, count: int) -> np.ndarray:
    made = np.asarray(labels, dtype=np.int64)
    if made.shape != (count,):
        refuse("every image has one label", made.shape, (count,))
    return made
