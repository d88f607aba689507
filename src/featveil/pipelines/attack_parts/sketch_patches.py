"""A sketch -> what an inverter paints of single entries: what of a map's pictures its sketch gives away.

An entry has no position, scale or orientation, so each is painted by itself, upright, as large as the picture.
"""

import numpy as np

from featveil.core import Features, Keypoints, Points
from featveil.core.arrays import Integers
from featveil.gate import Sketch
from featveil.pipelines.painters import Image, Painter, paint

SIDE = 64  # pixels of a patch
_SCALE = SIDE / 12  # of a keypoint whose descriptor sees the patch: 4 cells of 3 scales


def patches(sketch: Sketch, rows: Integers, painter: Painter) -> list[Image]:
    """What `painter` makes of each of the entries at `rows`: pictures (SIDE, SIDE, 3)."""
    return [patch(Points(value[None]), sketch.kind, painter) for value in sketch.entries.decode(rows)]


def patch(descriptor: Points, kind: str, painter: Painter) -> Image:
    """What `painter` makes of one descriptor."""
    scale, none = np.array([_SCALE], np.float32), np.zeros(1, np.float32)
    middle = Keypoints(np.full((1, 2), SIDE / 2, np.float32), scale, none, np.full(1, 0.05, np.float32))
    return paint(Features(descriptor, kind, middle, (SIDE, SIDE)), painter)
