"""What the demo is made of: bundled pictures, and which matches agree.

The pictures show one pin board from two places; examples/draw_demo_views.py draws them.
"""

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from featveil.core.arrays import Float32

_DATA = Path(__file__).parent / "data"
_PIXELS_OFF = 3.0


def views() -> tuple[Path, Path]:
    """The image files that `featveil demo` matches: the query and the reference."""
    return _DATA / "board-1.jpg", _DATA / "board-2.jpg"


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
