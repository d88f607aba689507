"""How good an estimated homography is, and how many of the matches behind it are right.

A private feature may bring several candidates, and several may agree: what counts as found is the feature, once.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from featveil.core import Matches
from featveil.core.arrays import Float64, floats

CORRECT_PIXELS = 5.0
# Stands for "no homography": a record holds finite numbers only.
FARTHEST = 1e6


class Verified(NamedTuple):
    """Candidate matches of a pair and those right among them; private features that agree, and those rightly so."""

    candidates: int
    right_candidates: int
    inliers: int
    right_inliers: int


def count_verified(
    matches: Matches, agree: NDArray[np.bool_], errors: Float64, pixels: float = CORRECT_PIXELS
) -> Verified:
    """Count `matches` (k) of raw features (first column) with private ones (second column).

    `agree` (k,) are those that the estimate keeps, `errors` (k,) their distances from the truth in pixels: up to
    `pixels` is right. A private feature is an inlier if any of its candidates agrees, a right one if a right
    candidate does.
    """
    right = errors <= pixels
    private = matches.indices[:, 1]
    return Verified(
        len(matches), int(right.sum()), len(np.unique(private[agree])), len(np.unique(private[agree & right]))
    )


def corner_error(estimate: Float64 | None, truth: Float64, image_size: tuple[int, int]) -> float:
    """Mean distance in pixels between where two homographies (3, 3) put the corners of an image (width, height).

    At most FARTHEST, which is also given for no estimate and for one that puts a corner at infinity.
    """
    there: Float64 = floats("true homography", truth, (3, 3), np.float64)
    if estimate is None or not np.isfinite(estimate).all():
        return FARTHEST
    width, height = image_size
    corners = np.array([[0, 0, 1], [width, 0, 1], [width, height, 1], [0, height, 1]], np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        estimated, wanted = (_dehomogenised(corners @ matrix.T) for matrix in (estimate, there))
        error = float(np.linalg.norm(estimated - wanted, axis=1).mean())
    return min(error, FARTHEST) if np.isfinite(error) else FARTHEST


def _dehomogenised(points: Float64) -> Float64:
    return points[:, :2] / points[:, 2:]
