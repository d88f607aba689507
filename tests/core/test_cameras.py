"""Cameras and poses as values."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from featveil.core import Camera, InputError, Pose


def test_equal_cameras_are_one_key() -> None:
    cameras = [Camera("PINHOLE", 640, 480, (500.0, 500.0, 320.0, 240.0)) for _ in range(2)]
    assert len(set(cameras)) == 1
    assert cameras[0] != dataclasses.replace(cameras[0], width=641)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": ""}, "a camera model is a name"),
        ({"model": "_"}, "a camera model is a name"),
        ({"model": "pinhole"}, "got 'pinhole'"),
        ({"model": "PIN HOLE"}, "a camera model is a name"),
        ({"model": "PINHÖLE"}, "a camera model is a name"),
        ({"width": 0}, r"image size .* got \(0, 480\)"),
        ({"height": -1}, "image size"),
        ({"height": 2**24 + 1}, "image size"),
        ({"parameters": ()}, "1 to 32 finite numbers"),
        ({"parameters": (1.0,) * 33}, "1 to 32 finite numbers"),
        ({"parameters": (1.0, float("nan"))}, "finite"),
        ({"parameters": (float("inf"),)}, "finite"),
    ],
)
def test_cameras_that_cannot_be(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dataclasses.replace(Camera("SIMPLE_RADIAL_FISHEYE", 640, 480, (500.0,)), **fields)


def test_a_camera_sees_itself_at_the_origin() -> None:
    quarter = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    pose = Pose(quarter, np.array([1.0, 2.0, 3.0]))
    assert pose.centre.tolist() == [-2, 1, -3]
    assert (pose.rotation @ pose.centre + pose.translation).tolist() == [0, 0, 0]


def test_poses_are_copied_and_read_only() -> None:
    translation = np.zeros(3)
    pose = Pose(np.eye(3, dtype=np.float32).astype(np.float64), translation)
    translation[0] = 5
    assert pose.translation.tolist() == [0, 0, 0]
    for values in (pose.rotation, pose.translation):
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 1


@pytest.mark.parametrize(
    ("rotation", "translation", "message"),
    [
        (np.eye(2), np.zeros(3), r"rotation must have shape \(3, 3\)"),
        (np.eye(3), np.zeros((3, 1)), r"translation must have shape \(3\)"),
        (np.eye(3), np.array([0, 0, np.inf]), "translation holds NaN"),
        (np.full((3, 3), np.nan), np.zeros(3), "rotation holds NaN"),
        (1.01 * np.eye(3), np.zeros(3), "orthonormal rows"),
        (np.diag([1.0, 1.0, -1.0]), np.zeros(3), "determinant 1"),
        (np.zeros((3, 3)), np.zeros(3), "orthonormal rows"),
        (np.ones((3, 3), complex), np.zeros(3), "real numbers"),
    ],
)
def test_poses_that_cannot_be(rotation: Any, translation: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Pose(rotation, translation)


def test_a_rotation_of_few_digits() -> None:
    """Files round; a thousandth is forgiven."""
    rounded = np.array([[0.866, -0.5, 0.0], [0.5, 0.866, 0.0], [0.0, 0.0, 1.0]])
    assert np.array_equal(Pose(rounded, np.zeros(3)).rotation, rounded)
