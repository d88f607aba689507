"""Cameras and where they stand, in COLMAP's conventions."""

import math
from dataclasses import dataclass

import numpy as np

from featveil.core.arrays import Float64, floats
from featveil.core.errors import InputError

_TOLERANCE = 1e-3
_LARGEST_SIDE = 2**24
_MOST_PARAMETERS = 32


@dataclass(frozen=True)
class Camera:
    """Intrinsics: the name of one of COLMAP's camera models, image size in pixels, and that model's parameters.

    The principal point counts from the image corner, so the centre of the first pixel is at (0.5, 0.5).
    """

    model: str
    width: int
    height: int
    parameters: tuple[float, ...]

    def __post_init__(self) -> None:
        if not (self.model.isascii() and self.model.replace("_", "").isalnum() and self.model.upper() == self.model):
            raise InputError(f"a camera model is a name such as SIMPLE_RADIAL, got {self.model!r}")
        if not all(0 < side <= _LARGEST_SIDE for side in (self.width, self.height)):
            raise InputError(f"image size must be (width, height) in pixels, got {(self.width, self.height)}")
        if not 0 < len(self.parameters) <= _MOST_PARAMETERS or not all(map(math.isfinite, self.parameters)):
            raise InputError(f"camera parameters must be 1 to {_MOST_PARAMETERS} finite numbers")


@dataclass(frozen=True, eq=False)
class Pose:
    """Where a camera stands, as `cam_from_world`: x_cam = `rotation` (3, 3) x_world + `translation` (3,)."""

    rotation: Float64
    translation: Float64

    def __post_init__(self) -> None:
        rotation = floats("rotation", self.rotation, (3, 3), np.float64)
        object.__setattr__(self, "rotation", rotation)
        object.__setattr__(self, "translation", floats("translation", self.translation, (3,), np.float64))
        if np.abs(rotation @ rotation.T - np.eye(3)).max() > _TOLERANCE or np.linalg.det(rotation) < 0:
            raise InputError("a rotation has orthonormal rows and determinant 1")

    @property
    def centre(self) -> Float64:
        """The camera's place (3,) in the world."""
        return np.asarray(-self.rotation.T @ self.translation)
