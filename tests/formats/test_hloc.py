"""hloc's features.h5: its conventions, appending, and files that cannot be used."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from featveil.core import Features, FormatError, InputError, Keypoints, Points
from featveil.formats import hloc

N, D = 6, 16


def example(seed: int = 0, full: bool = True) -> Features:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(N, D))
    xy = rng.uniform(0.5, 3000, (N, 2)).astype(np.float32)
    geometry = [rng.uniform(1, 9, N).astype(np.float32) for _ in range(3)] if full else []
    unit = Points(values / np.linalg.norm(values, axis=1, keepdims=True))
    return Features(unit, "sift", Keypoints(xy, *geometry), (4000, 3000) if full else None)


def write_as_hloc(path: Path, name: str, **datasets: Any) -> None:
    """A file as hloc writes it: half precision unless told otherwise."""
    rng = np.random.default_rng(5)
    content: dict[str, Any] = {
        "keypoints": rng.uniform(0, 500, (N, 2)).astype(np.float16),
        "descriptors": rng.uniform(0.1, 1, (D, N)).astype(np.float16),
        "scores": rng.uniform(0, 1, N).astype(np.float16),
        "image_size": np.array([640, 480]),
    }
    with h5py.File(path, "a", libver="latest") as file:
        group = file.create_group(name)
        for key, value in (content | datasets).items():
            if value is not None:
                group.create_dataset(key, data=value)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "features.h5"


def test_writes_hloc_conventions(path: Path) -> None:
    features = example()
    hloc.write_features(path, [("db/one.jpg", features)])
    assert features.keypoints is not None
    with h5py.File(path, "r") as file:
        group = file["db"]["one.jpg"]
        assert group["descriptors"].shape == (D, N)
        assert np.array_equal(group["descriptors"][()].T, features.descriptors.values)
        assert group["keypoints"].dtype == np.float32
        assert np.allclose(group["keypoints"][()], features.keypoints.xy - 0.5, atol=1e-6, rtol=0)
        assert group["keypoints"].attrs["uncertainty"] == 1.0
        assert group["image_size"][()].tolist() == [4000, 3000]
        for ours, theirs in (("scale", "scales"), ("orientation", "oris"), ("response", "scores")):
            assert np.array_equal(group[theirs][()], getattr(features.keypoints, ours))


@pytest.mark.parametrize("full", [True, False])
def test_round_trip(full: bool, path: Path) -> None:
    features = example(full=full)
    hloc.write_features(path, [("a.jpg", features)])
    back = hloc.read(path, "a.jpg", "sift")
    assert back.keypoints is not None
    assert features.keypoints is not None
    assert np.allclose(back.descriptors.values, features.descriptors.values, atol=1e-7, rtol=0)
    assert np.array_equal(back.keypoints.xy, features.keypoints.xy)
    assert back.image_size == features.image_size
    assert back.kind == "sift"
    for name in ("scale", "orientation", "response"):
        ours, theirs = getattr(features.keypoints, name), getattr(back.keypoints, name)
        assert np.array_equal(ours, theirs) if full else theirs is None


def test_reads_half_precision_from_hloc(path: Path) -> None:
    write_as_hloc(path, "q/night/a.jpg")
    ((name, features),) = hloc.read_features(path, "superpoint")
    assert name == "q/night/a.jpg"
    assert features.kind == "superpoint"
    assert features.image_size == (640, 480)
    assert features.keypoints is not None
    assert features.keypoints.response is not None
    assert features.keypoints.scale is None
    assert np.abs(np.linalg.norm(features.descriptors.values, axis=1) - 1).max() < 1e-6
    with h5py.File(path, "r") as file:
        stored = file[name]["keypoints"][()].astype(np.float32)
    assert np.array_equal(features.keypoints.xy, stored + np.float32(0.5))


def test_an_image_without_features(path: Path) -> None:
    empty = Features(Points(np.empty((0, D), np.float32)), "sift", Keypoints(np.empty((0, 2), np.float32)), (9, 9))
    hloc.write_features(path, [("flat.png", empty)])
    assert len(hloc.read(path, "flat.png", "sift")) == 0


def test_appends_and_replaces(path: Path) -> None:
    hloc.write_features(path, [("b.jpg", example(1)), ("a/x.jpg", example(2))])
    hloc.write_features(path, [("c.jpg", example(3)), ("b.jpg", example(4))])
    assert hloc.names(path) == ["a/x.jpg", "b.jpg", "c.jpg"]
    expected = {"a/x.jpg": 2, "b.jpg": 4, "c.jpg": 3}
    for name, features in hloc.read_features(path, "sift"):
        values = example(expected[name]).descriptors.values
        assert np.allclose(features.descriptors.values, values, atol=1e-7, rtol=0)


@pytest.mark.parametrize("existing", [True, False])
def test_interrupted_writing_changes_nothing(existing: bool, path: Path) -> None:
    if existing:
        hloc.write_features(path, [("a.jpg", example())])
    before = path.read_bytes() if existing else None

    def breaks_off() -> Iterator[tuple[str, Features]]:
        yield "a.jpg", example(8)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hloc.write_features(path, breaks_off())
    assert (path.read_bytes() if path.exists() else None) == before
    assert list(path.parent.iterdir()) == ([path] if existing else [])


@pytest.mark.parametrize("name", ["", "/a.jpg", "a//b.jpg", "../a.jpg", "a/./b.jpg", "a\n.jpg", "a/"])
def test_unusable_names_are_refused(name: str, path: Path) -> None:
    with pytest.raises(InputError, match="relative path"):
        hloc.write_features(path, [(name, example())])
    assert not path.exists()


def test_names_that_collide_are_refused(path: Path) -> None:
    hloc.write_features(path, [("a/b.jpg", example())])
    with pytest.raises(InputError, match="is a folder of images"):
        hloc.write_features(path, [("a", example())])
    with pytest.raises(InputError, match="inside the features of another"):
        hloc.write_features(path, [("a/b.jpg/c.jpg", example())])
    with pytest.raises(InputError, match="inside the features of another"):
        hloc.write_features(path, [("a/b.jpg/keypoints", example())])
    assert hloc.names(path) == ["a/b.jpg"]


def test_a_folder_may_be_called_keypoints(path: Path) -> None:
    """It is no image, so others fit in it, and an image of the folder's own name would erase them."""
    for number in (1, 2):
        hloc.write_features(path, [(f"a/keypoints/{number}.jpg", example(number))])
    with pytest.raises(InputError, match="is a folder of images"):
        hloc.write_features(path, [("a", example())])
    assert hloc.names(path) == ["a/keypoints/1.jpg", "a/keypoints/2.jpg"]


def test_features_without_keypoints_are_refused(path: Path) -> None:
    with pytest.raises(InputError, match=r"'a\.jpg' have no keypoints"):
        hloc.write_features(path, [("a.jpg", Features(example().descriptors, "sift"))])


NAN = np.full((D, N), np.nan, np.float32)
ZERO = np.ones((D, N), np.float32) * (np.arange(N) != 2)


@pytest.mark.parametrize(
    ("datasets", "message"),
    [
        ({"descriptors": None}, "dataset descriptors is missing"),
        ({"descriptors": np.ones((N, D))}, "descriptors must have shape"),
        ({"descriptors": np.ones((D, N + 1))}, "descriptors must have shape"),
        ({"descriptors": NAN}, "NaN"),
        ({"descriptors": ZERO}, "descriptor 2 has zero norm"),
        ({"descriptors": np.full((D, N), b"x")}, "does not hold numbers"),
        ({"keypoints": np.ones((N, 4))}, "keypoints must have shape"),
        ({"keypoints": np.full((N, 2), np.inf)}, "NaN, infinite"),
        ({"scores": np.ones(N - 1)}, "keypoint response must have shape"),
        ({"image_size": np.array([640])}, "image_size must have shape"),
        ({"image_size": np.array([0, 480])}, "image size must be"),
        ({"keypoints": h5py.Empty("f")}, "does not hold numbers"),
    ],
)
def test_unusable_content_names_the_image(datasets: dict[str, Any], message: str, path: Path) -> None:
    write_as_hloc(path, "db/bad.jpg", **datasets)
    with pytest.raises(FormatError, match=message) as caught:
        hloc.read(path, "db/bad.jpg", "sift")
    assert "'db/bad.jpg'" in str(caught.value)
    with pytest.raises(FormatError, match=message):
        list(hloc.read_features(path, "sift"))


def test_a_claimed_size_is_not_allocated(path: Path) -> None:
    write_as_hloc(path, "a.jpg", descriptors=None)
    with h5py.File(path, "a") as file:
        file["a.jpg"].create_dataset("descriptors", shape=(10**9, N), chunks=(1000, N), dtype="f4")
    with pytest.raises(FormatError, match="too large"):
        hloc.read(path, "a.jpg", "sift")


def test_links_out_of_the_file_are_not_followed(path: Path) -> None:
    other = path.with_name("other.h5")
    write_as_hloc(other, "secret.jpg")
    write_as_hloc(path, "a.jpg", descriptors=None)
    with h5py.File(path, "a") as file:
        file["linked.jpg"] = h5py.ExternalLink(str(other), "/secret.jpg")
        file["a.jpg"]["descriptors"] = h5py.ExternalLink(str(other), "/secret.jpg/descriptors")
    assert hloc.names(path) == ["a.jpg"]
    with pytest.raises(InputError, match="no features of image"):
        hloc.read(path, "linked.jpg", "sift")
    with pytest.raises(FormatError, match="descriptors is missing"):
        hloc.read(path, "a.jpg", "sift")


def test_unusable_files(path: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        hloc.names(path)
    with pytest.raises(InputError, match="is a folder"):
        hloc.names(tmp_path)
    path.write_text("not HDF5")
    for use in (
        lambda: hloc.names(path),
        lambda: hloc.read(path, "a.jpg", "sift"),
        lambda: hloc.write_features(path, [("a.jpg", example())]),
    ):
        with pytest.raises(FormatError, match="is not an HDF5 file"):
            use()
    assert path.read_text() == "not HDF5"


def test_cut_off_file(path: Path) -> None:
    hloc.write_features(path, [("a.jpg", example())])
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(FormatError, match="damaged HDF5"):
        hloc.names(path)


@pytest.mark.parametrize("name", ["b.jpg", "", "a.jpg/keypoints", "a.jpg/", "../a.jpg"])
def test_unknown_image(name: str, path: Path) -> None:
    hloc.write_features(path, [("a.jpg", example())])
    with pytest.raises(InputError, match="no features of image"):
        hloc.read(path, name, "sift")


def test_name_that_climbs_out_of_a_folder(path: Path) -> None:
    write_as_hloc(path, "../a.jpg")
    with pytest.raises(FormatError, match="not a relative path"):
        hloc.names(path)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="needs a user who may not read everything")
def test_unreadable_file(path: Path) -> None:
    hloc.write_features(path, [("a.jpg", example())])
    path.chmod(0)
    with pytest.raises(InputError, match="cannot open"):
        hloc.names(path)
