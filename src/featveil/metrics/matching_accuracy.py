"""Mean matching accuracy (Dusmanu et al., D2-Net, CVPR 2019): the share of matches that are right.

For each image pair, a match is right up to a threshold if the keypoint of image 1, moved by the true
homography, lies at most that many pixels from the keypoint of image k. The mean is over pairs, not over
matches. A pair without any match counts as 0, as in the protocol: a method must not gain by giving up.
"""

from collections.abc import Sequence

import numpy as np

from featveil.core import InputError, Keypoints, Matches
from featveil.core.arrays import Float64, floats

THRESHOLDS = tuple(range(1, 11))


def transfer_errors(matches: Matches, first: Keypoints, second: Keypoints, homography: Float64) -> Float64:
    """For each match, how far the homography (3, 3) puts the keypoint of image 1 from that of image k, in px.

    Infinite where it puts it at infinity.
    """
    matrix: Float64 = floats("homography", homography, (3, 3), np.float64)
    start = first.xy[matches.indices[:, 0]].astype(np.float64)
    moved = np.column_stack([start, np.ones(len(start))]) @ matrix.T
    errors = np.full(len(start), np.inf)
    seen = moved[:, 2] != 0
    target = second.xy[matches.indices[:, 1]].astype(np.float64)
    errors[seen] = np.linalg.norm(moved[seen, :2] / moved[seen, 2:] - target[seen], axis=1)
    return errors


def matching_accuracy(errors: Float64, thresholds: Sequence[float] = THRESHOLDS) -> Float64:
    """Share of `errors` (k,) that are at most each threshold (t,); zeros when there is no match."""
    if len(errors) == 0:
        return np.zeros(len(thresholds))
    return np.asarray((errors[:, None] <= np.asarray(thresholds)).mean(axis=0), np.float64)


def mean_matching_accuracy(accuracies: Sequence[Sequence[float]]) -> Float64:
    """Mean over pairs: accuracies (p, t) of single pairs to (t,). Raises InputError without any pair."""
    if len(accuracies) == 0:
        raise InputError("mean matching accuracy needs at least one image pair, got none")
    return np.asarray(np.mean(np.asarray(accuracies, np.float64), axis=0), np.float64)
