"""Exact nearest neighbours that look at few pairs: a bound from the first principal axes rules out the others.

Projecting on an orthonormal set of axes never lengthens a distance, so the distance between projected subspaces is a
lower bound of the true one, and the same kernel computes it with shorter vectors. Each row first evaluates its few
lowest bounds, then only the pairs whose bound lies below the k-th best so far.
"""

import numpy as np

from featveil.core import Descriptors, InputError
from featveil.core.arrays import Float32, Float64
from featveil.distances.backends import Frames, walker
from featveil.distances.orthonormal import orthonormalise, remove_span
from featveil.distances.search import SPARE, Nearest, compare, searched, settle

_CHUNK = 2048


def nearest_pruned(a: Descriptors, b: Descriptors, k: int = 2, axes: int | None = None) -> Nearest:
    """As `nearest`, usually several times faster from a few thousand descriptors on.

    `axes` is how many principal axes bound the distances. Few are quick but rule out less; larger subspaces need more
    (default: (12 + m) / 64 of the descriptor size, 28 of 128 for m = 2).
    """
    compared = compare(a, b)
    pair, d = compared.pair, compared.a.size
    largest = max(compared.a.dimension, compared.b.dimension)
    axes = min(d, max(1, d * (12 + largest) // 64)) if axes is None else axes
    if not 1 <= axes <= d:
        raise InputError(f"axes must be 1 to {d}, got {axes}")
    if len(a) == 0 or len(b) == 0 or k < 1 or pair.complementary:
        return searched(compared, k)[0]
    basis = _principal_axes(pair.first, pair.second, axes)
    bounds = walker(_projected(pair.first, basis), _projected(pair.second, basis))
    return settle(compared, compared.walker.nearest_pruned(bounds, k, SPARE))


def _principal_axes(first: Frames, second: Frames, count: int) -> Float32:
    """Directions (d, count) along which the descriptors spread most."""
    points = np.concatenate([first.stack[:, 0], second.stack[:, 0]]).astype(np.float64)
    _, vectors = np.linalg.eigh(points.T @ points)
    return np.ascontiguousarray(vectors[:, ::-1][:, :count], dtype=np.float32)


def _projected(frames: Frames, axes: Float32) -> Frames:
    """The frames seen along `axes` only, brought back to the canonical form."""
    n, rows, _ = frames.stack.shape
    stack = np.empty((n, rows, axes.shape[1]), np.float32)
    norms = np.empty(n, np.float32)
    for start in range(0, n, _CHUNK):
        part = slice(start, min(start + _CHUNK, n))
        seen: Float64 = (frames.stack[part] @ axes).astype(np.float64)
        basis, points = np.ascontiguousarray(seen[:, 1:]), np.ascontiguousarray(seen[:, 0])
        orthonormalise(basis)
        remove_span(points, basis)
        stack[part, 1:], stack[part, 0] = basis, points
        norms[part] = np.einsum("nd,nd->n", points, points)
    return Frames(stack, norms)
