"""The private file: what hloc and featveil read of it, what it refuses, and what never stays in it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from featveil.core import (
    Features,
    FormatError,
    Guarantee,
    InputError,
    Keypoints,
    Points,
    PrivacyError,
    PrivateFeatures,
    WordSets,
)
from featveil.formats import hloc, private_hloc, veil

N = 5


def released(seed: int = 0, keypoints: bool = True) -> PrivateFeatures:
    rng = np.random.default_rng(seed)
    words = np.sort(np.stack([rng.choice(1000, 3, replace=False) for _ in range(N)]), axis=1)
    xy = Keypoints(rng.uniform(0.5, 3000, (N, 2)).astype(np.float32)) if keypoints else None
    guarantee = Guarantee("local-dp", 2.0)
    return PrivateFeatures(WordSets(words, "0" * 64, 1000), "sift", {"name": "subset"}, guarantee, xy, (4000, 3000))


def raw() -> Features:
    rng = np.random.default_rng(9)
    values, xy = rng.normal(size=(N, 8)).astype(np.float32), rng.uniform(0, 9, (N, 2)).astype(np.float32)
    return Features(Points(values), "sift", Keypoints(xy))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "private.h5"


def test_what_hloc_reads(path: Path) -> None:
    private = released()
    private_hloc.write(path, [("db/1.jpg", private)])
    assert private.keypoints is not None
    with h5py.File(path, "r") as file:
        group = file["db/1.jpg"]
        assert set(group) == {"keypoints", "image_size", "veil"}
        assert group["keypoints"].dtype == np.float32 and group["keypoints"].attrs["uncertainty"] == 1.0
        assert np.allclose(group["keypoints"][()], private.keypoints.xy - 0.5, atol=1e-6, rtol=0)
        assert group["image_size"][()].tolist() == [4000, 3000]
        assert group["veil"][()].tobytes() == veil.encode(private)
    assert hloc.names(path) == ["db/1.jpg"]


def test_round_trip_adding_and_replacing(path: Path) -> None:
    private_hloc.write(path, [("b.jpg", released(1)), ("a/x.jpg", released(2))])
    private_hloc.write(path, [("c.jpg", released(3)), ("b.jpg", released(4))])
    assert private_hloc.is_private(path)
    assert private_hloc.names(path) == ["a/x.jpg", "b.jpg", "c.jpg"]
    for name, seed in {"a/x.jpg": 2, "b.jpg": 4, "c.jpg": 3}.items():
        assert veil.encode(private_hloc.read(path, name)) == veil.encode(released(seed))


def test_a_replaced_release_leaves_no_byte_behind(path: Path) -> None:
    """Whoever receives the file must not get two releases of one image."""
    old, kept = veil.encode(released(1)), veil.encode(released(2))
    private_hloc.write(path, [("b.jpg", released(1)), ("a.jpg", released(2))])
    assert old in path.read_bytes()
    private_hloc.write(path, [("b.jpg", released(3))])
    assert old[-60:] not in path.read_bytes() and kept in path.read_bytes()


def test_interrupted_writing_changes_nothing(path: Path) -> None:
    private_hloc.write(path, [("a.jpg", released())])
    before = path.read_bytes()

    def breaks_off() -> Iterator[tuple[str, PrivateFeatures]]:
        yield "b.jpg", released(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        private_hloc.write(path, breaks_off())
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_raw_features_never_enter(path: Path) -> None:
    items: Any = [("a.jpg", released()), ("b.jpg", raw())]
    with pytest.raises(PrivacyError, match=r"'b\.jpg' are raw"):
        private_hloc.write(path, items)
    nothing_hidden = PrivateFeatures(
        raw().descriptors, "sift", {"name": "identity"}, Guarantee("none"), raw().keypoints
    )
    with pytest.raises(PrivacyError, match="hide nothing"):
        private_hloc.write(path, [("a.jpg", nothing_hidden)])
    assert not path.exists()


def test_a_file_with_other_content_is_neither_added_to_nor_private(path: Path) -> None:
    hloc.write_features(path, [("raw.jpg", raw())])
    before = path.read_bytes()
    assert not private_hloc.is_private(path)
    for use in (lambda: private_hloc.names(path), lambda: private_hloc.write(path, [("a.jpg", released())])):
        with pytest.raises(InputError, match="does not hold private features"):
            use()
    with pytest.raises(InputError, match="no private features of image"):
        private_hloc.read(path, "raw.jpg")
    assert path.read_bytes() == before


@pytest.mark.parametrize("where", ["a.jpg/descriptors", "b.jpg/descriptors", "b.jpg/keypoints", "keypoints", "x"])
def test_raw_data_beside_private_ones_is_pointed_out(path: Path, where: str) -> None:
    private_hloc.write(path, [("a.jpg", released())])
    with h5py.File(path, "r+") as file:
        file.create_dataset(where, data=np.ones((8, N)))
    for use in (private_hloc.is_private, private_hloc.names):
        with pytest.raises(FormatError, match="more than private features"):
            use(path)


def test_an_empty_file(path: Path) -> None:
    private_hloc.write(path, [])
    assert private_hloc.names(path) == [] and not private_hloc.is_private(path)
    private_hloc.write(path, [("a.jpg", released())])
    assert private_hloc.names(path) == ["a.jpg"]


def test_unusable_items(path: Path) -> None:
    with pytest.raises(InputError, match="no keypoints"):
        private_hloc.write(path, [("a.jpg", released(keypoints=False))])
    with pytest.raises(InputError, match="comes twice"):
        private_hloc.write(path, [("a.jpg", released()), ("a.jpg", released(1))])
    with pytest.raises(InputError, match="inside the features of another"):
        private_hloc.write(path, [("a", released()), ("a/b", released(1))])
    for name in ("../a", "/a", "", "a//b"):
        with pytest.raises(InputError, match="relative path"):
            private_hloc.write(path, [(name, released())])
        with pytest.raises(InputError, match="relative path"):
            private_hloc.check_names([name])
    assert not path.exists()


def test_names_that_fit_one_file() -> None:
    private_hloc.check_names(["a/b.jpg", "a/c.jpg", "a.jpg", "veil"])
    for names in (["a", "a/b"], ["a/b/c", "a/b", "x"], ["a/keypoints"], ["a/veil"]):
        with pytest.raises(InputError, match="inside the features of another"):
            private_hloc.check_names(names)


def _change(path: Path, name: str, data: Any) -> None:
    with h5py.File(path, "r+") as file:
        del file["a.jpg"][name]
        if data is not None:
            file["a.jpg"].create_dataset(name, data=data)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("veil", np.frombuffer(veil.encode(released())[:-9], np.uint8), "tensors"),
        ("veil", np.frombuffer(veil.encode(raw()), np.uint8), "they are raw"),
        ("veil", np.zeros((3, 3), np.uint8), "row of bytes"),
        ("veil", np.frombuffer(veil.encode(released()), np.int8), "row of bytes"),
        ("veil", np.array([b"x"]), "does not hold numbers"),
        ("veil", np.zeros(0, np.uint8), "cut off"),
        ("keypoints", np.zeros((N, 2), np.float32), "not those that were released"),
        ("keypoints", np.zeros((N - 1, 2), np.float32), "not those that were released"),
        ("keypoints", None, "keypoints is missing"),
    ],
)
def test_changed_content_is_refused(path: Path, name: str, data: Any, message: str) -> None:
    private_hloc.write(path, [("a.jpg", released())])
    private_hloc.read(path, "a.jpg")
    _change(path, name, data)
    with pytest.raises(FormatError, match=message) as caught:
        private_hloc.read(path, "a.jpg")
    assert "'a.jpg'" in str(caught.value) and str(path) in str(caught.value)


def test_links_out_of_the_file_are_not_followed(path: Path) -> None:
    other = path.with_name("other.h5")
    private_hloc.write(other, [("secret.jpg", released())])
    private_hloc.write(path, [("a.jpg", released(1))])
    with h5py.File(path, "r+") as file:
        file["linked.jpg"] = h5py.ExternalLink(str(other), "/secret.jpg")
    assert private_hloc.names(path) == ["a.jpg"]
    with pytest.raises(InputError, match="no private features"):
        private_hloc.read(path, "linked.jpg")


def test_unusable_files(path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        private_hloc.names(path)
    path.write_text("text")
    for use in (
        lambda: private_hloc.names(path),
        lambda: private_hloc.is_private(path),
        lambda: private_hloc.read(path, "a.jpg"),
        lambda: private_hloc.write(path, [("a.jpg", released())]),
    ):
        with pytest.raises(FormatError, match="not an HDF5 file"):
            use()
    assert path.read_text() == "text"
