"""Pairs, poses and queries: text files of hloc."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from featveil.core import Camera, FormatError, InputError, Pose
from featveil.formats.camera_models import PARAMETERS
from featveil.formats.pairs import read_pairs, write_pairs
from featveil.formats.poses import read_poses, read_queries, write_poses, write_queries


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "list.txt"


def test_pairs_once_in_their_order(path: Path) -> None:
    path.write_text("\ufeff# query reference\nq/1.jpg db/2.jpg\r\n\n  b a\na b\nq/1.jpg  db/2.jpg\n#x y z\nc a")
    assert read_pairs(path) == [("q/1.jpg", "db/2.jpg"), ("b", "a"), ("c", "a")]


def test_pairs_round_trip(path: Path) -> None:
    pairs = [("q/1.jpg", "db/ä.jpg"), ("b#", "a")]
    write_pairs(path, pairs)
    assert path.read_text("utf-8") == "q/1.jpg db/ä.jpg\nb# a\n"
    assert read_pairs(path) == pairs


@pytest.mark.parametrize(
    ("line", "message"), [("a", "two image names"), ("a b c", "may not contain spaces"), ("a a", "one image twice")]
)
def test_a_wrong_pair_is_named_by_its_line(path: Path, line: str, message: str) -> None:
    path.write_text(f"# first\nx y\n{line}\n")
    with pytest.raises(FormatError, match=f"line 3 of .*{message}"):
        read_pairs(path)


@pytest.mark.parametrize("name", ["a b", "", "a\n", "\x1b[2J", "#a"])
def test_names_that_do_not_fit_are_not_written(path: Path, name: str) -> None:
    path.write_text("as before")
    writes: list[Callable[[], None]] = [
        lambda: write_pairs(path, [("x", "y"), (name, "z")]),
        lambda: write_poses(path, {name: Pose(np.eye(3), np.zeros(3))}),
        lambda: write_queries(path, {name: Camera("SIMPLE_PINHOLE", 4, 3, (1.0, 2.0, 1.5))}),
    ]
    for write in writes:
        with pytest.raises(InputError, match="rename the image"):
            write()
    assert path.read_text() == "as before"


def test_files_that_are_no_lists(path: Path) -> None:
    for read in (read_pairs, read_poses, read_queries):
        with pytest.raises(InputError, match="does not exist"):
            read(path)
        with pytest.raises(InputError, match="is a folder"):
            read(path.parent)
    path.write_bytes(b"a \xff\n")
    for read in (read_pairs, read_poses, read_queries):
        with pytest.raises(FormatError, match="not a text file"):
            read(path)


def random_pose(rng: np.random.Generator) -> Pose:
    rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    return Pose(rotation * np.sign(np.linalg.det(rotation)), rng.normal(size=3))


def test_poses_round_trip(path: Path) -> None:
    rng = np.random.default_rng(0)
    poses = {f"q/{index}.jpg": random_pose(rng) for index in range(20)}
    poses["half"] = Pose(np.diag([1.0, -1.0, -1.0]), np.array([1.0, 2.0, 3.0]))
    write_poses(path, poses)
    back = read_poses(path)
    assert list(back) == list(poses)
    for name, pose in poses.items():
        assert np.allclose(back[name].rotation, pose.rotation, atol=1e-12)
        assert np.array_equal(back[name].translation, pose.translation)


def test_a_pose_is_a_quaternion_of_the_world_seen_by_the_camera(path: Path) -> None:
    """A quarter turn about z takes x to y: w = cos 45 degrees, z = sin 45 degrees."""
    half = np.sqrt(0.5)
    path.write_text(f"a.jpg {half} 0 0 {half} 1 2 3\n")
    pose = read_poses(path)["a.jpg"]
    assert np.allclose(pose.rotation @ [1, 0, 0], [0, 1, 0])
    assert np.allclose(pose.translation, [1, 2, 3])
    write_poses(path, {"a.jpg": pose})
    assert np.allclose([float(word) for word in path.read_text().split()[1:]], [half, 0, 0, half, 1, 2, 3])


@pytest.mark.parametrize(
    "line",
    [
        "a.jpg 1 0 0 0 1 2",
        "a.jpg 1 0 0 0 1 2 3 4",
        "a b.jpg 1 0 0 0 1 2 3",
        "a.jpg 1 0 0 one 1 2 3",
        "a.jpg 0 0 0 0 1 2 3",
        "a.jpg 2 0 0 0 1 2 3",
        "a.jpg nan 0 0 0 1 2 3",
        "a.jpg 1 0 0 0 inf 2 3",
        "first.jpg 1 0 0 0 1 2 3",
    ],
)
def test_wrong_poses(path: Path, line: str) -> None:
    path.write_text(f"first.jpg 1 0 0 0 0 0 0\n{line}\n")
    with pytest.raises(FormatError, match=r"line 2 of .* is not a pose"):
        read_poses(path)


def test_queries_round_trip(path: Path) -> None:
    cameras = {
        f"q/{model}.jpg": Camera(model, 640, 480, tuple(0.1 * index for index in range(count)))
        for model, count in PARAMETERS.items()
    }
    write_queries(path, cameras)
    assert path.read_text().splitlines()[0] == "q/SIMPLE_PINHOLE.jpg SIMPLE_PINHOLE 640 480 0.0 0.1 0.2"
    assert read_queries(path) == cameras


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a.jpg", "camera model, width, height"),
        ("a.jpg SIMPLE_PINHOLE 640 480 500 320", "has 3 parameters, got 2"),
        ("a.jpg SIMPLE_PINHOLE 640.5 480 500 320 240", "camera model, width, height"),
        ("a.jpg SIMPLE_PINHOLE 0 480 500 320 240", "image size"),
        ("a.jpg SIMPLE_PINHOLE 640 480 500 320 nan", "finite"),
        ("a.jpg MY_CAMERA 640 480 500 320 240", "no such camera model"),
        ("a b.jpg SIMPLE_PINHOLE 640 480 500 320 240", "line 2"),
        ("first.jpg SIMPLE_PINHOLE 640 480 500 320 240", "another image than before"),
    ],
)
def test_wrong_queries(path: Path, line: str, message: str) -> None:
    path.write_text(f"first.jpg PINHOLE 640 480 500 500 320 240\n{line}\n")
    with pytest.raises(FormatError, match=message) as caught:
        read_queries(path)
    assert "line 2 of" in str(caught.value)
