"""Photographs of one place without poses: any folder of images, with `images_K.txt` beside it where it is known.

    scene/images/*.jpg         or scene/mapping/*.jpg, or the photographs right in the folder
    scene/images_K.txt         nine numbers: the calibration matrix (3, 3) of all images at full size

The principal point of such a file is half the full size, so a smaller copy of the photographs is scaled to it.
"""

from pathlib import Path

from featveil.core import Camera, DatasetError, InputError
from featveil.core.arrays import Float64
from featveil.datasets.matrices import read_matrix
from featveil.datasets.scenes import MapScene
from featveil.extractors import image_files, read_image

CALIBRATION = "images_K.txt"

_PLACES = ("images", "mapping")
_SAME_SHAPE = 0.02  # by which the sides' scales may differ: the principal point is only about the middle


def load_photos(folder: str | Path) -> MapScene:
    """The photographs in `folder`, or in its folder `images` or `mapping`, named relative to that; no poses.

    Where there is a calibration file each image gets its PINHOLE camera, else none has one. Raises DatasetError when
    there is no image, or the calibration or an image that needs it is damaged, or it is not of these images.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DatasetError(f"{folder} is not a folder: name one that holds photographs")
    place = next((folder / name for name in _PLACES if (folder / name).is_dir()), folder)
    within = sorted(path.parent.name for name in _PLACES for path in folder.glob(f"*/{name}") if path.is_dir())
    if place == folder and within:
        raise DatasetError(f"{folder} holds several scenes: name one of them, such as {within[0]}")
    try:
        images = {path.relative_to(place).as_posix(): path for path in image_files(place)}
    except InputError as error:
        raise DatasetError(str(error)) from error
    scene = folder.resolve()
    if scene.name in _PLACES:
        scene = scene.parent
    calibration = next((path for path in (folder / CALIBRATION, scene / CALIBRATION) if path.is_file()), None)
    cameras = {} if calibration is None else _cameras(images, calibration)
    return MapScene(scene.name, images, cameras, {})


def _cameras(images: dict[str, Path], calibration: Path) -> dict[str, Camera]:
    """The camera of each image, from the calibration at full size."""
    full = _matrix(calibration)
    focal_x, focal_y, centre_x, centre_y = full[0, 0], full[1, 1], full[0, 2], full[1, 2]
    cameras: dict[str, Camera] = {}
    for name, path in images.items():
        try:
            height, width = read_image(path).shape[:2]
        except InputError as error:
            raise DatasetError(str(error)) from error
        scale_x, scale_y = width / (2 * centre_x), height / (2 * centre_y)
        if abs(scale_x / scale_y - 1) > _SAME_SHAPE:
            raise DatasetError(
                f"{calibration} is of images of about {2 * centre_x:.0f} x {2 * centre_y:.0f} pixels, and {name} with"
                f" {width} x {height} has another shape: remove the file or the image"
            )
        parameters = (focal_x * scale_x, focal_y * scale_y, width / 2, height / 2)
        cameras[name] = Camera("PINHOLE", width, height, tuple(float(value) for value in parameters))
    return cameras


def _matrix(path: Path) -> Float64:
    """The (3, 3) calibration matrix of a file, with positive focal lengths and principal point."""
    matrix = read_matrix(path)
    off = [matrix[0, 1], matrix[1, 0], *matrix[2] - [0, 0, 1]]
    if any(off) or min(matrix[0, 0], matrix[1, 1], matrix[0, 2], matrix[1, 2]) <= 0:
        raise DatasetError(f"{path} must hold fx 0 cx, 0 fy cy, 0 0 1 with positive numbers")
    return matrix
