"""Features of an image and what is known of its camera -> what a map needs of it."""

from dataclasses import dataclass
from pathlib import Path

from featveil.core import Camera, Features, InputError, PrivateFeatures
from featveil.core.arrays import Float32
from featveil.geometry.colmap import from_colmap, pycolmap

_FOCAL = 1.2  # of the longer side: COLMAP's guess for an unknown camera


@dataclass(frozen=True, eq=False)
class MapImage:
    """What mapping needs of an image: keypoints `xy` (n, 2), its camera, and whether that is known or a guess."""

    xy: Float32
    camera: Camera
    known: bool


def map_image(features: Features | PrivateFeatures, camera: Camera | None = None, name: str = "") -> MapImage:
    """Keypoints of `features` with their camera, which is guessed from the image size when it is not given.

    Raises InputError when there are no keypoints, or neither a camera nor an image size.
    """
    xy = positions(features, name)
    if camera is None and features.image_size is None:
        raise InputError(f"neither size nor camera of image {name!r} is known: give its intrinsics")
    if camera is not None:
        check_size(camera, features.image_size, name)
    chosen = camera or guess_camera(features.image_size or (0, 0))
    return MapImage(xy, chosen, camera is not None)


def check_size(camera: Camera, size: tuple[int, int] | None, name: str) -> None:
    """Raise InputError when a camera is for images of another `size` (width, height), where that is known."""
    if size is not None and (camera.width, camera.height) != tuple(size):
        raise InputError(
            f"the camera of {name!r} is for {camera.width} x {camera.height} pixels, and the image has {size[0]} x"
            f" {size[1]}: scale its parameters"
        )


def guess_camera(size: tuple[int, int]) -> Camera:
    """The camera that COLMAP assumes of an image of `size` (width, height) when nothing is known."""
    width, height = size
    return Camera("SIMPLE_RADIAL", width, height, (_FOCAL * max(size), width / 2, height / 2, 0.0))


def camera_from_exif(path: Path) -> Camera | None:
    """The camera that the EXIF data of an image file tell of; None when they do not."""
    try:
        camera = pycolmap().infer_camera_from_image(path)
    except (ValueError, RuntimeError):
        return None
    return from_colmap(camera) if camera.has_prior_focal_length else None


def positions(features: Features | PrivateFeatures, name: str) -> Float32:
    """Where the features of image `name` are, (n, 2). Raises InputError when they have no keypoints."""
    if features.keypoints is None:
        raise InputError(f"the features of image {name!r} have no keypoints, which mapping needs")
    return features.keypoints.xy
