"""Sources: what is read, what is refused, and in how many lines."""

from __future__ import annotations

import gzip
import pickle
import struct
import sys
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torchvision
from PIL import Image

from vitruvius.data import DatasetImages, DecodedImages, FileImages, Images, MemoryImages, load


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    return place


def draw(file: Path, seed: int = 0, size: tuple[int, int] = (12, 10), mode: str = "RGB") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    shape = (*size, 3) if mode == "RGB" else size
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    Image.fromarray(pixels).save(file)
    return file


def make_folder(root: Path, classes: dict[str, int], suffix: str = ".png") -> Path:
    for number, (name, count) in enumerate(classes.items()):
        for i in range(count):
            draw(root / name / f"{i}{suffix}", seed=1000 * number + i)
    return root


def write_idx(file: Path, array: np.ndarray) -> None:
    data = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    file.write_bytes(gzip.compress(data) if file.suffix == ".gz" else data)


def make_mnist(root: Path, end: str = "", test: bool = True, classes: int = 3) -> dict[str, np.ndarray]:
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", 30), ("t10k", 6)) if test else (("train", 30),):
        arrays[part] = rng.integers(0, 256, (count, 5, 4), dtype=np.uint8)
        write_idx(root / f"{part}-images-idx3-ubyte{end}", arrays[part])
        write_idx(root / f"{part}-labels-idx1-ubyte{end}", (np.arange(count) % classes).astype(np.uint8))
    return arrays


def rows(images: Images) -> set[bytes]:
    return {array.tobytes() for array in images.pixels(range(len(images)))}


# -- digits --------------------------------------------------------------------------------------------------------


def test_digits_are_split_three_ways() -> None:
    data = load()
    parts = [data.search.train, data.search.val, data.test()]
    assert sum(map(len, parts)) == 1797
    assert data.search.classes == tuple("0123456789")
    assert isinstance(data.search.train, MemoryImages)
    assert data.search.train.array.shape[1:] == (8, 8, 1)
    assert data.search.train.array.max() == 255
    shares = np.bincount(parts[2].labels) / np.bincount(np.concatenate([part.labels for part in parts]))
    assert np.allclose(shares, 0.2, atol=0.01)
    assert load(in_chans=3).search.train.array.shape[1:] == (8, 8, 3)  # type: ignore[attr-defined]


def test_missing_scikit_learn_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ValueError, match="pip install scikit-learn") as error:
        load("digits")
    assert "\n" not in str(error.value)


# -- IDX -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["", ".gz"])
def test_idx_files(tmp_path: Path, end: str) -> None:
    arrays = make_mnist(tmp_path, end)
    data = load(f"idx:{tmp_path}", val=2)
    assert (len(data.search.train), len(data.search.val), len(data.test())) == (24, 6, 6)
    assert rows(data.test()) == {array.tobytes() for array in arrays["t10k"]}
    assert rows(data.search.train) | rows(data.search.val) == {array.tobytes() for array in arrays["train"]}
    assert data.search.hash == load(f"idx:{tmp_path}", val=2).search.hash
    assert not (tmp_path / "other").exists()
    train = data.search.train
    assert isinstance(train, MemoryImages)
    values = train.array / 255
    assert data.search.mean == pytest.approx((values.mean(),))
    assert data.search.std == pytest.approx((values.std(),))


def test_idx_without_test_files_holds_a_test_part_out(tmp_path: Path) -> None:
    make_mnist(tmp_path, test=False)
    data = load(f"idx:{tmp_path}", val=0.25)
    assert [len(part) for part in (data.search.train, data.search.val, data.test())] == [18, 6, 6]


def test_search_does_not_hold_the_test_split(tmp_path: Path) -> None:
    """Not even behind private names: nothing of it is in what would travel to another process."""
    make_mnist(tmp_path / "idx", test=False)
    make_folder(tmp_path / "folder", {"a": 10, "b": 10})
    for source, memory in ((f"idx:{tmp_path / 'idx'}", 2**30), (str(tmp_path / "folder"), 2**30)):
        data = load(source, memory=memory)
        travelling = pickle.dumps(data.search)
        assert all(row in travelling for row in rows(data.search.train))
        assert not any(row in travelling for row in rows(data.test()))
    on_demand = load(str(tmp_path / "folder"), memory=0)
    test = on_demand.test()
    assert isinstance(test, FileImages)
    assert not any(path.encode() in pickle.dumps(on_demand.search) for path in test.paths)


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-3])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda root: (root / "train-labels-idx1-ubyte").unlink(), "needs train-labels-idx1-ubyte"),
        (lambda root: _cut(root / "train-images-idx3-ubyte"), "as many bytes as its header says"),
        (lambda root: (root / "train-images-idx3-ubyte").write_bytes(b"P5 4 4"), "starts with 00 00 08"),
        (
            lambda root: write_idx(root / "train-labels-idx1-ubyte", np.zeros(7, np.uint8)),
            r"one label an image; got \(7,\); allowed: \(30,\)",
        ),
        (lambda root: (root / "t10k-images-idx3-ubyte").unlink(), "needs t10k-images-idx3-ubyte"),
    ],
)
def test_broken_idx_files_are_refused(tmp_path: Path, spoil: Callable[[Path], object], message: str) -> None:
    make_mnist(tmp_path)
    spoil(tmp_path)
    with pytest.raises(ValueError, match=message) as error:
        load(f"idx:{tmp_path}")
    assert "\n" not in str(error.value)


def test_a_broken_gzip_is_refused(tmp_path: Path) -> None:
    make_mnist(tmp_path, ".gz")
    _cut(tmp_path / "train-images-idx3-ubyte.gz")
    with pytest.raises(ValueError, match="an IDX file cannot be read"):
        load(f"idx:{tmp_path}")


# -- folders -------------------------------------------------------------------------------------------------------


def test_a_folder_without_parts_is_split_three_ways(tmp_path: Path) -> None:
    make_folder(tmp_path, {"cat": 10, "dog": 20})
    data = load(str(tmp_path), val=0.25)
    assert data.search.classes == ("cat", "dog")
    counts = [np.bincount(part.labels).tolist() for part in (data.search.train, data.search.val, data.test())]
    assert counts == [[6, 12], [2, 4], [2, 4]]
    parts = [rows(data.search.train), rows(data.search.val), rows(data.test())]
    assert len(parts[0] | parts[1] | parts[2]) == 30
    assert isinstance(data.search.train, MemoryImages)
    assert rows(data.search.whole()) == parts[0] | parts[1]


def test_a_folder_with_train_and_val_is_imagenets_layout(tmp_path: Path) -> None:
    make_folder(tmp_path / "train", {"a": 10, "b": 10})
    make_folder(tmp_path / "val", {"a": 3, "b": 4})
    data = load(str(tmp_path), val=2)
    counts = [np.bincount(part.labels).tolist() for part in (data.search.train, data.search.val, data.test())]
    assert counts == [[8, 8], [2, 2], [3, 4]]
    assert any("validation folder is the test part" in note for note in data.notes)


def test_a_folder_with_three_parts_keeps_them(tmp_path: Path) -> None:
    for part, count in (("training", 5), ("valid", 3), ("test", 2)):
        make_folder(tmp_path / part, {"a": count, "b": count})
    data = load(str(tmp_path))
    counts = [np.bincount(part.labels).tolist() for part in (data.search.train, data.search.val, data.test())]
    assert counts == [[5, 5], [3, 3], [2, 2]]
    assert data.search.hash == load(str(tmp_path), split_seed=9, val=1).search.hash


def test_classes_may_be_called_train(tmp_path: Path) -> None:
    make_folder(tmp_path, {"car": 5, "train": 5})
    assert load(str(tmp_path)).search.classes == ("car", "train")


def test_a_moved_folder_is_the_same_and_a_changed_one_is_not(tmp_path: Path) -> None:
    make_folder(tmp_path / "one", {"a": 6, "b": 6})
    before = load(str(tmp_path / "one")).search.hash
    (tmp_path / "one").rename(tmp_path / "two")
    assert load(str(tmp_path / "two")).search.hash == before
    assert load(str(tmp_path / "two"), split_seed=1).search.hash != before
    assert load(str(tmp_path / "two"), val=2).search.hash != before
    draw(tmp_path / "two" / "a" / "0.png", seed=77, size=(13, 13))
    assert load(str(tmp_path / "two")).search.hash != before


def test_images_of_every_kind_are_read(tmp_path: Path) -> None:
    make_folder(tmp_path, {"a": 8, "b": 8})
    place = tmp_path / "a"
    Image.new("L", (6, 5), 100).save(place / "grey.png")
    palette = Image.new("P", (6, 5), 1)
    palette.putpalette([0, 0, 0, 255, 0, 0])
    palette.save(place / "palette.png")
    palette.save(place / "hole.gif", transparency=1)
    Image.new("CMYK", (6, 5), (0, 0, 0, 255)).save(place / "cmyk.jpg")
    Image.new("RGBA", (6, 5), (0, 0, 255, 0)).save(place / "alpha.png")
    Image.new("LA", (6, 5), (10, 255)).save(place / "grey_alpha.png")
    Image.new("1", (6, 5), 1).save(place / "bits.png")
    Image.fromarray(np.full((5, 6), 0x80FF, dtype=np.uint16)).save(place / "deep.png")
    expected = {
        "grey": (100, 100, 100),
        "palette": (255, 0, 0),
        "hole": (255, 255, 255),
        "cmyk": (0, 0, 0),
        "alpha": (255, 255, 255),
        "grey_alpha": (10, 10, 10),
        "bits": (255, 255, 255),
        "deep": (128, 128, 128),
    }
    data = load(str(tmp_path), val=1)
    assert isinstance(data.search.train, MemoryImages | DecodedImages)
    for name, colour in expected.items():
        file = next(place.glob(f"{name}.*"))
        (pixels,) = FileImages([file], [0]).pixels([0])
        assert pixels.shape == (5, 6, 3), name
        assert np.abs(pixels.astype(int) - colour).max() <= 2, name
        (grey,) = FileImages([file], [0], in_chans=1).pixels([0])
        assert grey.shape == (5, 6, 1), name


def test_what_is_no_image_is_left_out_and_counted(tmp_path: Path) -> None:
    make_folder(tmp_path, {"a": 5, "b": 5})
    (tmp_path / "a" / "notes.txt").write_text("hello")
    (tmp_path / "a" / ".hidden.png").write_text("hello")
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.md").write_text("hello")
    draw(tmp_path / "b" / "deeper" / "still" / "x.JPG", seed=5)
    data = load(str(tmp_path))
    whole = np.concatenate([data.search.whole().labels, data.test().labels])
    assert np.bincount(whole).tolist() == [5, 6]
    assert data.notes[0].startswith("3 files")


def _truncated(file: Path, share: float = 0.6) -> None:
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(file)
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * share)])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda root: (root / "c").mkdir(), "a class folder has no images; got '.*/c'"),
        (
            lambda root: (root / "a" / "bad.png").write_text("hello"),
            "cannot be read .no image file.; got '.*/a/bad.png'",
        ),
        (lambda root: (root / "a" / "empty.jpg").touch(), "cannot be read .*; got '.*/a/empty.jpg'"),
        (lambda root: _truncated(root / "b" / "cut.jpg"), "cannot be read .*; got '.*/b/cut.jpg'"),
        (lambda root: _truncated(root / "b" / "cut.png"), "cannot be read .*; got '.*/b/cut.png'"),
        (lambda root: _truncated(root / "b" / "cut.bmp"), "cannot be read .*; got '.*/b/cut.bmp'"),
        (lambda root: draw(root / "lonely" / "1.png"), "class 'lonely' .* too few images to be split; got 1"),
        (lambda root: make_folder(root, {"two": 2}), "class 'two' .* too few images to be split; got 2"),
    ],
)
def test_odd_folders_are_refused_by_name(tmp_path: Path, spoil: Callable[[Path], object], message: str) -> None:
    make_folder(tmp_path, {"a": 6, "b": 6})
    spoil(tmp_path)
    for _ in range(2):  # nothing of a bad folder is remembered
        with pytest.raises(ValueError, match=message) as error:
            load(str(tmp_path))
        assert "\n" not in str(error.value)


def test_a_whole_jpeg_with_something_behind_it_is_no_truncated_one(tmp_path: Path) -> None:
    make_folder(tmp_path, {"a": 5, "b": 5}, ".jpg")
    with (tmp_path / "a" / "0.jpg").open("ab") as file:
        file.write(b"trailing")
    assert len(load(str(tmp_path)).search.classes) == 2


def test_whole_files_are_checked_once(tmp_path: Path, cache: Path) -> None:
    make_folder(tmp_path, {"a": 5, "b": 5})
    load(str(tmp_path))
    (mark,) = (cache / "vitruvius" / "checked").iterdir()
    before = mark.stat().st_mtime_ns
    load(str(tmp_path))
    assert mark.stat().st_mtime_ns == before
    _truncated(tmp_path / "a" / "0.png")
    with pytest.raises(ValueError, match=r"0\.png"):
        load(str(tmp_path))


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        ({"a": 6}, {}, "two or more classes"),
        ({"a": 6, "b": 6}, {"val": 0}, "val is held out of each class"),
        ({"a": 6, "b": 6}, {"val": 1.0}, "val is held out of each class"),
        ({"a": 6, "b": 6}, {"val": True}, "val is held out of each class"),
        ({"a": 6, "b": 6}, {"val": 5}, "hold out 5 of them; got 6; allowed: val up to 4"),
        ({"a": 6, "b": 6}, {"in_chans": 4}, "in_chans"),
        ({"a": 6, "b": 6}, {"split_seed": -1}, "split_seed"),
        ({"a": 6, "b": 6}, {"root": "x"}, "belong to timm's names"),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, make: dict[str, int], options: dict, message: str) -> None:
    make_folder(tmp_path, make)
    with pytest.raises(ValueError, match=message):
        load(str(tmp_path), **options)


@pytest.mark.parametrize("source", ["nowhere", "", "idx:nowhere", "folder/of/nothing", 7])
def test_unknown_sources_are_refused(source: object) -> None:
    with pytest.raises(ValueError, match="source"):
        load(source)  # type: ignore[arg-type]


def test_parts_with_other_classes_are_refused(tmp_path: Path) -> None:
    make_folder(tmp_path / "train", {"a": 5, "b": 5})
    make_folder(tmp_path / "test", {"a": 5, "c": 5})
    with pytest.raises(ValueError, match="test and train must have the same class folders; got 'b, c'"):
        load(str(tmp_path))


def test_large_sets_are_decoded_on_demand(tmp_path: Path) -> None:
    make_folder(tmp_path, {"a": 10, "b": 10})
    small, large = load(str(tmp_path)), load(str(tmp_path), memory=1000)
    assert isinstance(large.search.train, FileImages)
    assert large.search.hash == small.search.hash
    assert not large.search.train.in_memory
    assert large.search.mean == (0.485, 0.456, 0.406)
    order = [5, 0, 3]
    for one, other in zip(small.search.train.pixels(order), large.search.train.pixels(order), strict=True):
        assert np.array_equal(one, other)
    copy = pickle.loads(pickle.dumps(large.search.train))
    assert np.array_equal(copy.pixels([4])[0], large.search.train.pixels([4])[0])
    joined = large.search.whole()
    assert rows(joined.subset([0, len(joined) - 1])) <= rows(joined)
    assert joined.subset([len(joined) - 1]).labels[0] == large.search.val.labels[-1]


def test_images_of_different_sizes_stay_different(tmp_path: Path) -> None:
    make_folder(tmp_path, {"a": 6, "b": 6})
    for i in range(6):
        draw(tmp_path / "b" / f"{i}.png", seed=i, size=(20 + i, 10))
    train = load(str(tmp_path)).search.train
    assert isinstance(train, DecodedImages)
    assert len({pixels.shape for pixels in train.pixels(range(len(train)))}) > 1


# -- timm's names --------------------------------------------------------------------------------------------------


def test_a_torchvision_dataset(tmp_path: Path) -> None:
    arrays = make_mnist(tmp_path / "MNIST" / "raw", classes=10)
    data = load("torch/mnist", root=str(tmp_path), val=2, in_chans=1)
    assert data.search.classes[:2] == ("0 - zero", "1 - one")
    assert rows(data.test()) == {array.tobytes() for array in arrays["t10k"]}
    assert len(data.search.whole()) == 30
    assert isinstance(data.search.train, MemoryImages)
    on_demand = load("torch/mnist", root=str(tmp_path), val=2, in_chans=1, memory=100)
    assert isinstance(on_demand.search.train, DatasetImages)
    assert on_demand.search.hash == data.search.hash
    assert np.array_equal(on_demand.search.train.pixels([3])[0], data.search.train.pixels([3])[0])
    assert pickle.loads(pickle.dumps(on_demand.search.train)).pixels([1])[0].shape == (5, 4, 1)


def test_torchvisions_folders_are_folders(tmp_path: Path) -> None:
    make_folder(tmp_path / "train", {"a": 6, "b": 6})
    make_folder(tmp_path / "val", {"a": 3, "b": 3})
    by_timm = load("torch/image_folder", root=str(tmp_path))
    assert by_timm.search.hash == load(str(tmp_path)).search.hash
    theirs = torchvision.datasets.ImageFolder(str(tmp_path / "val"))
    assert len(by_timm.test()) == len(theirs)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("torch/cifar10", "timm cannot open split 'train' of 'torch/cifar10'"),
        ("torch/nothing", "timm cannot open split 'train' of 'torch/nothing'"),
        ("torch/folder", "needs a root"),
    ],
)
def test_bad_timm_sources_are_one_line(tmp_path: Path, source: str, message: str) -> None:
    root = None if "folder" in source else str(tmp_path)
    with pytest.raises(ValueError, match=message) as error:
        load(source, root=root)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("source", "module", "cure"),
    [
        ("hfds/x", "datasets", r"pip install 'vitruvius\[datasets\]'"),
        ("wds/x", "webdataset", r"pip install 'vitruvius\[datasets\]'"),
        ("tfds/x", "tensorflow", "pip install tensorflow"),
    ],
)
def test_missing_extras_are_named(
    tmp_path: Path, source: str, module: str, cure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    readers = {"hfds": "reader_hfds", "wds": "reader_wds", "tfds": "reader_tfds"}
    for name in (readers[source.split("/")[0]], "_hfds"):
        monkeypatch.delitem(sys.modules, f"timm.data.readers.{name}", raising=False)
    with pytest.raises(ValueError, match=cure) as error:
        load(source, root=str(tmp_path))
    assert "\n" not in str(error.value)


class Stream:
    """What `IterableImageDataset` needs of a reader."""

    class_to_idx = {"cat": 0, "dog": 1}
    dist_rank, dist_num_replicas, global_num_workers = 1, 2, 2

    def __init__(self, split: str) -> None:
        self.split = split

    def __iter__(self):  # type: ignore[no-untyped-def]
        assert (self.dist_rank, self.dist_num_replicas) == (0, 1), "every process reads all"
        seed = 0 if self.split == "train" else 50
        for i in range(20 if self.split == "train" else 6):
            pixels = np.random.default_rng(seed + i).integers(0, 256, (4, 4, 3), dtype=np.uint8)
            yield Image.fromarray(pixels), i % 2


def _streams(monkeypatch: pytest.MonkeyPatch, splits: tuple[str, ...]) -> None:
    from timm.data.dataset import IterableImageDataset

    def create(name: str, *, root: str | None, split: str, input_img_mode: str) -> IterableImageDataset:
        if split not in splits:
            raise RuntimeError(f"no split {split}")
        return IterableImageDataset(root, reader=Stream(split))

    monkeypatch.setattr("vitruvius.data._timm.create_dataset", create)


def test_a_stream_that_fits_is_read_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    _streams(monkeypatch, ("train", "validation"))
    data = load("wds/some", val=0.2)
    assert data.search.classes == ("cat", "dog")
    assert [len(part) for part in (data.search.train, data.search.val, data.test())] == [16, 4, 6]
    _streams(monkeypatch, ("train",))
    data = load("wds/some", val=0.25)
    assert [len(part) for part in (data.search.train, data.search.val, data.test())] == [12, 4, 4]
    assert "a test part is held out" in data.notes[0]
    with pytest.raises(ValueError, match="no split test"):
        load("wds/some", test_split="test")


def test_a_stream_that_lost_images_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _streams(monkeypatch, ("train",))
    monkeypatch.setattr(Stream, "num_samples", 21, raising=False)
    with pytest.raises(ValueError, match="gives fewer images than it should; got 20; allowed: 21"):
        load("wds/some")
    # A bad test split is not taken for a missing one.
    _streams(monkeypatch, ("train", "test"))
    monkeypatch.setattr(Stream, "num_samples", 20, raising=False)
    with pytest.raises(ValueError, match="split 'test' of wds/some gives fewer images"):
        load("wds/some")


def test_a_stream_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _streams(monkeypatch, ("train",))
    with pytest.raises(ValueError, match=r"stream without an index, too large .* unpack it into a folder"):
        load("wds/some", memory=500)


class Table(list):  # type: ignore[type-arg]
    """What timm's reader asks of a Hugging Face dataset."""

    def __init__(self, items: list[dict]) -> None:
        super().__init__(items)
        names = types.SimpleNamespace(names=["cat", "dog"], num_classes=2)
        self.info = types.SimpleNamespace(features={"label": names}, splits=None)

    def cast_column(self, key: str, kind: object) -> Table:
        return self

    def __getitem__(self, key):  # type: ignore[no-untyped-def, override]
        return [item[key] for item in self] if isinstance(key, str) else super().__getitem__(key)


def test_a_hugging_face_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [draw(tmp_path / f"{i}.png", seed=i) for i in range(26)]

    def load_dataset(name: str, split: str, cache_dir: str | None, **_: object) -> Table:
        chosen = {"train": files[:20], "validation": files[20:]}.get(split)
        if chosen is None:
            raise ValueError(f"Unknown split {split!r}")
        return Table([{"image": {"bytes": f.read_bytes()}, "label": i % 2} for i, f in enumerate(chosen)])

    fake = types.ModuleType("datasets")
    fake.load_dataset, fake.Image = load_dataset, lambda decode: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", fake)
    for name in ("reader_hfds", "_hfds"):
        monkeypatch.delitem(sys.modules, f"timm.data.readers.{name}", raising=False)
    data = load("hfds/some/thing", val=0.2)
    assert [len(part) for part in (data.search.train, data.search.val, data.test())] == [16, 4, 6]
    whole = FileImages(files, [0] * 26)
    assert rows(data.test()) == rows(whole.subset(range(20, 26)))
    # An unreadable image is an error, not the next image under this one's label.
    files[3].write_text("spoilt")
    with pytest.raises(ValueError, match="image 3 of the dataset"):
        load("hfds/some/thing", val=0.2)


def test_a_webdataset(tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    with webdataset.TarWriter(str(tmp_path / "train.tar")) as tar:
        for i in range(20):
            image = np.random.default_rng(i).integers(0, 256, (6, 6, 3), dtype=np.uint8)
            tar.write({"__key__": f"{i:04d}", "png": Image.fromarray(image), "cls": i % 2})
    data = load("wds/x", root=str(tmp_path), train_split="train.tar|20", val=0.25)
    assert [len(part) for part in (data.search.train, data.search.val, data.test())] == [12, 4, 4]
