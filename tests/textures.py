"""Drawn pictures with many features, for tests of patches."""

import cv2
import numpy as np

from featveil.extractors.images import Image


def texture(seed: int = 0, width: int = 320, height: int = 240) -> Image:
    """Random blobs of several sizes (h, w), in which SIFT finds a few hundred features."""
    rng = np.random.default_rng(seed)
    made = np.zeros((height, width))
    for sigma in (1.5, 3.0, 6.0):
        layer = cv2.GaussianBlur(rng.standard_normal((height, width)), (0, 0), sigma)
        made += layer / layer.std()
    return np.asarray(np.clip(128 + 35 * made, 0, 255), np.uint8)
