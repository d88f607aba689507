"""Orthonormal bases in float64, many at once, and distances of chosen pairs by projection on them.

The fast kernels lose digits where a distance is almost zero or two subspaces are almost parallel. `pair_distances`
cleans the difference of two points of every direction of both subspaces, one after the other, instead of taking
differences of squares: 1e-14 relative, at any distance.
"""

import numpy as np

from featveil.core import Flats, Points
from featveil.core.arrays import Float32, Float64, Integers
from featveil.distances.backends.compiling import REORDER, jit

# Bases are stored in float32: a direction shorter than this, after removing the others, is rounding noise.
_NOISE = 1e-6


@jit(REORDER)
def remove(row: Float64, direction: Float64) -> None:
    """Subtract from `row` (d,), in place, its part along the unit vector `direction` (d,)."""
    overlap = 0.0
    for t in range(len(row)):
        overlap += row[t] * direction[t]
    for t in range(len(row)):
        row[t] -= overlap * direction[t]


@jit(REORDER)
def length(row: Float64) -> float:
    """Euclidean length of `row` (d,)."""
    total = 0.0
    for t in range(len(row)):
        total += row[t] * row[t]
    return float(np.sqrt(total))


@jit(REORDER)
def orthonormalise(vectors: Float64) -> Float64:
    """Orthonormalise the rows of each (m, d) matrix of `vectors` (n, m, d) in place, keeping their span and order.

    Modified Gram-Schmidt, each row cleaned twice. Returns (n,) the smallest share of a row's length that was left
    after removing the rows before it: 0 means dependent rows, and such a row becomes zero.
    """
    n, m, d = vectors.shape
    independence = np.ones(n)
    for i in range(n):
        for k in range(m):
            row = vectors[i, k]
            before = length(row)
            for _ in range(2):
                for previous in range(k):
                    remove(row, vectors[i, previous])
            after = length(row)
            share = after / before if before > 0.0 else 0.0
            independence[i] = min(independence[i], share)
            factor = 1.0 / after if share > 1e-14 else 0.0
            for t in range(d):
                row[t] *= factor
    return independence


@jit(REORDER)
def remove_span(vectors: Float64, basis: Float64) -> None:
    """Subtract from each of `vectors` (n, d), in place, its projection on the orthonormal rows of `basis` (n, m, d)."""
    n, m, _ = basis.shape
    for i in range(n):
        for _ in range(2):
            for k in range(m):
                remove(vectors[i], basis[i, k])


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
