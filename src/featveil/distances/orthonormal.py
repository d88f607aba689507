"""Orthonormal bases in float64, many at once."""

import numpy as np

from featveil.core.arrays import Float64
from featveil.distances.compiling import REORDER, jit


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
