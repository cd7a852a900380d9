"""A folder of images per class, with train, validation and test folders around the classes or without."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image

from vitruvius.arch import refuse
from vitruvius.data._decode import READ_ERRORS, refuse_image
from vitruvius.data._images import FileImages
from vitruvius.data._source import Part, Source
from vitruvius.files import write_json

SUFFIXES = frozenset(
    (".bmp", ".gif", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp")
)
_SPLITS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}


def folder(root: str, in_chans: int | None) -> Source:
    """With train and one of val and test (ImageNet's layout), that one is the test part and search-validation is held
    out of train; with all three, they are what their names say; with neither, a test part is held out as well."""
    place = Path(root)
    if not place.is_dir():
        refuse("a source of images is a folder of images per class", root, "a folder; digits; idx:PATH; torch/NAME")
    chans = 3 if in_chans is None else in_chans
    parts = _parts(place)
    if parts is None:
        listing = {"train": _Listing.of(place)}
    else:
        listing = {name: _Listing.of(path) for name, path in parts.items()}
    classes = listing["train"].classes
    for name, found in listing.items():
        if found.classes != classes:
            odd = sorted(set(found.classes) ^ set(classes))
            refuse(f"{name} and train must have the same class folders", ", ".join(odd), "the same folders in both")
    _check([file for found in listing.values() for file in found.files])
    made = {name: found.part(place, chans) for name, found in listing.items()}
    notes = []
    if others := sum(found.others for found in listing.values()):
        notes.append(f"{others} files that are no images (by their names, or hidden, or in no class) are left out")
    if "test" not in made and "val" in made:
        made["test"] = made.pop("val")
        notes.append("the validation folder is the test part; search-validation is held out of train")
    return Source("folder", made["train"], made.get("test"), classes, made.get("val"), chans, tuple(notes))


def _parts(root: Path) -> dict[str, Path] | None:
    """The split folders, if the root has nothing but such folders, train among them, with classes inside."""
    folders = {path.name.lower(): path for path in _folders(root)}
    known = {alias: split for split, aliases in _SPLITS.items() for alias in aliases}
    if not folders or any(name not in known for name in folders):
        return None
    found = {known[name]: path for name, path in folders.items()}
    if len(found) < len(folders):
        refuse("a split has one folder", ", ".join(sorted(folders)), "one of train, training; of val, validation; ...")
    if "train" not in found or not _folders(found["train"]):
        return None
    return found


def _folders(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


class _Listing:
    """The images of one folder of class folders."""

    def __init__(self, classes: tuple[str, ...], files: list[Path], labels: list[int], others: int) -> None:
        self.classes, self.files, self.labels, self.others = classes, files, labels, others

    @classmethod
    def of(cls, root: Path) -> _Listing:
        folders = _folders(root)
        if len(folders) < 2:
            names = ", ".join(path.name for path in folders) or "no folders"
            refuse(f"{root} needs a folder of images for each of two or more classes", names, "CLASS/*.jpg, *.png, ...")
        files: list[Path] = []
        labels: list[int] = []
        others = sum(path.is_file() for path in root.iterdir())
        for label, place in enumerate(folders):
            found = list(_walk(place))
            images = [file for file in found if file.suffix.lower() in SUFFIXES and not file.name.startswith(".")]
            if not images:
                kinds = " ".join(sorted(SUFFIXES))
                refuse("a class folder has no images", str(place), f"files named {kinds}; or remove the folder")
            files += images
            labels += [label] * len(images)
            others += len(found) - len(images)
        return cls(tuple(path.name for path in folders), files, labels, others)

    def part(self, root: Path, in_chans: int) -> Part:
        """Content is told by names inside the root and sizes, so that a moved folder is the same."""
        digest = hashlib.sha256()
        for file in self.files:
            digest.update(json.dumps([file.relative_to(root).as_posix(), file.stat().st_size]).encode())
        return Part(FileImages(self.files, self.labels, in_chans), digest.hexdigest())


def _walk(root: Path) -> Iterator[Path]:
    """All files below a class folder, in order; a nested folder belongs to the class it is in."""
    seen = set()
    for place, inside, names in os.walk(root, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:  # a link to a folder above
            inside.clear()
            continue
        seen.add(real)
        inside[:] = sorted(name for name in inside if not name.startswith("."))
        yield from (Path(place, name) for name in sorted(names))


# -- reading everything once, before anything starts -------------------------------------------------------------------


def _check(files: Sequence[Path]) -> None:
    """Every file is an image and whole. What has been found so is remembered by names, sizes and times."""
    digest = hashlib.sha256()
    for file in files:
        stat = file.stat()
        digest.update(json.dumps([str(file.absolute()), stat.st_size, stat.st_mtime_ns]).encode())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    mark = cache / "vitruvius" / "checked" / f"{digest.hexdigest()[:32]}.json"
    if mark.is_file():
        return
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        problems = [problem for problem in pool.map(_problem, files, chunksize=64) if problem is not None]
    if problems:
        refuse_image(*problems[0], others=len(problems) - 1)
    try:
        write_json(mark, {"images": len(files)})
    except OSError:  # no place to remember it: it is checked again next time
        return


def _problem(file: Path) -> tuple[Path, BaseException] | None:
    """A JPEG that ends as one is whole and a PNG has sums; everything else is decoded."""
    try:
        with Image.open(file) as image:
            if image.format == "PNG":
                image.verify()
                return None
            if not (image.format == "JPEG" and _ends_as_jpeg(file)):
                image.load()
    except READ_ERRORS as error:
        return file, error
    return None


def _ends_as_jpeg(file: Path) -> bool:
    with file.open("rb") as stream:
        stream.seek(-2, os.SEEK_END)
        return stream.read() == b"\xff\xd9"
