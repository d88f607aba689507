"""The multi-view scenes of Strecha et al. (CVPR 2008) with true cameras: fountain-P11, castle-P30 and the like.

    scene/images/0000.jpg ...
    scene/cameras.json          {"0000.jpg": {"K": 3 x 3, "R_world_to_cam": 3 x 3, "t_world_to_cam": 3,
                                              "width": pixels, "height": pixels}, ...}    x = K (R X + t), metres

The file counts pixels from the centre of the first one (0, 0); our cameras have it at (0.5, 0.5). The principal points
here are converted.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from featveil.core import Camera, DatasetError, InputError, Pose
from featveil.core.arrays import Float64, floats
from featveil.datasets.scenes import MapScene
from featveil.extractors import image_files

CAMERAS = "cameras.json"

_LARGEST_TEXT = 2**26


def load_strecha(folder: str | Path) -> list[MapScene]:
    """The scene in `folder`, or the scenes in the folders within, sorted by name. Images are not read yet.

    Raises DatasetError when there is no scene, an image has no camera, or a camera cannot be used.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DatasetError(f"{folder} is not a folder: name a scene, or the folder that holds the scenes")
    folders = _folders(folder)
    if not folders:
        raise DatasetError(f"no scene in {folder}: expected {CAMERAS} there or one folder below")
    return [_scene(path) for path in folders]


def has_strecha(folder: str | Path) -> bool:
    """Whether `folder` is a scene of this layout or holds some; nothing is read."""
    return bool(_folders(Path(folder)))


def _folders(folder: Path) -> list[Path]:
    if (folder / CAMERAS).is_file():
        return [folder]
    return sorted(path.parent for path in folder.glob(f"*/{CAMERAS}") if path.is_file())


def _scene(folder: Path) -> MapScene:
    entries = _entries(folder / CAMERAS)
    images = _images(folder / "images")
    bare = sorted(images.keys() - entries.keys())
    if bare:
        raise DatasetError(
            f"image {bare[0]} has no camera in {folder / CAMERAS}: {len(bare)} of {len(images)} lack one"
        )
    cameras, poses = {}, {}
    for name in images:
        try:
            cameras[name], poses[name] = _camera(entries[name])
        except InputError as error:
            raise DatasetError(f"the camera of {name} in {folder / CAMERAS} cannot be used: {error}") from error
    return MapScene(folder.resolve().name, images, cameras, poses)


def _images(folder: Path) -> dict[str, Path]:
    try:
        return {path.relative_to(folder).as_posix(): path for path in image_files(folder)}
    except InputError as error:
        raise DatasetError(f"a scene keeps its images in a folder of that name: {error}") from error


def _entries(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _LARGEST_TEXT:
            raise DatasetError(f"{path} is larger than {_LARGEST_TEXT >> 20} MB: this is no list of cameras")
        entries = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DatasetError(f"cannot read {path}: expected JSON with one camera for each image name") from error
    if not isinstance(entries, dict):
        raise DatasetError(f"{path} must map image names to cameras, got a {type(entries).__name__}")
    return entries


def _camera(entry: object) -> tuple[Camera, Pose]:
    """Camera and pose of one entry of the file; raises InputError when one is missing or cannot be."""
    if not isinstance(entry, dict):
        raise InputError(f"expected an object, got a {type(entry).__name__}")
    missing = [key for key in ("K", "R_world_to_cam", "t_world_to_cam", "width", "height") if key not in entry]
    if missing:
        raise InputError(f"it lacks {', '.join(missing)}")
    intrinsics: Float64 = floats("K", entry["K"], (3, 3), np.float64)
    width, height = entry["width"], entry["height"]
    if type(width) is not int or type(height) is not int:
        raise InputError(f"width and height must be whole numbers, got {width!r} and {height!r}")
    (focal_x, skew, centre_x), (below, focal_y, centre_y) = intrinsics[:2].tolist()
    if skew != 0 or below != 0 or intrinsics[2].tolist() != [0, 0, 1] or not (focal_x > 0 and focal_y > 0):
        raise InputError("K must be [[fx, 0, cx], [0, fy, cy], [0, 0, 1]] with positive focal lengths")
    camera = Camera("PINHOLE", width, height, (focal_x, focal_y, centre_x + 0.5, centre_y + 0.5))
    return camera, Pose(entry["R_world_to_cam"], entry["t_world_to_cam"])
