"""Whether a picture file shows anything."""

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

_SOME = 40  # by which the channels of a colour differ


def drawing(path: Path, coloured: bool = True) -> NDArray[np.uint8]:
    """The pixels (h, w, 3) of a figure; fails where nothing is drawn, or nothing in colour that should be."""
    image = cv2.imread(str(path))
    assert image is not None, f"{path} is no picture"
    height, width = image.shape[:2]
    assert height >= 150 and width >= 400, f"{path} has {width} x {height} pixels"
    assert np.count_nonzero(image.min(axis=2) < 250) > 0.015 * height * width, f"{path} is nearly blank"
    colours = np.count_nonzero(image.max(axis=2).astype(int) - image.min(axis=2) > _SOME)
    assert colours > 250 or not coloured, f"{path} has axes and nothing in them"
    return np.asarray(image, np.uint8)
