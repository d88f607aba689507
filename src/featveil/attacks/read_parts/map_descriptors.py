"""Numbers of map points -> descriptors, as far as a sketch of the map says them.

A gate sends up to k points that resemble a feature, and their mean is nearer to it than the likeliest of them. The
subset mechanism sends points of which all but one are drawn: there one is chosen. Points that were seen come from a
few images of the map, drawn ones from all of them, so the images that the release has most of decide.
"""

import numpy as np
from scipy.sparse import csr_array

from featveil.attacks.knowledge import Knowledge
from featveil.core import InputError, MapPoints, PrivateFeatures
from featveil.core.arrays import Float32, Integers
from featveil.core.features import sent_by
from featveil.gate import Sketch
from featveil.gate.point_means import PointMeans

_DRAWN = "subset"  # the defense that adds points which have nothing to do with the feature


def sketch_for(seen: PrivateFeatures, knowledge: Knowledge) -> Sketch:
    """The known sketch, whose numbers are those of `seen`: that of the release, or another one of the same map.

    Raises InputError for one of another map, and without one.
    """
    descriptors, sketch = seen.descriptors, knowledge.sketch
    if not isinstance(descriptors, MapPoints):
        raise InputError(f"only points of a map are read with a sketch, not {type(descriptors).__name__}")
    if sketch is None:
        raise InputError("points of a map are read with its sketch: give it (--sketch)")
    if sketch.model != descriptors.model:
        raise InputError(
            f"these are points of map {descriptors.model[:16]}, the sketch is of {sketch.model[:16]}: give that map's"
        )
    return sketch


def read_points(seen: PrivateFeatures, sketch: Sketch) -> Float32:
    """An estimate of each descriptor (n, d), of norm 1; zeros where the sketch, a tile, knows none of the points."""
    descriptors = seen.descriptors
    assert isinstance(descriptors, MapPoints)
    points = descriptors.points
    if sent_by(seen.defense) == _DRAWN:
        points = likeliest_points(points, sketch)[:, None]
    sums = PointMeans.of(sketch).at(points).sum(axis=1)
    return np.asarray(sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9), np.float32)


def likeliest_points(points: Integers, sketch: Sketch) -> Integers:
    """Of each row of `points` (n, k) the one whose images saw most of the others, as a share of all that they saw."""
    pairs = np.unique(np.stack([sketch.points, sketch.images]), axis=1)
    shape = sketch.model_points, sketch.model_images
    tracks = csr_array((np.ones(pairs.shape[1]), tuple(pairs)), shape=shape)
    sent = np.bincount(points[points >= 0], minlength=sketch.model_points).astype(np.float64)
    votes = (tracks.T @ sent) / np.maximum(np.bincount(pairs[1], minlength=sketch.model_images), 1)
    images = np.maximum(np.bincount(pairs[0], minlength=sketch.model_points), 1)
    fits = np.where(points >= 0, ((tracks @ votes) / images)[points], -1)
    return np.asarray(points[np.arange(len(points)), fits.argmax(axis=1)])
