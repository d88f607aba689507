"""Distances of chosen pairs in float64, by projection instead of differences of squares.

The fast kernels lose digits where a distance is almost zero or two subspaces are almost parallel. Here the difference
of two points is cleaned of every direction of both subspaces, one after the other: 1e-14 relative, at any distance.
"""

import numpy as np

from featveil.core import Flats, Points
from featveil.core.arrays import Float32, Float64, Integers
from featveil.distances.compiling import REORDER, jit
from featveil.distances.orthonormal import length, remove

# Bases are stored in float32: a direction shorter than this, after removing the others, is rounding noise.
_NOISE = 1e-6


def pair_distances(a: Flats, b: Flats, rows: Integers, columns: Integers) -> Float64:
    """Distances (k,) between a[rows] and b[columns], float64."""
    return np.asarray(_pairs(*_parts(a), *_parts(b), rows.astype(np.int64), columns.astype(np.int64)))


def _parts(descriptors: Flats) -> tuple[Float32, Float32]:
    if isinstance(descriptors, Points):
        return descriptors.values, np.empty((len(descriptors), 0, descriptors.size), np.float32)
    return descriptors.offset, descriptors.basis


@jit(REORDER)
def _pairs(
    offset1: Float32, basis1: Float32, offset2: Float32, basis2: Float32, rows: Integers, columns: Integers
) -> Float64:
    m1, m2, d = basis1.shape[1], basis2.shape[1], offset1.shape[1]
    result = np.empty(len(rows))
    known, rest = np.empty((m1 + m2, d)), np.empty(d)
    current, own = -1, 0
    for pair in range(len(rows)):
        i, j = rows[pair], columns[pair]
        if i != current:  # pairs often come sorted by row
            current, own = i, _extend(known, 0, basis1[i])
        count = _extend(known, own, basis2[j])
        for t in range(d):
            rest[t] = np.float64(offset1[i, t]) - np.float64(offset2[j, t])
        for _ in range(2):
            for k in range(count):
                remove(rest, known[k])
        result[pair] = length(rest)
    return result


@jit(REORDER)
def _extend(known: Float64, count: int, directions: Float32) -> int:
    """Add `directions` (m, d) to the first `count` orthonormal rows of `known`; returns how many there are now."""
    for k in range(len(directions)):
        row = known[count]
        for t in range(len(row)):
            row[t] = directions[k, t]
        for _ in range(2):
            for previous in range(count):
                remove(row, known[previous])
        left = length(row)
        if left < _NOISE:
            continue
        for t in range(len(row)):
            row[t] /= left
        count += 1
    return count
