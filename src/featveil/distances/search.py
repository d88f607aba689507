"""Exact full matrices and exact nearest neighbours, without ever holding all pairs.

The float32 kernel decides wherever its error cannot change the answer. Rows (or columns) whose candidates are closer
to each other than that error, or hold an almost parallel pair, are decided again in float64; remaining ties go to the
lower index.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from featveil.core import Descriptors, InputError
from featveil.core.arrays import Float32, Float64, Integers
from featveil.distances.frames import Pair, frame
from featveil.distances.residual import pair_distances
from featveil.distances.tiles import Walker, keep_column_best, keep_smallest

# In units of squared distance after scaling: twice the kernel's error; and where a distance itself needs float64.
MARGIN = np.float32(2e-6)
NEAR_ZERO = np.float32(1e-4)

_UNSEEN = np.float32(1e30)


@dataclass(frozen=True, eq=False)
class Nearest:
    """The k nearest columns of each row: `indices` (n, k) int64 and `distances` (n, k), nearest first.

    Where there are fewer than k columns, the rest is -1 and infinity.
    """

    indices: Integers
    distances: Float64


def matrix(a: Descriptors, b: Descriptors) -> Float32:
    """Euclidean distances (n1, n2) between two sets of points or subspaces, of any dimensions.

    Raises InputError when descriptor sizes differ or the subspaces are too large to be told apart.
    """
    pair = frame(a, b)
    result = np.empty((len(a), len(b)), np.float32)
    if result.size == 0:
        return result
    walker = Walker(pair.first, pair.second)

    def fill(stripe: slice) -> None:
        squared = walker.matrix(stripe)
        doubtful = np.argwhere(squared < NEAR_ZERO)
        part = np.sqrt(squared.clip(0)) * np.float32(pair.scale)
        rows, columns = doubtful[:, 0], doubtful[:, 1]
        part[rows, columns] = pair_distances(a, b, rows + stripe.start, columns)
        result[stripe] = part

    walker.each_stripe(fill)
    return result


def nearest(a: Descriptors, b: Descriptors, k: int = 2) -> Nearest:
    """The k nearest of `b` for each of `a`, exact; memory grows with n1 + n2, not with their product."""
    return _search(a, b, k, columns=False)[0]


def nearest_both_ways(a: Descriptors, b: Descriptors, k: int = 2) -> tuple[Nearest, Integers]:
    """`nearest(a, b, k)`, and for each of `b` the index of its nearest of `a` (n2,), in one pass over the pairs."""
    rows, columns = _search(a, b, k, columns=True)
    assert columns is not None
    return rows, columns


def _search(a: Descriptors, b: Descriptors, k: int, columns: bool) -> tuple[Nearest, Integers | None]:
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}")
    pair = frame(a, b)
    if len(a) == 0 or len(b) == 0:
        return _nothing(len(a), k), np.full(len(b), -1, np.int64) if columns else None
    walker = Walker(pair.first, pair.second)
    values = np.full((len(a), k + 1), _UNSEEN, np.float32)
    indices = np.full((len(a), k + 1), -1, np.int32)
    padded = -(-len(b) // walker.width) * walker.width

    def scan(stripes: list[slice]) -> tuple[Float32, Float32, NDArray[np.int32]]:
        best = np.full(padded if columns else 0, _UNSEEN, np.float32)
        second, rows = best.copy(), np.full(best.shape, -1, np.int32)
        for stripe in stripes:
            for column, tile in walker.tiles(stripe):
                keep_smallest(tile, column, values[stripe], indices[stripe])
                if columns:
                    lanes = slice(column, column + walker.width)
                    keep_column_best(tile, stripe.start, best[lanes], second[lanes], rows[lanes])
        return best, second, rows

    parts = walker.each_group(scan)
    found = settle(a, b, pair, values, indices)
    return found, _settle_columns(a, b, pair, parts) if columns else None


def settle(a: Descriptors, b: Descriptors, pair: Pair, values: Float32, indices: NDArray[np.int32]) -> Nearest:
    """Turn float32 candidates, one more than wanted, into exact neighbours.

    `values` and `indices` are (n, k + 1), sorted: squared scaled distances of the nearest k + 1 candidates.
    """
    k = values.shape[1] - 1
    gaps = np.diff(values, axis=1)
    unsure = (values[:, 0] < 0) | ((gaps < MARGIN) & (values[:, 1:] < _UNSEEN)).any(axis=1)
    chosen = indices[:, :k].astype(np.int64)
    distances = np.sqrt(values[:, :k].clip(0).astype(np.float64)) * pair.scale
    distances[chosen < 0] = np.inf
    small = np.argwhere((values[:, :k] < NEAR_ZERO) & (chosen >= 0))
    small = small[~unsure[small[:, 0]]]
    distances[small[:, 0], small[:, 1]] = pair_distances(a, b, small[:, 0], chosen[small[:, 0], small[:, 1]])
    doubtful = np.flatnonzero(unsure)
    if len(doubtful):
        chosen[doubtful], distances[doubtful] = _decide_in_float64(a, b, pair, doubtful, k)
    return Nearest(chosen, distances)


def _decide_in_float64(a: Descriptors, b: Descriptors, pair: Pair, rows: Integers, k: int) -> tuple[Integers, Float64]:
    """Exact neighbours (len(rows), k) of the given rows: every candidate within the error is recomputed."""
    walker = Walker(pair.first.take(rows), pair.second)
    chosen, distances = np.full((len(rows), k), -1, np.int64), np.full((len(rows), k), np.inf)
    known = min(k, len(b))

    def decide(stripe: slice) -> None:
        squared = walker.matrix(stripe)
        at = np.argwhere(squared < 0)
        exact = pair_distances(a, b, rows[stripe][at[:, 0]], at[:, 1])
        squared[at[:, 0], at[:, 1]] = (exact / pair.scale) ** 2
        limit = np.partition(squared, known - 1, axis=1)[:, known - 1] + MARGIN
        at = np.argwhere(squared <= limit[:, None])
        exact = pair_distances(a, b, rows[stripe][at[:, 0]], at[:, 1])
        order = np.lexsort((at[:, 1], exact, at[:, 0]))
        first = np.searchsorted(at[order, 0], np.arange(len(squared)))
        picked = order[first[:, None] + np.arange(known)]
        chosen[stripe, :known], distances[stripe, :known] = at[picked, 1], exact[picked]

    walker.each_stripe(decide)
    return chosen, distances


def _settle_columns(
    a: Descriptors, b: Descriptors, pair: Pair, parts: list[tuple[Float32, Float32, NDArray[np.int32]]]
) -> Integers:
    """Merge the stripes' column results and decide in float64 where two rows are too close to call."""
    best, second, rows = parts[0]
    for other_best, other_second, other_rows in parts[1:]:
        second = np.minimum(np.maximum(best, other_best), np.minimum(second, other_second))
        rows = np.where(other_best < best, other_rows, rows)
        best = np.minimum(best, other_best)
    chosen = rows[: len(b)].astype(np.int64)
    unsure = (best < 0) | ((second - best < MARGIN) & (second < _UNSEEN))
    doubtful = np.flatnonzero(unsure[: len(b)])
    if len(doubtful):
        chosen[doubtful] = _decide_in_float64(b, a, pair.swapped(), doubtful, 1)[0][:, 0]
    return chosen


def _nothing(n: int, k: int) -> Nearest:
    return Nearest(np.full((n, k), -1, np.int64), np.full((n, k), np.inf))
