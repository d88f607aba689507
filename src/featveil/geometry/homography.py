"""Which matches agree on one homography: enough for flat scenes and for views from one place."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from featveil.core.arrays import Float32, Float64

_PIXELS_OFF = 3.0
_ITERATIONS = 10_000


@dataclass(frozen=True, eq=False)
class Homography:
    """`matrix` (3, 3) from the first to the second image, None if none was found; which matches agree (k,)."""

    matrix: Float64 | None
    agree: NDArray[np.bool_]


def find_homography(
    xy_a: Float32, xy_b: Float32, pixels: float = _PIXELS_OFF, iterations: int = _ITERATIONS
) -> Homography:
    """The homography that most matches (k, 2) x 2 agree on to `pixels` (MAGSAC++, repeatable); none of fewer than 4."""
    nothing = Homography(None, np.zeros(len(xy_a), np.bool_))
    if len(xy_a) < 4:
        return nothing
    try:
        matrix, mask = cv2.findHomography(
            xy_a.astype(np.float64),
            xy_b.astype(np.float64),
            cv2.USAC_MAGSAC,
            pixels,
            maxIters=iterations,
            confidence=0.9999,
        )
    except cv2.error:  # all points on one line or on one spot
        return nothing
    if matrix is None or mask is None:
        return nothing
    return Homography(np.asarray(matrix, np.float64), np.asarray(mask, np.bool_).reshape(-1))


def agreeing(xy_a: Float32, xy_b: Float32) -> NDArray[np.bool_]:
    """Which matches (k,) agree on one homography to 3 pixels."""
    return find_homography(xy_a, xy_b).agree
