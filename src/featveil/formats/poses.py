"""hloc's text files of poses (`name qw qx qy qz tx ty tz`) and of queries with cameras (`name MODEL w h params...`)."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from featveil.core import Camera, InputError, Pose
from featveil.core.arrays import Float64
from featveil.formats.camera_models import check_model
from featveil.formats.lists import bad_line, read_entries, write_entries

_POSE = "a pose: it needs a name without spaces, a unit quaternion qw qx qy qz and tx ty tz"
_QUERY = "a query: it needs a name without spaces, a camera model, width, height and its parameters"
_UNIT_TOLERANCE = 1e-3


def write_poses(path: str | Path, poses: Mapping[str, Pose]) -> None:
    """Write each pose, as `cam_from_world`, on a line. Raises InputError for a name with a space."""
    write_entries(
        path, ((name, *_quaternion(pose.rotation), *pose.translation.tolist()) for name, pose in poses.items())
    )


def read_poses(path: str | Path) -> dict[str, Pose]:
    """Poses by image name. Raises InputError if the file cannot be read and FormatError, with the line, if wrong."""
    poses: dict[str, Pose] = {}
    for number, name, words in _named(path, poses, _POSE):
        try:
            values = np.array([float(word) for word in words])
            if len(values) != 7 or not abs(np.linalg.norm(values[:4]) - 1) <= _UNIT_TOLERANCE:
                raise InputError(_POSE)
            poses[name] = Pose(_rotation(values[:4]), values[4:])
        except ValueError:  # InputError is one
            bad_line(path, number, _POSE)
    return poses


def write_queries(path: str | Path, cameras: Mapping[str, Camera]) -> None:
    """Write each image and its camera on a line. Raises InputError for a name with a space."""
    entries = (
        (name, camera.model, camera.width, camera.height, *camera.parameters) for name, camera in cameras.items()
    )
    write_entries(path, entries)


def read_queries(path: str | Path) -> dict[str, Camera]:
    """Cameras by image name. Raises InputError if the file cannot be read and FormatError, with the line, if wrong."""
    cameras: dict[str, Camera] = {}
    for number, name, words in _named(path, cameras, _QUERY):
        try:
            model, width, height, *parameters = words
            camera = Camera(model, int(width), int(height), tuple(map(float, parameters)))
            check_model(model, len(parameters))
        except InputError as error:
            bad_line(path, number, f"a query: {error}")
        except ValueError:
            bad_line(path, number, _QUERY)
        cameras[name] = camera
    return cameras


def _named(path: str | Path, known: Mapping[str, object], expected: str) -> Iterator[tuple[int, str, list[str]]]:
    """Line numbers, names and the other words; `found` has the names of earlier lines."""
    for number, (name, *words) in read_entries(path):
        if name in known:
            bad_line(path, number, f"{expected.partition(':')[0]} of another image than before")
        yield number, name, words


def _quaternion(rotation: Float64) -> list[float]:
    """(w, x, y, z) with w >= 0."""
    from scipy.spatial.transform import Rotation

    x, y, z, w = Rotation.from_matrix(rotation).as_quat(canonical=True).tolist()
    return [w, x, y, z]


def _rotation(quaternion: Float64) -> Float64:
    from scipy.spatial.transform import Rotation

    return np.asarray(Rotation.from_quat(np.roll(quaternion, -1)).as_matrix())
