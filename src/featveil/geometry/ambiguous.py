"""Which of many candidate matches agree, where a feature may have several: each place counts once.

With many candidates a homography that squeezes the image onto one spot gathers agreement by mere number: everything
that has a candidate at that spot. Such a one is recognised, because few different places remain on one of the sides.
"""

import numpy as np
from numpy.typing import NDArray

from featveil.core.arrays import Float32, Float64, Integers
from featveil.geometry.homography import find_homography

_ATTEMPTS = 4
# Candidates times iterations that are worth their time; the first to give way are the iterations.
_MOST_WORK = 4_000_000_000
_FEWEST_ITERATIONS = 1000


def agreeing_candidates(xy_a: Float32, xy_b: Float32, iterations: int) -> NDArray[np.bool_]:
    """Which candidates (k,), given by both their positions (k, 2), agree on one homography, each position once.

    A homography that collapses one side is put aside with its candidates, and the others are tried again.
    """
    places = [np.unique(xy, axis=0, return_inverse=True)[1].reshape(-1) for xy in (xy_a, xy_b)]
    iterations = max(_FEWEST_ITERATIONS, min(iterations, _MOST_WORK // max(len(xy_a), 1)))
    best, left = np.zeros(len(xy_a), np.bool_), np.arange(len(xy_a))
    for _ in range(_ATTEMPTS):
        homography = find_homography(xy_a[left], xy_b[left], iterations=iterations)
        agree = left[homography.agree]
        if homography.matrix is None or len(agree) == 0:
            break
        chosen = _one_each(places[0][agree], places[1][agree], _errors(homography.matrix, xy_a[agree], xy_b[agree]))
        if len(chosen) > best.sum():
            best[:] = False
            best[agree[chosen]] = True
        if 2 * len(chosen) >= max(len(np.unique(side[agree])) for side in places):
            break
        left = left[~homography.agree]
    return best


def agreeing_by_chance(xy_a: Float32, xy_b: Float32, iterations: int) -> int:
    """How many candidates agree when one side's positions are shuffled: what the number of agreeing ones must beat."""
    positions, place = np.unique(xy_b, axis=0, return_inverse=True)
    shuffled = np.random.default_rng(0).permutation(positions)[place.reshape(-1)]
    return int(agreeing_candidates(xy_a, shuffled, iterations).sum())


def _one_each(first: Integers, second: Integers, errors: Float64) -> Integers:
    """The best pairs in which no place of either side occurs twice, taken by rising error."""
    used_first, used_second, chosen = set(), set(), []
    for pair in np.argsort(errors, kind="stable").tolist():
        a, b = int(first[pair]), int(second[pair])
        if a not in used_first and b not in used_second:
            used_first.add(a)
            used_second.add(b)
            chosen.append(pair)
    return np.array(chosen, np.int64)


def _errors(matrix: Float64, xy_a: Float32, xy_b: Float32) -> Float64:
    moved = np.column_stack([xy_a, np.ones(len(xy_a))]) @ matrix.T
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.linalg.norm(moved[:, :2] / moved[:, 2:] - xy_b, axis=1)
    return np.asarray(np.nan_to_num(errors, nan=np.inf), np.float64)
