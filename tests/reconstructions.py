"""Structural similarity pixel by pixel, as Wang et al. (2004) define it and scikit-image computes it."""

import numpy as np

from featveil.core.arrays import Float64


def slow_ssim(first: Float64, second: Float64) -> float:
    """Mean over all windows of 11 x 11 pixels within two grey pictures in 0 to 1, weighted by a Gaussian of 1.5."""
    offsets = np.arange(-5, 6)
    weights = np.exp(-(offsets[:, None] ** 2 + offsets[None] ** 2) / (2 * 1.5**2))
    weights /= weights.sum()
    c1, c2 = 0.01**2, 0.03**2
    found = []
    for row in range(5, first.shape[0] - 5):
        for column in range(5, first.shape[1] - 5):
            window = np.s_[row - 5 : row + 6, column - 5 : column + 6]
            one, other = first[window], second[window]
            mean1, mean2 = float((weights * one).sum()), float((weights * other).sum())
            variance1 = float((weights * (one - mean1) ** 2).sum())
            variance2 = float((weights * (other - mean2) ** 2).sum())
            covariance = float((weights * (one - mean1) * (other - mean2)).sum())
            top = (2 * mean1 * mean2 + c1) * (2 * covariance + c2)
            found.append(top / ((mean1**2 + mean2**2 + c1) * (variance1 + variance2 + c2)))
    return float(np.mean(found))
