"""hloc's text files: poses are written (`name qw qx qy qz tx ty tz`), queries read (`name MODEL w h params...`)."""

from collections.abc import Mapping
from pathlib import Path

from featveil.core import Camera, InputError, Pose
from featveil.core.arrays import Float64
from featveil.formats.camera_models import check_model
from featveil.formats.lists import bad_line, read_entries, write_entries

_QUERY = "a query: it needs a name without spaces, a camera model, width, height and its parameters"


def write_poses(path: str | Path, poses: Mapping[str, Pose]) -> None:
    """Write each pose, as `cam_from_world`, on a line. Raises InputError for a name with a space."""
    write_entries(
        path, ((name, *_quaternion(pose.rotation), *pose.translation.tolist()) for name, pose in poses.items())
    )


def read_queries(path: str | Path) -> dict[str, Camera]:
    """Cameras by image name. Raises InputError if the file cannot be read and FormatError, with the line, if wrong."""
    cameras: dict[str, Camera] = {}
    for number, (name, *words) in read_entries(path):
        if name in cameras:
            bad_line(path, number, "a query of another image than before")
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


def _quaternion(rotation: Float64) -> list[float]:
    """(w, x, y, z) with w >= 0."""
    from scipy.spatial.transform import Rotation

    x, y, z, w = Rotation.from_matrix(rotation).as_quat(canonical=True).tolist()
    return [w, x, y, z]
