"""Distances between the parts of points and subspaces that lie on a sphere around the origin.

A lifted descriptor of known norm lies in its subspace and on the sphere of that radius. With p the point of the
subspace nearest the origin and B its basis, that is the sphere p + r Bt u, |u| = 1, of radius r² = norm² - |p|².
Between two of them, |x - y| is least where x.y is greatest. For a fixed v, the best u is the direction of
r1 B1 (p2 + r2 B2t v), and the other way round: taking turns rises to a maximum in u and v.

That maximum is the greatest if the lengths of the two vectors so normalised multiply to (r1 r2 s)² or more, s being the
greatest singular value of B1 B2t: the Lagrangian then bounds x.y from above. Two spheres that meet always pass. For
others there may be a second maximum, and no closed form is known to us; starts from both sides' own best points found
the greatest in every one of 19,000 trials against 40 random starts (docs/distances.md).
"""

import numpy as np

from featveil.core import Flats, InputError, Points
from featveil.core.arrays import Float64, Integers
from featveil.distances.backends.compiling import REORDER, jit
from featveil.distances.orthonormal import length, orthonormalise, remove_span

_STEPS = 1000
_GAIN = 1e-11  # a turn that gains less of norm² has reached the maximum


def sphere_distances(a: Flats, b: Flats, rows: Integers, columns: Integers, norm: float = 1.0) -> Float64:
    """Distances (k,) between the parts of a[rows] and b[columns] on the sphere of radius `norm`, float64.

    A point counts as it is. A subspace that misses the sphere counts as its point nearest the origin, moved to the
    sphere. Raises InputError when descriptor sizes differ, there is no such pair or `norm` is not positive.
    """
    if a.size != b.size:
        raise InputError(f"descriptor sizes differ: {a.size} and {b.size}; compare features of one kind")
    if not 0 < norm < np.inf:
        raise InputError(f"norm must be a positive number, got {norm}")
    inside = all(((at >= 0) & (at < len(side))).all() for at, side in ((rows, a), (columns, b)))
    if rows.shape != columns.shape or not inside:
        raise InputError(f"a pair is one row and one column, of {len(a)} rows and {len(b)} columns")
    pairs = rows.astype(np.int64), columns.astype(np.int64)
    return norm * np.asarray(_pairs(*_spheres(a, norm), *_spheres(b, norm), *pairs))


def distances_to_sphere(descriptors: Flats, norm: float = 1.0) -> Float64:
    """How far (n,) each point, or the nearest point of each subspace, is from the sphere of radius `norm`.

    A subspace that cuts the sphere is at 0.
    """
    centres, _ = _nearest_points(descriptors)
    beyond: Float64 = np.linalg.norm(centres, axis=1) - norm
    return np.abs(beyond) if isinstance(descriptors, Points) else beyond.clip(0)


def _nearest_points(descriptors: Flats) -> tuple[Float64, Float64]:
    """The points nearest the origin (n, d) and orthonormal directions (n, m, d)."""
    if isinstance(descriptors, Points):
        return descriptors.values.astype(np.float64), np.empty((len(descriptors), 0, descriptors.size))
    centres, basis = descriptors.offset.astype(np.float64), descriptors.basis.astype(np.float64)
    orthonormalise(basis)
    remove_span(centres, basis)
    return centres, basis


def _spheres(descriptors: Flats, norm: float) -> tuple[Float64, Float64]:
    """Centres p (n, d) and axes r B (n, m, d) of the spherical parts, in units of `norm`."""
    centres, basis = _nearest_points(descriptors)
    centres /= norm
    if not isinstance(descriptors, Points):
        far = np.linalg.norm(centres, axis=1)
        centres /= np.maximum(far, 1)[:, None]
        basis *= np.sqrt((1 - far**2).clip(0))[:, None, None]
    return centres, basis


@jit(REORDER)
def _pairs(
    centres1: Float64, axes1: Float64, centres2: Float64, axes2: Float64, rows: Integers, columns: Integers
) -> Float64:
    m1, m2, d = axes1.shape[1], axes2.shape[1], centres1.shape[1]
    result, rest = np.empty(len(rows)), np.empty(d)
    pull1, pull2, coupling, back = np.empty(m1), np.empty(m2), np.empty((m1, m2)), np.empty((m2, m1))
    u, v, other_u, other_v = np.empty(m1), np.empty(m2), np.empty(m1), np.empty(m2)
    for pair in range(len(rows)):
        i, j = rows[pair], columns[pair]
        _project(axes1[i], centres2[j], pull1)
        _project(axes2[j], centres1[i], pull2)
        for k in range(m2):
            _project(axes1[i], axes2[j, k], back[k])
            for t in range(m1):
                coupling[t, k] = back[k, t]
        _turn(pull2, v)
        best = _rise(pull1, pull2, coupling, back, u, v)
        if m1 > 0 and m2 > 0:
            _turn(pull1, other_u)
            _respond(pull2, back, other_u, other_v)
            if _rise(pull1, pull2, coupling, back, other_u, other_v) > best:
                u[:], v[:] = other_u, other_v
        rest[:] = centres1[i] - centres2[j]
        for k in range(m1):
            rest += u[k] * axes1[i, k]
        for k in range(m2):
            rest -= v[k] * axes2[j, k]
        result[pair] = length(rest)
    return result


@jit(REORDER)
def _rise(pull1: Float64, pull2: Float64, coupling: Float64, back: Float64, u: Float64, v: Float64) -> float:
    """Take turns from the unit vector `v` on; leaves the best unit vectors in `u`, `v`, returns x.y - p1.p2 there."""
    value = -np.inf
    for _ in range(_STEPS):
        _respond(pull1, coupling, v, u)
        reached = _respond(pull2, back, u, v)
        for k in range(len(u)):
            reached += pull1[k] * u[k]
        if reached - value <= _GAIN:
            break
        value = reached
    return float(reached)


@jit(REORDER)
def _respond(pull: Float64, coupling: Float64, other: Float64, result: Float64) -> float:
    """The unit vector along pull + coupling other, into `result`; returns the length before."""
    for k in range(len(pull)):
        total = pull[k]
        for t in range(len(other)):
            total += coupling[k, t] * other[t]
        result[k] = total
    return float(_turn(result, result))


@jit(REORDER)
def _turn(vector: Float64, result: Float64) -> float:
    """The unit vector along `vector`, into `result`; returns the length. Of zero, one in general position."""
    size = length(vector)
    for k in range(len(vector)):
        result[k] = vector[k] / size if size > 0.0 else 1.0 / np.sqrt(len(vector))
    return float(size)


@jit(REORDER)
def _project(axes: Float64, vector: Float64, result: Float64) -> None:
    """The products of the rows of `axes` (m, d) with `vector` (d,), into `result` (m,)."""
    for k in range(len(axes)):
        total = 0.0
        for t in range(len(vector)):
            total += axes[k, t] * vector[t]
        result[k] = total
