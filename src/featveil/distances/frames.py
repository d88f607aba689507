"""Descriptors of either kind as stacks of vectors that one matrix product can compare.

Both sets are moved by one common point and scaled by one common factor, which changes no ranking. Each subspace is
then written as its point nearest the origin, d0, computed in float64, and an orthonormal basis D (so D d0 = 0). A stack
is [d0; D], so a plain point is a stack of one row.
"""

from dataclasses import dataclass

import numpy as np

from featveil.core import Flats, InputError, Points
from featveil.core.arrays import Float32, Float64
from featveil.distances.backends import Frames
from featveil.distances.backends.compiling import REORDER, jit
from featveil.distances.dual import complement
from featveil.distances.orthonormal import length, orthonormalise, remove

_CHUNK = 2048
_ROUNDING = 2e-6  # a basis this close to orthonormal is as good as float32 can hold
_NOTHING = 1e-36  # squared length that is rounding noise, and whose inverse float32 can hardly hold


@dataclass(frozen=True, eq=False)
class Pair:
    """Two comparable sets of frames around one `centre` (d,), and the `scale` to multiply their distances by."""

    first: Frames
    second: Frames
    centre: Float64
    scale: float

    @property
    def complementary(self) -> bool:
        """Whether one side is given by its normals."""
        return self.first.complementary or self.second.complementary

    @property
    def of_points(self) -> bool:
        """Whether both sides are points, for which there is a shorter way."""
        return self.first.rows == self.second.rows == 1

    def swapped(self) -> "Pair":
        """The same comparison with the roles exchanged."""
        return Pair(self.second, self.first, self.centre, self.scale)

    def replaced(self, a: Flats) -> "Pair":
        """Other descriptors in place of the first ones, of as many dimensions and compared with the same frames."""
        first = _complementary(a, self.centre) if self.complementary else _frames(a, self.centre)
        return Pair(_scaled(first, self.scale), self.second, self.centre, self.scale)


def frame(a: Flats, b: Flats, room: float = 1.0) -> Pair:
    """Bring two sets of descriptors to a common origin and scale, where the farthest one has length 1 / `room`.

    Raises InputError when their sizes differ, or when every two of the subspaces would meet (m1 + m2 >= d).
    """
    if a.size != b.size:
        raise InputError(f"descriptor sizes differ: {a.size} and {b.size}; compare features of one kind")
    if a.dimension and b.dimension and a.dimension + b.dimension >= a.size:
        raise InputError(
            f"subspaces of dimension {a.dimension} and {b.dimension} in {a.size}-d space always meet, so their"
            f" distance says nothing: keep the sum of the dimensions below {a.size}"
        )
    centre = (_sum_of_anchors(a) + _sum_of_anchors(b)) / max(len(a) + len(b), 1)
    if _better_in_dual(a, b):
        first, second = _complementary(a, centre), _complementary(b, centre)
    else:
        first, second = _frames(a, centre), _frames(b, centre)
    largest = max(first.reach, second.reach)
    scale = room * float(np.sqrt(largest)) if largest > _NOTHING else 1.0
    return Pair(_scaled(first, scale), _scaled(second, scale), centre, scale)


def _better_in_dual(a: Flats, b: Flats) -> bool:
    """Points against subspaces that have fewer normals than directions (supplement A)."""
    return min(a.dimension, b.dimension) == 0 and 2 * max(a.dimension, b.dimension) >= a.size


def _tight(descriptors: Flats) -> tuple[Float32, Float32]:
    """A point (n, d) and a basis (n, m, d) of each descriptor, orthonormal up to float32 rounding."""
    if isinstance(descriptors, Points):
        return descriptors.values, np.empty((len(descriptors), 0, descriptors.size), np.float32)
    if descriptors.looseness <= _ROUNDING:
        return descriptors.offset, descriptors.basis
    basis = descriptors.basis.astype(np.float64)
    orthonormalise(basis)
    return descriptors.offset, basis.astype(np.float32)


def _sum_of_anchors(descriptors: Flats) -> Float64:
    """About the sum, over all descriptors, of the point nearest the origin (from a sample of them)."""
    if len(descriptors) == 0:
        return np.zeros(descriptors.size)
    return np.asarray(_sample_mean(*_tight(descriptors)) * len(descriptors))


def _frames(descriptors: Flats, centre: Float64) -> Frames:
    n, d = len(descriptors), descriptors.size
    stack = np.empty((n, descriptors.dimension + 1, d), np.float32)
    norms = np.empty(n, np.float32)
    _fill(*_tight(descriptors), centre, stack, norms)
    return Frames(stack, norms)


@jit(REORDER)
def _sample_mean(points: Float32, basis: Float32) -> Float64:
    """Mean anchor (d,) of about 32 of the given subspaces."""
    n, d = points.shape
    step = max(1, n // 32)
    origin, anchor, total = np.zeros(d), np.empty(d), np.zeros(d)
    for i in range(0, n, step):
        _anchor(points[i], basis[i], origin, anchor)
        for t in range(d):
            total[t] += anchor[t]
    return total / len(range(0, n, step))


@jit(REORDER)
def _fill(points: Float32, basis: Float32, centre: Float64, stack: Float32, norms: Float32) -> None:
    """Stacks [d0; D] around `centre`, with d0 computed in float64, and their norms."""
    n, m, d = basis.shape
    anchor = np.empty(d)
    for i in range(n):
        _anchor(points[i], basis[i], centre, anchor)
        for t in range(d):
            stack[i, 0, t] = anchor[t]
        for k in range(m):
            for t in range(d):
                stack[i, k + 1, t] = basis[i, k, t]
        norms[i] = length(anchor) ** 2


@jit(REORDER)
def _anchor(point: Float32, basis: Float32, centre: Float64, result: Float64) -> None:
    """The point of a subspace nearest `centre`, seen from there, into `result` (d,)."""
    for t in range(len(point)):
        result[t] = point[t] - centre[t]
    for _ in range(2):
        for k in range(len(basis)):
            remove(result, basis[k])


def _complementary(descriptors: Flats, centre: Float64) -> Frames:
    """Frames of normals for subspaces; points keep their vector but, as the kernel wants it, count with norm 0."""
    if isinstance(descriptors, Points):
        points = _frames(descriptors, centre)
        return Frames(points.stack, np.zeros_like(points.norms))
    near = _frames(descriptors, centre)
    stack = np.empty((len(near), descriptors.size - descriptors.dimension + 1, descriptors.size), np.float32)
    stack[:, 0] = near.stack[:, 0]
    for start in range(0, len(near), _CHUNK):
        part = slice(start, start + _CHUNK)
        stack[part, 1:] = complement(descriptors.basis[part])
    return Frames(stack, near.norms, complementary=True)


def _scaled(frames: Frames, scale: float) -> Frames:
    _shrink(frames.stack, frames.norms, np.float32(1 / scale), np.float32(1 / (scale * scale)))
    return frames


@jit(REORDER)
def _shrink(stack: Float32, norms: Float32, factor: np.float32, squared: np.float32) -> None:
    n, _, d = stack.shape
    for i in range(n):
        norms[i] *= squared
        for t in range(d):
            stack[i, 0, t] *= factor
