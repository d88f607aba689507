"""Exact full matrices and exact nearest neighbours, without ever holding all pairs.

The float32 kernel decides wherever its error cannot change the answer. Rows (or columns) whose candidates are closer
to each other than that error, or hold an almost parallel pair, are decided again in float64; remaining ties go to the
lower index.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from featveil.core import Descriptors, InputError
from featveil.core.arrays import Float32, Float64, Integers
from featveil.distances.frames import FAR, Pair, frame
from featveil.distances.residual import pair_distances
from featveil.distances.tiles import Walker, keep_column_best, keep_smallest

# In units of squared distance after scaling. The kernel was seen to be off by up to 4e-6, so two values that differ by
# less than twice that, with some to spare, are compared in float64; a distance that is almost zero is computed there.
MARGIN = np.float32(1e-5)
NEAR_ZERO = np.float32(1e-4)

UNSEEN = FAR  # no candidate yet; padding columns hold the same value

_ColumnBest = tuple[Float32, Float32, NDArray[np.int32]]


@dataclass(frozen=True, eq=False)
class Nearest:
    """The k nearest columns of each row: `indices` (n, k) int64 and `distances` (n, k), nearest first.

    Where there are fewer than k columns, the rest is -1 and infinity.
    """

    indices: Integers
    distances: Float64


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two sets of descriptors, ready for the kernels."""

    a: Descriptors
    b: Descriptors
    pair: Pair

    @cached_property
    def walker(self) -> Walker:
        """Goes over all pairs in tiles of squared distances, in units of `pair.scale`."""
        return Walker(self.pair.first, self.pair.second)

    def swapped(self) -> "Comparison":
        """The same comparison seen from the other side."""
        return Comparison(self.b, self.a, self.pair.swapped())

    def exact(self, rows: Integers, columns: Integers) -> Float64:
        """Distances (k,) of the given pairs in float64."""
        return pair_distances(self.a, self.b, rows, columns)


def matrix(a: Descriptors, b: Descriptors) -> Float32:
    """Euclidean distances (n1, n2) between two sets of points or subspaces, of any dimensions.

    Raises InputError when descriptor sizes differ or the subspaces are too large to be told apart.
    """
    compared = Comparison(a, b, frame(a, b))
    result = np.empty((len(a), len(b)), np.float32)
    if result.size == 0:
        return result

    def fill(stripe: slice) -> None:
        squared = compared.walker.matrix(stripe)
        rows, columns = np.nonzero(squared < NEAR_ZERO)
        part = np.sqrt(squared.clip(0)) * np.float32(compared.pair.scale)
        part[rows, columns] = compared.exact(rows + stripe.start, columns)
        result[stripe] = part

    compared.walker.each_stripe(fill)
    return result


def nearest(a: Descriptors, b: Descriptors, k: int = 2) -> Nearest:
    """The k nearest of `b` for each of `a`, exact; memory grows with n1 + n2, not with their product."""
    return _search(a, b, k, columns=False)[0]


def nearest_both_ways(a: Descriptors, b: Descriptors, k: int = 2) -> tuple[Nearest, Integers]:
    """`nearest(a, b, k)`, and for each of `b` the index of its nearest of `a` (n2,), in one pass over the pairs."""
    return _search(a, b, k, columns=True)


def _search(a: Descriptors, b: Descriptors, k: int, columns: bool) -> tuple[Nearest, Integers]:
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}")
    compared = Comparison(a, b, frame(a, b))
    if len(a) == 0 or len(b) == 0:
        nothing = Nearest(np.full((len(a), k), -1, np.int64), np.full((len(a), k), np.inf))
        return nothing, np.full(len(b), -1, np.int64)
    walker = compared.walker
    values = np.full((len(a), k + 1), UNSEEN, np.float32)
    indices = np.full((len(a), k + 1), -1, np.int32)

    def scan(stripes: list[slice]) -> _ColumnBest:
        best = np.full(walker.blocks * walker.width if columns else 0, UNSEEN, np.float32)
        second, rows = best.copy(), np.full(best.shape, -1, np.int32)
        for stripe in stripes:
            for column, tile in walker.tiles(stripe):
                keep_smallest(tile, column, values[stripe], indices[stripe])
                if columns:
                    lanes = slice(column, column + walker.width)
                    keep_column_best(tile, stripe.start, best[lanes], second[lanes], rows[lanes])
        return best, second, rows

    parts = walker.each_group(scan)
    back = _settle_columns(compared, parts) if columns else np.empty(0, np.int64)
    return settle(compared, values, indices), back


def settle(compared: Comparison, values: Float32, indices: NDArray[np.int32]) -> Nearest:
    """Turn float32 candidates, one more than wanted, into exact neighbours.

    `values` and `indices` are (n, k + 1), sorted: squared scaled distances of the nearest k + 1 candidates.
    """
    k = values.shape[1] - 1
    gaps = np.diff(values, axis=1)
    unsure = (values[:, 0] < 0) | ((gaps < MARGIN) & (values[:, 1:] < UNSEEN)).any(axis=1)
    chosen = indices[:, :k].astype(np.int64)
    distances = np.sqrt(values[:, :k].clip(0).astype(np.float64)) * compared.pair.scale
    distances[chosen < 0] = np.inf
    rows, places = np.nonzero((values[:, :k] < NEAR_ZERO) & (chosen >= 0) & ~unsure[:, None])
    distances[rows, places] = compared.exact(rows, chosen[rows, places])
    doubtful = np.flatnonzero(unsure)
    if len(doubtful):
        chosen[doubtful], distances[doubtful] = _decide_in_float64(compared, doubtful, k)
    return Nearest(chosen, distances)


def _decide_in_float64(compared: Comparison, rows: Integers, k: int) -> tuple[Integers, Float64]:
    """Exact neighbours (len(rows), k) of the given rows: every candidate within the error is recomputed."""
    walker = compared.walker.rows(rows)
    chosen, distances = np.full((len(rows), k), -1, np.int64), np.full((len(rows), k), np.inf)
    known = min(k, walker.count)

    def decide(stripe: slice) -> None:
        squared, own = walker.matrix(stripe), rows[stripe]
        i, j = np.nonzero(squared < 0)
        squared[i, j] = (compared.exact(own[i], j) / compared.pair.scale) ** 2
        limit = np.partition(squared, known - 1, axis=1)[:, known - 1] + MARGIN
        i, j = np.nonzero(squared <= limit[:, None])
        exact = compared.exact(own[i], j)
        order = np.lexsort((j, exact, i))
        first = np.searchsorted(i[order], np.arange(len(squared)))
        picked = order[first[:, None] + np.arange(known)]
        chosen[stripe, :known], distances[stripe, :known] = j[picked], exact[picked]

    walker.each_stripe(decide)
    return chosen, distances


def _settle_columns(compared: Comparison, parts: list[_ColumnBest]) -> Integers:
    """Merge the groups' column results and decide in float64 where two rows are too close to call."""
    best, second, rows = parts[0]
    for other_best, other_second, other_rows in parts[1:]:
        second = np.minimum(np.maximum(best, other_best), np.minimum(second, other_second))
        # Groups interleave their rows, so of two equal values the lower row must win.
        better = (other_best < best) | ((other_best == best) & (other_rows < rows))
        rows = np.where(better, other_rows, rows)
        best = np.minimum(best, other_best)
    columns = slice(0, len(compared.b))
    chosen = rows[columns].astype(np.int64)
    unsure = (best < 0) | ((second - best < MARGIN) & (second < UNSEEN))
    doubtful = np.flatnonzero(unsure[columns])
    if len(doubtful):
        chosen[doubtful] = _decide_in_float64(compared.swapped(), doubtful, 1)[0][:, 0]
    return chosen
