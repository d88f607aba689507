"""Integer vectors inside a linear span that is known to a few digits, by lattice reduction (LLL, from python-flint).

A vector of an (m+1)-dimensional span is told by m+1 of its coordinates. That the others are whole numbers as well is
asked of as many of them as the precision calls for: each of those is worth log2(1 / noise) bits. Small whole numbers
at these coordinates, with a large weight on whatever lies outside the span, are a lattice whose short vectors are the
integer vectors of the span.
"""

from dataclasses import dataclass
from functools import cache
from itertools import combinations, product
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from featveil.attacks.lattice_parts.precision import SINGLE
from featveil.core import MissingExtraError
from featveil.core.arrays import Float64, Integers

NORM = 512.0  # of SIFT descriptors as whole numbers
_GRID = 256  # lattices are rounded to this part of a unit
_ENTRY_BITS = 9.0  # what has to be found out for each dimension of the span
_SPARE_COORDINATES = 12  # fewer, and vectors that are whole at the chosen coordinates only come up
_NOISE_LENGTH = 1000.0  # that the expected noise adds to a wanted vector, of length 300 to 600 without it
_MOST_NOISE = 2.0  # times the expected one: vectors further from the span are not in it
_MANY = 32
_FLAT = 1e-6  # of its own length: an offset that near to the span of the basis is in it


@dataclass(frozen=True, eq=False)
class Span:
    """The linear span of an affine subspace: orthonormal `rows` (m+1, d).

    `height` (d,) has product 1 with every point of the affine subspace, of which `offset` (d,) is the stored one.
    `precision` is the relative precision of the stored numbers.
    """

    rows: Float64
    height: Float64
    offset: Float64
    precision: float

    @classmethod
    def of(cls, offset: Float64, basis: Float64, precision: float) -> Self | None:
        """The span of offset + span(basis), or None where that holds the origin and so has no height."""
        directions = np.linalg.qr(basis.T).Q.T
        upright = offset - offset @ directions.T @ directions
        distance = np.linalg.norm(upright)
        if distance < _FLAT * np.linalg.norm(offset) or distance == 0:
            return None
        return cls(np.vstack([directions, upright / distance]), upright / distance**2, offset, precision)

    def noise(self, vectors: Float64) -> Float64:
        """How far (k,) a coordinate of `vectors` (k, d) of the span is off, root mean square.

        Rounding moves a number by 0.4 of the precision, root mean square, and every stored row counts as much as the
        vector takes of it. What the vector is a sum or difference of was rounded to float32 before it was lifted.
        """
        parts = vectors @ self.height
        taken = parts**2 * (self.offset @ self.offset) + ((vectors - parts[:, None] * self.offset) ** 2).sum(axis=1)
        rounded = self.precision**2 * taken + SINGLE**2 * 3 * NORM**2
        return np.asarray(0.4 * np.sqrt(rounded / self.rows.shape[1]))

    @property
    def usual_noise(self) -> float:
        """The noise of a vector of norm NORM that is on the affine subspace when scaled to norm 1."""
        taken = 1 + 2 * (self.offset @ self.offset)
        return float(0.4 * self.precision * NORM * np.sqrt(taken / self.rows.shape[1]))


def require_flint() -> Any:
    """The module flint; raises MissingExtraError where it is not installed."""
    try:
        import flint
    except ImportError as error:
        raise MissingExtraError("python-flint", "attacks") from error
    return flint


def shortened(rows: Float64) -> Float64:
    """Whole numbers (k, k) that combine the independent `rows` (k, c) into short ones, shortest about first."""
    matrix = require_flint().fmpz_mat(np.rint(rows * _GRID).astype(np.int64).tolist())
    combined = matrix.lll(transform=True)[1].tolist()
    return np.array([[float(int(value)) for value in row] for row in combined])


def integer_vectors(span: Span, lengths: Float64, rng: np.random.Generator | None = None) -> Float64:
    """Integer vectors (r, d) of the span, mostly independent ones, as whole float64; none where it is too inexact.

    `lengths` (d, c): vectors that are short after a product with it are sought. With an `rng` other coordinates are
    asked than without one.
    """
    dimensions, d = span.rows.shape
    if dimensions >= d or span.usual_noise > _off_by_one(d):
        return np.empty((0, d))
    chosen = _coordinates(span, rng)
    seen = span.rows[:, chosen]
    outside = np.linalg.svd(seen)[2][len(seen) :]
    inverse = np.linalg.pinv(seen)
    # The product with `lengths` seen from the span: as many columns as it has dimensions.
    inside = np.linalg.qr((span.rows @ lengths).T).R.T
    weight = _NOISE_LENGTH / (span.usual_noise * np.sqrt(len(outside)))
    short = shortened(np.hstack([inverse @ inside, weight * outside.T]))
    whole = np.rint(short @ inverse @ span.rows)
    return np.asarray(whole[(whole[:, chosen] == short).all(axis=1) & _inside(whole, span)])


def _coordinates(span: Span, rng: np.random.Generator | None) -> Integers:
    """Which coordinates are looked at: those that tell the span's vectors apart best, each time m+1 together."""
    dimensions, d = span.rows.shape
    bits = max(np.log2(1 / (5 * span.usual_noise)), 1.0)
    wanted = min(dimensions + int(np.ceil(dimensions * _ENTRY_BITS / bits)) + _SPARE_COORDINATES, d)
    left = np.arange(d) if rng is None else rng.permutation(d)[: (wanted + d) // 2]
    chosen: list[int] = []
    while len(chosen) < wanted:
        best = qr(span.rows[:, left], mode="r", pivoting=True)[1][:dimensions]
        chosen.extend(left[best])
        left = np.delete(left, best)
    return np.array(chosen[:wanted])


def _inside(whole: Float64, span: Span) -> NDArray[np.bool_]:
    """Which integer vectors (k, d) lie in the span as far as its precision tells."""
    away = np.sqrt(np.mean((whole - whole @ span.rows.T @ span.rows) ** 2, axis=1))
    limit = np.minimum(_MOST_NOISE * span.noise(whole), _off_by_one(whole.shape[1]))
    return np.asarray(whole.any(axis=1) & (away < limit))


def _off_by_one(d: int) -> float:
    """Less than the root mean square distance of a vector of which one entry is wrong by 1."""
    return float(0.9 / np.sqrt(d))


@cache
def small_combinations(count: int) -> Float64:
    """Sums and differences of one to three (of many: two) of `count` vectors, one of each pair of opposites."""
    rows = []
    for size in range(1, min(count, 3 if count <= _MANY else 2) + 1):
        for places in combinations(range(count), size):
            for signs in product((1.0, -1.0), repeat=size - 1):
                row = np.zeros(count)
                row[list(places)] = (1.0, *signs)
                rows.append(row)
    return np.array(rows)
