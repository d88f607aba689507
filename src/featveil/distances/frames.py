"""Descriptors of either kind as stacks of vectors that one matrix product can compare.

Both sets are moved by one common point and scaled by one common factor, which changes no ranking. Each subspace is
then rewritten in float64 as its point nearest the origin, d0, and an orthonormal basis D (D d0 = 0). A stack is
[d0; D], so a plain point is a stack of one row.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from featveil.core import Descriptors, InputError, Points, Subspaces
from featveil.core.arrays import Float32, Float64, Integers
from featveil.distances.dual import complement
from featveil.distances.orthonormal import orthonormalise, remove_span

_CHUNK = 2048
_FAR = np.float32(1e30)  # squared length of padding columns: never nearest, and still finite


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
        norms = np.full((count, width), _FAR, np.float32)
        for block in range(count):
            part = slice(block * width, min((block + 1) * width, n))
            lanes = part.stop - part.start
            planes[block, :, :lanes] = self.stack[part].transpose(1, 0, 2)
            norms[block, :lanes] = self.norms[part]
        return planes.reshape(count, rows * width, d), norms


@dataclass(frozen=True, eq=False)
class Pair:
    """Two comparable sets of frames, and the length by which distances between them must be multiplied."""

    first: Frames
    second: Frames
    scale: float

    def swapped(self) -> "Pair":
        """The same comparison with the roles exchanged."""
        return Pair(self.second, self.first, self.scale)


def frame(a: Descriptors, b: Descriptors) -> Pair:
    """Bring two sets of descriptors to a common origin and scale.

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
    largest = max(first.norms.max(initial=0.0), second.norms.max(initial=0.0))
    scale = float(np.sqrt(largest)) or 1.0
    return Pair(_scaled(first, scale), _scaled(second, scale), scale)


def _better_in_dual(a: Descriptors, b: Descriptors) -> bool:
    """Points against subspaces that have fewer normals than directions (supplement A)."""
    return min(a.dimension, b.dimension) == 0 and 2 * max(a.dimension, b.dimension) >= a.size


def _padded(m1: int, m2: int) -> tuple[int, int]:
    """Rows of each stack. Large solves run in blocks of four, so zero rows fill them up; they change nothing."""
    if m1 * m2 <= LARGEST_UNROLLED:
        return m1 + 1, m2 + 1
    return -(-m1 // 4) * 4 + 1, -(-m2 // 4) * 4 + 1


LARGEST_UNROLLED = 64


def _anchors(descriptors: Descriptors, part: slice) -> tuple[Float64, Float64]:
    """A point of each descriptor (n, d) and its orthonormal basis (n, m, d), in float64."""
    match descriptors:
        case Points():
            values = descriptors.values[part].astype(np.float64)
            return values, np.empty((len(values), 0, descriptors.size))
        case Subspaces():
            basis = descriptors.basis[part].astype(np.float64)
            orthonormalise(basis)
            return descriptors.offset[part].astype(np.float64), basis


def _sum_of_anchors(descriptors: Descriptors) -> Float64:
    """Sum over a sample of descriptors of the point nearest the origin, scaled up to all of them."""
    step = max(1, len(descriptors) // 512)
    sample = slice(None, None, step)
    points, basis = _anchors(descriptors, sample)
    remove_span(points, basis)
    mean = points.sum(axis=0) / max(len(points), 1)
    return np.asarray(mean * len(descriptors))


def _frames(descriptors: Descriptors, centre: Float64, rows: int) -> Frames:
    stack = np.zeros((len(descriptors), rows, descriptors.size), np.float32)
    norms = np.empty(len(descriptors), np.float32)
    for start in range(0, len(descriptors), _CHUNK):
        part = slice(start, min(start + _CHUNK, len(descriptors)))
        points, basis = _anchors(descriptors, part)
        points -= centre
        remove_span(points, basis)
        stack[part, 0] = points
        stack[part, 1 : 1 + basis.shape[1]] = basis
        norms[part] = np.einsum("nd,nd->n", points, points)
    return Frames(stack, norms)


def _complementary(descriptors: Descriptors, centre: Float64) -> Frames:
    """Frames of normals for subspaces; points keep their vector but, as the kernel wants it, count with norm 0."""
    if isinstance(descriptors, Points):
        points = _frames(descriptors, centre, 1)
        return Frames(points.stack, np.zeros_like(points.norms))
    n, d = descriptors.offset.shape
    stack = np.empty((n, d - descriptors.dimension + 1, d), np.float32)
    norms = np.empty(n, np.float32)
    for start in range(0, n, _CHUNK):
        part = slice(start, min(start + _CHUNK, n))
        points, basis = _anchors(descriptors, part)
        points -= centre
        remove_span(points, basis)
        stack[part, 0], stack[part, 1:] = points, complement(basis)
        norms[part] = np.einsum("nd,nd->n", points, points)
    return Frames(stack, norms, complementary=True)


def _scaled(frames: Frames, scale: float) -> Frames:
    frames.stack[:, 0] /= np.float32(scale)
    frames.norms[:] /= np.float32(scale * scale)
    return frames
