"""A sparse COLMAP model as plain values."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from featveil.core import Camera, FormatError, InputError, Pose
from featveil.core.arrays import Float32, Float64, Integers, floats
from featveil.formats import colmap_model
from featveil.geometry.colmap import from_colmap, pose_of, pycolmap


@dataclass(frozen=True, eq=False)
class View:
    """A registered image: its camera and pose, keypoints `xy` (n, 2), and which point each shows (n,), -1 for none."""

    camera: Camera
    pose: Pose
    xy: Float32
    points: Integers


@dataclass(frozen=True, eq=False)
class SparseModel:
    """Registered images by name and the points they see: `points` (p, 3), the length of each one's track (p,) and
    its mean reprojection error (p,) in pixels. The points of a file are in the order of their identities there."""

    views: dict[str, View]
    points: Float64
    track_lengths: Integers
    errors: Float64

    @property
    def poses(self) -> dict[str, Pose]:
        """Where the registered cameras stand."""
        return {name: view.pose for name, view in self.views.items()}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of which keypoint of which image shows which point: what numbers of points mean.

        It stays the same when points and cameras are moved, as bundle adjustment does.
        """
        digest = hashlib.sha256(f"featveil model\n{len(self.points)}\n".encode())
        for name in sorted(self.views):
            points = np.ascontiguousarray(self.views[name].points, "<i8")
            digest.update(f"{json.dumps(name)} {len(points)}\n".encode())
            digest.update(points.data)
        return digest.hexdigest()

    @property
    def mean_track_length(self) -> float:
        """How many images see a point; 0 without points."""
        return float(self.track_lengths.mean()) if len(self.points) else 0.0

    @property
    def mean_error(self) -> float:
        """Mean reprojection error in pixels over all points, as COLMAP reports it; 0 without points."""
        return float(self.errors.mean()) if len(self.points) else 0.0


def empty_model() -> SparseModel:
    """No images, no points: what mapping gives when nothing could be registered."""
    return SparseModel({}, np.empty((0, 3)), np.empty(0, np.int64), np.empty(0))


def read_model(folder: str | Path) -> SparseModel:
    """The model in `folder`, as COLMAP and hloc write it (binary or text).

    Raises InputError when there is none and FormatError when it cannot be read.
    """
    reconstruction = load_reconstruction(folder)
    with _readable(folder):
        return to_model(reconstruction)


def load_reconstruction(folder: str | Path) -> Any:
    """The pycolmap reconstruction in `folder`; raises like `read_model`."""
    folder = Path(folder)
    names = ("cameras", "images", "points3D")
    if not any(all((folder / f"{name}{ending}").is_file() for name in names) for ending in (".bin", ".txt")):
        raise InputError(f"{folder} holds no COLMAP model: it needs cameras, images and points3D as .bin or .txt")
    colmap_model.check(folder)
    with _readable(folder):
        return pycolmap().Reconstruction(folder)


@contextmanager
def _readable(folder: str | Path) -> Iterator[None]:
    """What a damaged model makes pycolmap or the checks of our values raise, as FormatError."""
    try:
        yield
    except (ValueError, RuntimeError, MemoryError, LookupError, TypeError) as error:
        raise FormatError(f"the COLMAP model in {folder} is damaged or of an unknown version") from error


def to_model(reconstruction: Any) -> SparseModel:
    """The values of a pycolmap reconstruction."""
    points = dict(sorted(reconstruction.points3D.items()))
    place = {identity: number for number, identity in enumerate(points)}
    errors = np.array([point.error for point in points.values()], np.float64)
    images = (reconstruction.images[identity] for identity in reconstruction.reg_image_ids())
    return SparseModel(
        {image.name: _view(image, reconstruction, place) for image in sorted(images, key=lambda image: image.name)},
        floats("points", np.reshape([point.xyz for point in points.values()], (-1, 3)), (None, 3), np.float64),
        np.array([point.track.length() for point in points.values()], np.int64),
        np.where(np.isfinite(errors) & (errors >= 0), errors, 0.0),
    )


def _view(image: Any, reconstruction: Any, place: dict[int, int]) -> View:
    seen = [(point.xy, place[point.point3D_id] if point.has_point3D() else -1) for point in image.points2D]
    return View(
        from_colmap(reconstruction.cameras[image.camera_id]),
        pose_of(image.cam_from_world()),
        np.array([xy for xy, _ in seen], np.float32).reshape(-1, 2),
        np.array([point for _, point in seen], np.int64),
    )
