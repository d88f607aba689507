"""How near a reconstructed picture is to the photograph: MAE, SSIM and PSNR of grey values in 0 to 1.

Grey, because local descriptors do not see colour: what a network paints in colour is a guess about the world.
"""

import math
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from featveil.core import InputError
from featveil.core.arrays import Float64

Image = NDArray[np.uint8]

_SIGMA, _REACH = 1.5, 5  # of the window of SSIM (Wang et al., 2004)
_BEST_PSNR = 100.0  # of equal pictures, where it would be infinite


class Reconstruction(NamedTuple):
    """Mean absolute error, structural similarity, peak signal-to-noise ratio in dB."""

    mae: float
    ssim: float
    psnr: float


METRIC = "reconstruction"
UNIT = "of the grey range, of 1, dB"


def compare(guess: Image, truth: Image) -> Reconstruction:
    """Of two RGB pictures (h, w, 3) of one size; raises InputError for others."""
    if guess.shape != truth.shape or guess.shape[2:] != (3,) or guess.dtype != np.uint8 or truth.dtype != np.uint8:
        raise InputError(f"pictures of one size are compared, uint8 RGB, got {guess.shape} and {truth.shape}")
    if min(truth.shape[:2]) < 2 * _REACH + 1:
        raise InputError(f"pictures must have at least {2 * _REACH + 1} pixels on each side")
    first, second = _grey(guess), _grey(truth)
    error = float(np.mean((first - second) ** 2))
    psnr = _BEST_PSNR if error == 0 else min(_BEST_PSNR, -10 * math.log10(error))
    return Reconstruction(float(np.abs(first - second).mean()), structural_similarity(first, second), psnr)


def structural_similarity(first: Float64, second: Float64) -> float:
    """Mean SSIM of grey pictures (h, w) in 0 to 1, over all windows that lie within them."""
    mean1, mean2 = _smooth(first), _smooth(second)
    covariance = _smooth(first * second) - mean1 * mean2
    variances = _smooth(first * first) - mean1**2 + _smooth(second * second) - mean2**2
    c1, c2 = 0.01**2, 0.03**2
    similarity = (2 * mean1 * mean2 + c1) * (2 * covariance + c2)
    similarity /= (mean1**2 + mean2**2 + c1) * (variances + c2)
    return float(similarity.mean())


def _smooth(values: Float64) -> Float64:
    blurred = cv2.GaussianBlur(values, (2 * _REACH + 1, 2 * _REACH + 1), _SIGMA)
    return np.asarray(blurred, np.float64)[_REACH:-_REACH, _REACH:-_REACH]


def _grey(image: Image) -> Float64:
    return np.asarray(image.astype(np.float64) @ np.array([0.299, 0.587, 0.114]) / 255)
