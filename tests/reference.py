"""Slow distances in plain loops, straight from the definitions; the kernels are compared with these."""

import numpy as np

from featveil.core import Flats, Points, Subspaces
from featveil.core.arrays import Float64


def random_descriptors(n: int, m: int, rng: np.random.Generator, d: int = 32) -> Flats:
    """Points (m = 0) or subspaces through points near the unit sphere."""
    points = rng.standard_normal((n, d))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    if m == 0:
        return Points(points.astype(np.float32))
    basis = np.linalg.qr(rng.standard_normal((n, d, m))).Q.transpose(0, 2, 1)
    return Subspaces(points.astype(np.float32), np.ascontiguousarray(basis, np.float32))


def parts(descriptors: Flats, i: int) -> tuple[Float64, Float64]:
    """A point and the directions of one descriptor, in float64."""
    if isinstance(descriptors, Points):
        return descriptors.values[i].astype(np.float64), np.empty((0, descriptors.size))
    return descriptors.offset[i].astype(np.float64), descriptors.basis[i].astype(np.float64)


def reference_matrix(a: Flats, b: Flats) -> Float64:
    """Least squares for every pair."""
    result = np.empty((len(a), len(b)))
    for i in range(len(a)):
        for j in range(len(b)):
            point1, directions1 = parts(a, i)
            point2, directions2 = parts(b, j)
            system = np.concatenate([directions1, directions2]).T
            rest = point1 - point2
            if system.shape[1]:
                rest = rest - system @ np.linalg.lstsq(system, rest, rcond=1e-6)[0]
            result[i, j] = np.linalg.norm(rest)
    return result
