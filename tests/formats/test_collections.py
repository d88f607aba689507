"""Features of many images, wherever they are."""

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from colmap_databases import tables, write_database
from featveil.core import (
    Features,
    FeatveilError,
    FormatError,
    Guarantee,
    InputError,
    Keypoints,
    Points,
    PrivateFeatures,
    WordSets,
)
from featveil.formats import hloc, private_hloc, veil
from featveil.formats.collections import open_collection

NAMES = ["a/1.jpg", "b.jpg"]


def raw(n: int, kind: str = "sift") -> Features:
    rng = np.random.default_rng(n)
    values, xy = rng.normal(size=(n, 8)).astype(np.float32), rng.uniform(1, 9, (n, 2)).astype(np.float32)
    return Features(Points(values), kind, Keypoints(xy))


def private(n: int, kind: str = "sift") -> PrivateFeatures:
    words = WordSets(np.arange(2 * n).reshape(n, 2), "0" * 64, 1000)
    return PrivateFeatures(words, kind, {"name": "subset"}, Guarantee("local-dp", 2.0), raw(n).keypoints)


def write_veil(folder: Path, features: dict[str, Features | PrivateFeatures]) -> None:
    for name, each in features.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        veil.save(each, folder / f"{name}.veil")


def write_hloc(path: Path) -> None:
    hloc.write_features(path, [(name, raw(n)) for n, name in enumerate(NAMES, start=2)])


def write_private(path: Path) -> None:
    private_hloc.write(path, [(name, private(n)) for n, name in enumerate(NAMES, start=2)])


def write_colmap(path: Path) -> None:
    write_database(path, {name: tables(n) for n, name in enumerate(NAMES, start=2)})


def write_raw_folder(path: Path) -> None:
    write_veil(path, {name: raw(n) for n, name in enumerate(NAMES, start=2)})


def write_private_folder(path: Path) -> None:
    write_veil(path, {name: private(n) for n, name in enumerate(NAMES, start=2)})


@pytest.mark.parametrize(
    ("write", "place", "is_private", "kind"),
    [
        (write_hloc, "x.h5", False, "sift"),
        (write_hloc, "x.HDF5", False, "sift"),
        (write_private, "x.h5", True, "sift"),
        (write_colmap, "x.db", False, "rootsift"),
        (write_colmap, "without suffix", False, "rootsift"),
        (write_raw_folder, "x", False, "sift"),
        (write_private_folder, "x.h5", True, "sift"),
    ],
)
def test_every_form(tmp_path: Path, write: Callable[[Path], None], place: str, is_private: bool, kind: str) -> None:
    path = tmp_path / place
    write(path)
    collection = open_collection(path)
    assert (collection.path, collection.names, collection.private) == (path, NAMES, is_private)
    for n, name in enumerate(NAMES, start=2):
        features = collection.read(name)
        assert (len(features), features.kind) == (n, kind)
        assert isinstance(features, PrivateFeatures if is_private else Features)
    for name in ("c.jpg", "b", "", "../b.jpg"):
        with pytest.raises(InputError, match=r"has no image .*: it has 2, such as 'a/1\.jpg'"):
            collection.read(name)


def test_one_veil_file(tmp_path: Path) -> None:
    write_veil(tmp_path, {"q.jpg": private(3)})
    collection = open_collection(tmp_path / "q.jpg.veil")
    assert (collection.names, collection.private, len(collection.read("q.jpg"))) == (["q.jpg"], True, 3)


def test_raw_and_private_files_are_kept_apart(tmp_path: Path) -> None:
    write_veil(tmp_path, {"1": raw(2), "2": private(2)})
    collection = open_collection(tmp_path)
    assert isinstance(collection.read("1"), Features)
    with pytest.raises(InputError, match="raw and private features: keep them apart"):
        collection.read("2")


@pytest.mark.parametrize("write", [write_hloc, write_private])
def test_another_kind_than_was_asked_for(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path / "x.h5")
    assert open_collection(tmp_path / "x.h5", "sift").read("b.jpg").kind == "sift"
    with pytest.raises(InputError, match="are sift, not rootsift") as caught:
        open_collection(tmp_path / "x.h5", "rootsift").read("b.jpg")
    assert "x.h5" in str(caught.value)
    write_private_folder(tmp_path / "folder")
    with pytest.raises(InputError, match=r"'b\.jpg' in .*folder are sift, not rootsift"):
        open_collection(tmp_path / "folder", "rootsift").read("b.jpg")


def test_a_kind_for_files_that_do_not_say_it(tmp_path: Path) -> None:
    write_hloc(tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        del file["b.jpg"].attrs["featveil_kind"]
    with pytest.raises(InputError, match=r"x\.h5.* name their kind"):
        open_collection(tmp_path / "x.h5").read("b.jpg")
    assert open_collection(tmp_path / "x.h5", "superpoint").read("b.jpg").kind == "superpoint"
    write_colmap(tmp_path / "x.db")
    assert open_collection(tmp_path / "x.db", "sift").read("b.jpg").kind == "sift"


@pytest.mark.parametrize("write", [write_hloc, write_private, write_raw_folder])
def test_an_error_names_the_file_once_and_says_why(tmp_path: Path, write: Callable[[Path], None]) -> None:
    path = tmp_path / "features.h5"
    write(path)
    collection = open_collection(path)
    if path.is_dir():
        (path / "b.jpg.veil").write_bytes(b"")
    else:
        with h5py.File(path, "r+") as file:
            del file["b.jpg"]["keypoints"]
    with pytest.raises(FormatError) as caught:
        collection.read("b.jpg")
    assert str(caught.value).count(str(path)) == 1
    assert isinstance(caught.value.__cause__, FeatveilError) and caught.value.__cause__ is not caught.value


def test_nothing_to_read(tmp_path: Path) -> None:
    private_hloc.write(tmp_path / "empty.h5", [])
    write_database(tmp_path / "empty.db", {})
    (tmp_path / "empty").mkdir()
    (tmp_path / "photo.jpg").write_bytes(b"")
    (tmp_path / "text.h5").write_text("text")
    (tmp_path / "text.veil").write_text("text")
    for name, error, message in (
        ("empty.h5", InputError, "holds no image features"),
        ("empty.db", InputError, "holds no images"),
        ("empty", InputError, r"holds no \.veil files"),
        ("photo.jpg", InputError, "holds no features: name an .h5 file"),
        ("missing.h5", InputError, "does not exist"),
        ("missing.db", InputError, "does not exist"),
        ("missing.veil", InputError, "does not exist"),
        ("missing", InputError, "does not exist"),
        ("text.h5", FormatError, "not an HDF5 file"),
        ("text.veil", FormatError, r"not a usable \.veil file"),
    ):
        with pytest.raises(error, match=message) as caught:
            open_collection(tmp_path / name)
        assert name in str(caught.value)
