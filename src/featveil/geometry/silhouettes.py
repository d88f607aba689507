"""A gated query, its pose and the map -> the hole in it: where points of the map should be seen and nothing was sent.

Ours. What a gate holds back leaves a hole in the shape of what stood there. Which points should be seen is told by the
images of the map that see most of those that were sent. Each one with nothing sent near its place speaks for a hole,
each feature that was sent against one.
"""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from featveil.core import Camera, InputError, MapPoints, Pose, PrivateFeatures
from featveil.core.arrays import Float32, Float64, Integers
from featveil.geometry.colmap import to_colmap
from featveil.geometry.models import SparseModel

_IMAGES = 6  # of the map, that see most of what was sent
_NEAR = 5.0  # pixels, between the place of a point and a feature that may show it
_STRAY = 0.1  # sent within a hole, as a share of what is sent elsewhere
_EVIDENCE = 12  # points of the map that a window holds on average
_CELL = 8  # pixels
_PRIOR = -2.0  # log-odds of a hole where nothing speaks for or against one


@dataclass(frozen=True, eq=False)
class Hole:
    """`score` (rows, columns) is the log-odds of a hole in each cell of `cell` pixels.

    `expected` points of the map should have been seen, of which the share `sent` was.
    """

    score: Float32
    cell: int
    expected: int
    sent: float

    @property
    def mask(self) -> NDArray[np.bool_]:
        """Where a hole is likelier than none."""
        return np.asarray(self.score > 0)

    def at_size(self, width: int, height: int) -> Float32:
        """The score of each pixel (height, width) of the query."""
        cells = np.repeat(np.repeat(self.score, self.cell, axis=0), self.cell, axis=1)
        return np.ascontiguousarray(cells[:height, :width])


def find_hole(query: PrivateFeatures, pose: Pose, camera: Camera, model: SparseModel) -> Hole:
    """What the places of sent features show of what stood between the camera and the map.

    Raises InputError for a query that does not name points of this map, with the places where it saw them.
    """
    descriptors, keypoints = query.descriptors, query.keypoints
    if not isinstance(descriptors, MapPoints) or keypoints is None:
        raise InputError("a hole is looked for in a gated query: one with keypoints and numbers of map points")
    if descriptors.model != model.digest:
        raise InputError("this query names points of another map: give the model that its sketch was built of")
    expected = _in_view(model, _visible(descriptors, model), pose, camera)
    if len(expected) == 0:
        raise InputError("no point of the map is in view from this pose: is it the pose of this query?")
    sent = keypoints.xy.astype(np.float64)
    away = cKDTree(sent).query(expected)[0] if len(sent) else np.full(len(expected), np.inf)
    missing = away > _NEAR
    rate = float(np.clip((~missing).mean(), 0.01, 0.99))
    stray = _STRAY * rate
    shape = -(-camera.height // _CELL), -(-camera.width // _CELL)
    # Standard deviation, in cells, of where a piece of evidence counts.
    spread = float(np.sqrt(_EVIDENCE * camera.width * camera.height / (2 * np.pi * len(expected)))) / _CELL
    score = _PRIOR + np.log((1 - stray) / (1 - rate)) * _gathered(expected[missing], shape, spread)
    score += np.log(_STRAY) * _gathered(sent, shape, spread)
    return Hole(np.asarray(score, np.float32), _CELL, len(expected), rate)


def _visible(descriptors: MapPoints, model: SparseModel) -> Integers:
    """The points that the images see which see most of those that were sent."""
    sent = np.bincount(descriptors.points[descriptors.points >= 0], minlength=len(model.points))
    seen = [np.unique(view.points[view.points >= 0]) for view in model.views.values()]
    most = sorted(seen, key=lambda points: -int(sent[points].sum()))[:_IMAGES]
    return np.unique(np.concatenate(most)) if most else np.empty(0, np.int64)


def _in_view(model: SparseModel, points: Integers, pose: Pose, camera: Camera) -> Float64:
    """Where `points` are in the query (k, 2), those that are in front of the camera and inside of the picture."""
    places = model.points[points] @ pose.rotation.T + pose.translation
    places = places[places[:, 2] > 0]
    if len(places) == 0:
        return np.empty((0, 2))
    xy = np.asarray(to_colmap(camera, known=True).img_from_cam(places), np.float64).reshape(-1, 2)
    inside = np.isfinite(xy).all(axis=1) & (xy >= 0).all(axis=1) & (xy < (camera.width, camera.height)).all(axis=1)
    return xy[inside]


def _gathered(xy: Float64, shape: tuple[int, int], spread: float) -> Float64:
    """How many of the places are around each cell, those a `spread` away counting less."""
    counts = np.zeros(shape)
    columns, rows = np.clip((xy / _CELL).astype(np.int64), 0, (shape[1] - 1, shape[0] - 1)).T
    np.add.at(counts, (rows, columns), 1)
    blurred = cv2.GaussianBlur(counts, (0, 0), spread, borderType=cv2.BORDER_CONSTANT)
    return np.asarray(blurred * (2 * np.pi * spread**2))
