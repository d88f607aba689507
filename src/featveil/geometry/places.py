"""Positions of keypoints as other files have them."""

import numpy as np

from featveil.core.arrays import Float32


def in_half_precision(xy: Float32) -> Float32:
    """Positions (n, 2) as hloc hands them to COLMAP when it has stored them in half precision, as it does by default.

    It adds the half pixel in that precision, too, so that beyond 1024 they come in steps of one pixel.
    """
    stored = (xy.astype(np.float64) - 0.5).astype(np.float16)
    return np.asarray((stored + np.float16(0.5)).astype(np.float32))
