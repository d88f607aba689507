"""Many candidates -> few: those whose neighbours lead to neighbours (after Bian et al., GMS, CVPR 2017).

Words give every feature several candidates, and RANSAC must draw several right ones at once. But where two images show
one surface, features beside a right match have matches that run along with it, while wrong candidates lead anywhere.
Positions alone tell them apart, as long as the views are about equally large and upright; turned views lose support.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from featveil.core.arrays import Float32, Float64, Integers

# Chosen on five image pairs of fountain-P11 with epsilon 10.
_REACH = 0.08  # how far a neighbour may be, as a share of the longer side of what the candidates cover
_ALONG = 0.2  # how far off a neighbour may lead, as a share of the reach
_LOUD = 90  # percentile of the support that candidates get by chance, when the ends are dealt to other starts

_MOST_PAIRS = 2**22  # of neighbouring candidates: where there are more, as on a tiled roof, the reach is smaller


def well_supported(xy_a: Float32, xy_b: Float32) -> NDArray[np.bool_]:
    """Which candidates (k,), given by both their positions (k, 2), stand out by the support of their neighbours.

    They have more of it than nine tenths would by chance, and the most at both of their places.
    """
    if len(xy_a) == 0:
        return np.zeros(0, np.bool_)
    strength = support(xy_a, xy_b)
    dealt = xy_b[np.random.default_rng(0).permutation(len(xy_b))]
    best = strength > np.percentile(support(xy_a, dealt), _LOUD)
    for places in (_places(xy_a), _places(xy_b)):
        most = np.zeros(places.max(initial=-1) + 1)
        np.maximum.at(most, places, strength)
        best &= strength == most[places]
    return best


def support(xy_a: Float32, xy_b: Float32) -> Float64:
    """How many other candidates start near each one and lead the same way (k,): 1 for exactly the same, less if off.

    Candidates that share a place with it on either side do not count.
    """
    count = len(xy_a)
    if count < 2:
        return np.zeros(count)
    start, end = _scaled(xy_a), _scaled(xy_b)
    tree, reach = cKDTree(np.concatenate([start, end], axis=1)), _REACH
    while tree.count_neighbors(tree, reach, p=np.inf) > 2 * _MOST_PAIRS + count:
        reach *= 0.7
    pairs = tree.query_pairs(reach, p=np.inf, output_type="ndarray")
    for places in (_places(xy_a), _places(xy_b)):
        pairs = pairs[places[pairs[:, 0]] != places[pairs[:, 1]]]
    one, two = pairs.T
    off = ((end[one] - end[two]) - (start[one] - start[two])) / (_ALONG * reach)
    strength = np.exp(-(off**2).sum(axis=1))
    return np.asarray(np.bincount(one, strength, count) + np.bincount(two, strength, count), np.float64)


def _scaled(xy: Float32) -> Float64:
    """Positions as shares of the longer side of what they cover."""
    extent = float(np.ptp(xy, axis=0).max()) or 1.0
    return np.asarray(xy, np.float64) / extent


def _places(xy: Float32) -> Integers:
    """The number of the place of each position; equal positions share it."""
    return np.unique(xy, axis=0, return_inverse=True)[1].reshape(-1)
