"""Which matches agree on one homography: enough for flat scenes and for views from one place."""

import cv2
import numpy as np
from numpy.typing import NDArray

from featveil.core.arrays import Float32

_PIXELS_OFF = 3.0


def agreeing(xy_a: Float32, xy_b: Float32) -> NDArray[np.bool_]:
    """Which matches (k,) agree on one homography to 3 pixels (MAGSAC++, repeatable); none of fewer than 4."""
    if len(xy_a) < 4:
        return np.zeros(len(xy_a), np.bool_)
    try:
        found, mask = cv2.findHomography(
            xy_a.astype(np.float64),
            xy_b.astype(np.float64),
            cv2.USAC_MAGSAC,
            _PIXELS_OFF,
            maxIters=10000,
            confidence=0.9999,
        )
    except cv2.error:  # all points on one line or on one spot
        return np.zeros(len(xy_a), np.bool_)
    if found is None or mask is None:
        return np.zeros(len(xy_a), np.bool_)
    return np.asarray(mask, np.bool_).reshape(-1)
