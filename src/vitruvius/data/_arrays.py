"""Sources that are arrays already: scikit-learn's digits, and files in the IDX format (MNIST and its kin)."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from vitruvius.arch import refuse
from vitruvius.data._source import Part, Source

_DIGIT_NAMES = tuple("0123456789")
_MNIST_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def digits() -> Source:
    """1,797 handwritten digits of 8x8 pixels, which come with scikit-learn."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ValueError(
            "the digits come with scikit-learn, which is not installed; got no scikit-learn; "
            "allowed: pip install scikit-learn, or another source"
        ) from None
    found = load_digits()
    levels = np.rint(np.asarray(found.images) * (255 / 16)).astype(np.uint8)  # 17 grey levels
    labels = np.asarray(found.target, dtype=np.int64)
    return Source("digits", Part.of_array(levels[..., None], labels), None, _DIGIT_NAMES)


def idx(folder: str) -> Source:
    """The four files of MNIST's layout in a folder, gzipped or not; without test files, a test part is held out."""
    place = Path(folder)
    if not place.is_dir():
        refuse("an IDX source is a folder", folder, "idx:PATH, where " + ", ".join(_MNIST_FILES["train"]) + " are")
    train = _idx_part(place, "train")
    assert train is not None
    test = _idx_part(place, "test")
    count = int(max(part.labels.max() for part in (train, test) if part is not None)) + 1
    return Source("idx", train, test, tuple(map(str, range(count))))


def _idx_part(folder: Path, part: str) -> Part | None:
    names = _MNIST_FILES[part]
    files = [_find(folder, name) for name in names]
    if part == "test" and files == [None, None]:
        return None
    for name, file in zip(names, files, strict=True):
        if file is None:
            refuse(f"an IDX folder needs {name} (or .gz)", str(folder), ", ".join(_MNIST_FILES["train"]))
    images, labels = (read_idx(file) for file in files if file is not None)
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or images.shape[3] not in (1, 3) or not images.size:
        refuse(f"{files[0]} must hold images", images.shape, "(N, height, width), or with 1 or 3 channels last")
    if labels.shape != (len(images),):
        refuse(f"{files[1]} must hold one label an image", labels.shape, (len(images),))
    return Part.of_array(images, labels.astype(np.int64))


def _find(folder: Path, name: str) -> Path | None:
    dotted = name.replace("-idx", ".idx")  # as some archives unpack them
    found = [folder / (base + end) for base in (name, dotted) for end in ("", ".gz")]
    return next((file for file in found if file.is_file()), None)


def read_idx(file: Path) -> np.ndarray:
    """The uint8 array of an IDX file: two zeros, the type (8), the number of dimensions, their sizes, the bytes."""
    try:
        with (gzip.open if file.suffix == ".gz" else open)(file, "rb") as stream:
            data = stream.read()
    except (OSError, EOFError, zlib.error) as error:
        refuse(f"an IDX file cannot be read ({error})", str(file), "a whole file, gzipped (.gz) or not")
    if len(data) < 4 or data[:3] != b"\0\0\x08" or len(data) < 4 + 4 * data[3]:
        refuse("an IDX file of bytes starts with 00 00 08", data[:4].hex(" "), "images or labels as unsigned bytes")
    shape = tuple(int(size) for size in np.frombuffer(data, ">u4", data[3], 4))
    values = np.frombuffer(data, np.uint8, offset=4 + 4 * data[3])
    if len(values) != math.prod(shape):
        refuse(f"{file} must hold as many bytes as its header says", len(values), math.prod(shape))
    return values.reshape(shape)
