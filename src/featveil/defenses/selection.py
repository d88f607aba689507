"""Features -> fewer Features: those that say nothing of each other.

Two keypoints whose windows overlap describe the same gradients, so that each tells which of the descriptors in the
other's subspace (or which of its words) is the true one: attack overlap. Windows of a facade that repeat do the same
without any overlap, as confounders do not repeat: attack discriminator. No defense of single descriptors can help that.
"""

import numpy as np

from featveil.core import Features, InputError
from featveil.core.arrays import Integers

# Scales. A SIFT window reaches 6 scales from its keypoint and fades towards its edge; from here on attackers gain next
# to nothing from neighbours, even if they know scales and orientations (benchmarks/reach.py).
REACH = 4.5
UNLIKE = 0.6  # of the norm: nearer than that, descriptors are examples of each other


def lying_apart(features: Features, reach: float = REACH, unlike: float = UNLIKE) -> Features:
    """Features whose windows do not overlap and that are unlike each other, the strongest first.

    Each is kept if its window, a circle of `reach` times the scale, meets none of those that were kept before, and its
    descriptor is at least `unlike` of its norm away from theirs. Without keypoints all stay. Raises InputError for
    keypoints without scale and response.
    """
    return features if features.keypoints is None else features.take(rows_apart(features, reach, unlike))


def rows_apart(features: Features, reach: float = REACH, unlike: float = UNLIKE) -> Integers:
    """The rows that `lying_apart` keeps, in its order."""
    keypoints = features.keypoints
    if keypoints is None:
        return np.arange(len(features))
    if keypoints.scale is None or keypoints.response is None:
        raise InputError("which keypoints overlap is seen from their scales and responses: these have none")
    xy, radius = keypoints.xy.astype(np.float64), reach * keypoints.scale.astype(np.float64)
    values = features.descriptors.values
    kept = np.empty(0, np.int64)
    for row in np.argsort(-keypoints.response, kind="stable"):
        if (np.linalg.norm(xy[kept] - xy[row], axis=1) < radius[kept] + radius[row]).any():
            continue
        away = np.linalg.norm(values[kept] - values[row], axis=1)
        if (away >= unlike * np.linalg.norm(values[row])).all():
            kept = np.append(kept, row)
    return kept
