"""What every kind of source gives: labelled parts before they are split."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from vitruvius.data._images import Images, Indices, MemoryImages


@dataclass(frozen=True)
class Part:
    """Images of a source, and what tells their content from another's."""

    images: Images
    content: str

    @property
    def labels(self) -> np.ndarray:
        return self.images.labels

    @classmethod
    def of_array(cls, array_NHWC: np.ndarray, labels: Indices) -> Part:
        images = MemoryImages(np.ascontiguousarray(array_NHWC), labels)
        return cls(images, hashlib.sha256(images.array.data).hexdigest())

    def with_channels(self, in_chans: int) -> Part:
        """Grey pixels three times, or the grey of RGB; only arrays need it, files are read as asked."""
        if not isinstance(self.images, MemoryImages) or self.images.array.shape[3] == in_chans:
            return self
        array = self.images.array
        if in_chans == 3:
            return replace(self, images=MemoryImages(np.repeat(array, 3, axis=3), self.labels))
        grey = (array @ np.array([299, 587, 114]) + 500) // 1000  # ITU-R 601-2, as PIL's mode L
        return replace(self, images=MemoryImages(grey.astype(np.uint8)[..., None], self.labels))


@dataclass(frozen=True)
class Source:
    """A source, read: its train part, and those of the others that it has."""

    kind: str
    train: Part
    test: Part | None
    classes: tuple[str, ...]
    val: Part | None = None
    in_chans: int | None = None
    """What its images were read with; None: arrays, which know."""
    notes: tuple[str, ...] = ()

    def parts(self) -> dict[str, Part]:
        """The parts that it has, by name."""
        every = {"train": self.train, "val": self.val, "test": self.test}
        return {name: part for name, part in every.items() if part is not None}
