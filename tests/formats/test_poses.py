"""Poses and queries: text files of hloc."""

from pathlib import Path

import numpy as np
import pytest

from featveil.core import Camera, FormatError, Pose
from featveil.formats.camera_models import PARAMETERS
from featveil.formats.poses import read_queries, write_poses
from hloc_lists import read_poses, write_queries
from posed_scenes import random_pose


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "list.txt"


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
    turn = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    write_poses(path, {"a.jpg": Pose(turn, np.array([1.0, 2.0, 3.0]))})
    assert np.allclose([float(word) for word in path.read_text().split()[1:]], [half, 0, 0, half, 1, 2, 3])


def test_comments_count_as_lines(path: Path) -> None:
    path.write_text("# name MODEL\n\na.jpg SECRET 640 480 500\n")
    with pytest.raises(FormatError, match="line 3 of") as caught:
        read_queries(path)
    assert "SECRET" not in str(caught.value)


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
        ("a.jpg SIMPLE_PINHOLE 640 480 500 320 wide", "camera model, width, height"),
        ("a.jpg simple_pinhole 640 480 500 320 240", "a name such as SIMPLE_RADIAL"),
        ("a.jpg SIMPLE_PINHOLE 640 480", "finite"),
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
