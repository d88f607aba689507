"""The one door to pycolmap: loads it safely, or says which extra to install."""

import zlib  # noqa: F401  pycolmap 4.2 corrupts the heap of whatever loads zlib after it
from typing import Any

from featveil.core import Camera, InputError, MissingExtraError, Pose

Pycolmap = Any

_loaded: Pycolmap | None = None


def pycolmap() -> Pycolmap:
    """The module, with its log silenced: errors come as exceptions. Raises MissingExtraError when not installed."""
    global _loaded
    if _loaded is None:
        try:
            import pycolmap as module
        except ImportError as error:
            raise MissingExtraError("pycolmap", "colmap") from error
        module.logging.minloglevel = int(module.logging.FATAL)
        _loaded = module
    return _loaded


def random_seed(seed: int | None) -> int:
    """A seed as COLMAP takes it; without one it draws anew each time."""
    return -1 if seed is None else seed % 2**31


def to_colmap(camera: Camera, camera_id: int = 1, known: bool = True) -> Any:
    """A pycolmap camera; `known` intrinsics are a prior that bundle adjustment may keep.

    Raises InputError for a model that COLMAP does not have or a wrong number of parameters.
    """
    module = pycolmap()
    if camera.model not in module.CameraModelId.__members__ or camera.model == "INVALID":
        raise InputError(f"COLMAP has no camera model {camera.model}: use one such as PINHOLE or SIMPLE_RADIAL")
    converted = module.Camera(
        model=camera.model,
        width=camera.width,
        height=camera.height,
        params=list(camera.parameters),
        camera_id=camera_id,
    )
    if not converted.verify_params():
        raise InputError(f"{camera.model} does not take {len(camera.parameters)} parameters")
    converted.has_prior_focal_length = known
    return converted


def from_colmap(camera: Any) -> Camera:
    """The camera as a value."""
    parameters = tuple(float(value) for value in camera.params)
    return Camera(camera.model_name, int(camera.width), int(camera.height), parameters)


def rigid(pose: Pose) -> Any:
    """The pose as pycolmap has it."""
    module = pycolmap()
    return module.Rigid3d(module.Rotation3d(pose.rotation), pose.translation)


def pose_of(transform: Any) -> Pose:
    """A pose from pycolmap's `cam_from_world`."""
    matrix = transform.matrix()
    return Pose(matrix[:, :3], matrix[:, 3])
