"""Descriptors that a map says, moved towards what overlapping keypoints predict of each other.

A descriptor lies in a ball around what the map says of it, and in wider ones around what its neighbours predict.
Neighbours predict of the map's descriptors, which are off themselves, so that one round is best: further ones only
carry the same errors around.
"""

import numpy as np

from featveil.attacks.overlap_parts.overlapping import BINS, Overlaps, predict
from featveil.core.arrays import Float32
from featveil.databases.entries import unit_rows

# Inverse variances of a component: of the map's descriptor, which is about 0.36 off, and of the prediction of a
# neighbour that saw all of a window.
_OWN, _PREDICTED = 1000.0, 333.0
_STRETCH = (0.2, 5.0)  # of a prediction


def lean(start: Float32, overlaps: Overlaps, kind: str) -> Float32:
    """The descriptors (n, d) of norm 1 most likely given the map's, `start`, and those of neighbours."""
    own, weights = start[overlaps.first], np.repeat(overlaps.weight, BINS, axis=1)
    predicted = _predictions(start, overlaps, kind)
    norms = np.maximum((weights * predicted**2).sum(axis=1), 1e-9)
    predicted = predicted * np.clip((weights * predicted * own).sum(axis=1) / norms, *_STRETCH)[:, None]
    weights = weights * (_PREDICTED * overlaps.share[:, None])
    total, values = np.full_like(start, _OWN), _OWN * start
    np.add.at(total, overlaps.first, weights)
    np.add.at(values, overlaps.first, weights * predicted)
    return unit_rows(np.maximum(values / total, 1e-6).astype(np.float32))


def _predictions(values: Float32, overlaps: Overlaps, kind: str) -> Float32:
    """What each second feature says of the first (p, d). RootSIFT is linear in its squares only."""
    if kind != "rootsift":
        return predict(values, overlaps)[0]
    return np.asarray(np.sqrt(np.maximum(predict(values**2, overlaps)[0], 0)), np.float32)
