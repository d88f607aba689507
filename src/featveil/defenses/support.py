"""Features that passed a gate -> those that others which passed agree with.

Foreign features that pass are scattered over the map, true ones agree. Two points agree when one image of the map saw
both. Only features within tau take part, as voters too, so that what the map does not know changes nothing here either.
"""

import numpy as np
from scipy.sparse import csr_array
from scipy.spatial import cKDTree

from featveil.core import InputError
from featveil.core.arrays import Float32, Integers
from featveil.gate import Sketch
from featveil.gate.lookup import Passed

SUPPORTS = ("none", "neighbours", "covisible", "both")

_NEIGHBOURS, _AGREEING = 8, 2  # of the nearest in the picture, so many must agree
_IMAGES = 4  # of the map, with most votes


def supported(passed: Passed, sketch: Sketch, xy: Float32 | None, support: str) -> Passed:
    """Those of `passed` that have `support`; `xy` (n, 2) are the positions of all features.

    `covisible`: its point is seen by one of the four images of the map that most votes are for. `neighbours`: two of
    the eight nearest in the picture agree. `both`: first the one, then the other among what is left.
    """
    if support in ("covisible", "both"):
        passed = passed.take(_covisible(passed, sketch))
    if support in ("neighbours", "both"):
        if xy is None:
            raise InputError("neighbours in the picture agree by their positions: these features have none")
        passed = passed.take(_agreeing(passed, sketch, xy[passed.rows]))
    return passed


def _covisible(passed: Passed, sketch: Sketch) -> Integers:
    seen = _seen(sketch.points[passed.entries[:, 0]], sketch)
    most = np.argsort(-np.asarray(seen.sum(axis=0)).ravel(), kind="stable")[:_IMAGES]
    return np.flatnonzero(np.asarray(seen[:, most].sum(axis=1)).ravel())


def _agreeing(passed: Passed, sketch: Sketch, xy: Float32) -> Integers:
    count = len(passed)
    if count < 2:
        return np.empty(0, np.int64)
    seen = _seen(sketch.points[passed.entries[:, 0]], sketch)
    near = cKDTree(xy).query(xy, min(_NEIGHBOURS + 1, count))[1]
    own = np.repeat(np.arange(count), near.shape[1])
    other = near.ravel()
    apart = own != other
    own, other = own[apart], other[apart]
    together = np.asarray(seen[own].multiply(seen[other]).sum(axis=1)).ravel() > 0
    return np.flatnonzero(np.bincount(own[together], minlength=count) >= _AGREEING)


def _seen(points: Integers, sketch: Sketch) -> csr_array:
    """Which images of the sketch (i) see the point of each feature (p), as zeros and ones."""
    # Points and images are those in the sketch: how many the map has is for the file to say, and it may say anything.
    known = sketch.known
    places = np.searchsorted(known, sketch.points), np.searchsorted(sketch.seen, sketch.images)
    tracks = csr_array((np.ones(len(sketch), np.int64), places), shape=(len(known) + 1, len(sketch.seen)))
    tracks.data[:] = 1  # an image may have seen a point twice
    rows = np.searchsorted(known, points)
    return tracks[np.where(np.isin(points, known), rows, len(known))]
