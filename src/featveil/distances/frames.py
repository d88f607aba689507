"""Descriptors of either kind as stacks of vectors that one matrix product can compare.

Both sets are moved by one common point and scaled by one common factor, which changes no ranking. Each subspace is
then written as its point nearest the origin, d0, found in float64, and an orthonormal basis D (so D d0 = 0). A stack
is [d0; D], so a plain point is a stack of one row.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from featveil.core import Flats, InputError, Points
from featveil.core.arrays import Float32, Float64, Integers
from featveil.distances.compiling import REORDER, jit
from featveil.distances.dual import complement
from featveil.distances.orthonormal import length, orthonormalise, remove

_CHUNK = 2048
_ROUNDING = 2e-6  # a basis this close to orthonormal is as good as float32 can hold
_NOTHING = 1e-36  # squared length that is rounding noise, and whose inverse float32 can hardly hold
FAR = np.float32(1e30)  # squared length of padding columns: never nearest, and still finite


@dataclass(frozen=True, eq=False)
class Frames:
    """`stack` (n, rows, d) float32 and `norms` (n,) float32, the squared length of each d0.

    In a `complementary` stack the rows after d0 are the subspace's normals instead of its directions.
    """

    stack: Float32
    norms: Float32
    complementary: bool = False

    def __len__(self) -> int:
        return len(self.norms)

    @property
    def rows(self) -> int:
        """Vectors in each stack: 1 + the dimension, padding included."""
        return int(self.stack.shape[1])

    @property
    def reach(self) -> float:
        """The largest squared length of a d0, also where points count with norm 0."""
        if self.norms.any():
            return float(self.norms.max())
        points = self.stack[:, 0].astype(np.float64)
        return float(np.einsum("nd,nd->n", points, points).max(initial=0.0))

    @cached_property
    def flat(self) -> Float32:
        """The stack as one matrix (n * rows, d), the left operand of the product."""
        return self.stack.reshape(-1, self.stack.shape[2])

    def take(self, indices: Integers) -> "Frames":
        """The frames at `indices`."""
        return Frames(np.ascontiguousarray(self.stack[indices]), self.norms[indices], self.complementary)

    def blocks(self, width: int) -> tuple[Float32, Float32]:
        """The right operand: (blocks, rows * width, d), lanes of one row side by side, and norms (blocks, width)."""
        count = -(-len(self) // width)
        n, rows, d = self.stack.shape
        planes = np.zeros((count, rows, width, d), np.float32)
        norms = np.full((count, width), FAR, np.float32)
        for block in range(count):
            part = slice(block * width, min((block + 1) * width, n))
            lanes = part.stop - part.start
            planes[block, :, :lanes] = self.stack[part].transpose(1, 0, 2)
            norms[block, :lanes] = self.norms[part]
        return planes.reshape(count, rows * width, d), norms


@dataclass(frozen=True, eq=False)
class Pair:
    """Two comparable sets of frames around one `centre` (d,), and the `scale` to multiply their distances by."""

    first: Frames
    second: Frames
    centre: Float64
    scale: float

    def swapped(self) -> "Pair":
        """The same comparison with the roles exchanged."""
        return Pair(self.second, self.first, self.centre, self.scale)

    def replaced(self, a: Flats) -> "Pair":
        """Other descriptors in place of the first ones, of as many dimensions and compared with the same frames."""
        if self.first.complementary or self.second.complementary:
            first = _complementary(a, self.centre)
        else:
            first = _frames(a, self.centre, self.first.rows)
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
        rows_a, rows_b = _padded(a.dimension, b.dimension)
        first, second = _frames(a, centre, rows_a), _frames(b, centre, rows_b)
    largest = max(first.reach, second.reach)
    scale = room * float(np.sqrt(largest)) if largest > _NOTHING else 1.0
    return Pair(_scaled(first, scale), _scaled(second, scale), centre, scale)


def _better_in_dual(a: Flats, b: Flats) -> bool:
    """Points against subspaces that have fewer normals than directions (supplement A)."""
    return min(a.dimension, b.dimension) == 0 and 2 * max(a.dimension, b.dimension) >= a.size


def _padded(m1: int, m2: int) -> tuple[int, int]:
    """Rows of each stack. Large solves run in blocks of four, so zero rows fill them up; they change nothing."""
    if m1 * m2 <= LARGEST_UNROLLED:
        return m1 + 1, m2 + 1
    return -(-m1 // 4) * 4 + 1, -(-m2 // 4) * 4 + 1


LARGEST_UNROLLED = 64


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


def _frames(descriptors: Flats, centre: Float64, rows: int) -> Frames:
    n, d = len(descriptors), descriptors.size
    stack = np.empty((n, rows, d), np.float32)
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
    """Stacks [d0; D; zeros] around `centre`, with d0 found in float64, and their norms."""
    n, m, d = basis.shape
    anchor = np.empty(d)
    for i in range(n):
        _anchor(points[i], basis[i], centre, anchor)
        for t in range(d):
            stack[i, 0, t] = anchor[t]
        for k in range(m):
            for t in range(d):
                stack[i, k + 1, t] = basis[i, k, t]
        stack[i, m + 1 :] = np.float32(0)
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
        points = _frames(descriptors, centre, 1)
        return Frames(points.stack, np.zeros_like(points.norms))
    near = _frames(descriptors, centre, descriptors.dimension + 1)
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
