"""Exact full matrices and exact nearest neighbours, without ever holding all pairs.

The float32 kernel decides wherever its error cannot change the answer. Rows (or columns) whose candidates are closer
to each other than that error, or hold an almost parallel pair, are decided again in float64; remaining ties go to the
lower index.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from featveil.core import Descriptors, Flats, InputError
from featveil.core.arrays import Float32, Float64, Integers
from featveil.core.descriptors import as_flats
from featveil.distances.compiling import REORDER, jit
from featveil.distances.frames import FAR, Pair, frame
from featveil.distances.keeping import ColumnBest, merged
from featveil.distances.kernels import MARGIN, NEAR_ZERO
from featveil.distances.residual import pair_distances
from featveil.distances.tiles import Walker

SPARE = 2  # candidates kept beyond the k that are wanted, so that near ties can be settled among them

_CLEAR, _AMONG_LISTED, _DOUBTFUL = 0, 1, 2  # what the kernel's answer for a row is worth

# So few rows, such as a face to be identified, are decided in float64 at once: their distances take little room, and
# many near ties (templates that share a confounder) no second pass.
_FEW = 4

UNSEEN = FAR  # no candidate yet; padding columns hold the same value


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

    a: Flats
    b: Flats
    pair: Pair
    prepared: Walker | None = None

    @cached_property
    def walker(self) -> Walker:
        """Goes over all pairs in tiles of squared distances, in units of `pair.scale`."""
        return self.prepared or Walker(self.pair.first, self.pair.second)

    def swapped(self) -> "Comparison":
        """The same comparison seen from the other side."""
        return Comparison(self.b, self.a, self.pair.swapped())

    def exact(self, rows: Integers, columns: Integers) -> Float64:
        """Distances (k,) of the given pairs in float64."""
        return pair_distances(self.a, self.b, rows, columns)


def compare(a: Descriptors, b: Descriptors) -> Comparison:
    """Two sets of points or subspaces, in any combination; raises InputError as `frame` does."""
    first, second = as_flats(a), as_flats(b)
    return Comparison(first, second, frame(first, second))


def matrix(a: Descriptors, b: Descriptors) -> Float32:
    """Euclidean distances (n1, n2) between two sets of points or subspaces, of any dimensions.

    Raises InputError when descriptor sizes differ or the subspaces are too large to be told apart.
    """
    compared = compare(a, b)
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
    return searched(compare(a, b), k, columns)


def searched(compared: Comparison, k: int, columns: bool = False) -> tuple[Nearest, Integers]:
    """The k nearest columns of each row, and with `columns` the nearest row of each of those."""
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}")
    rows, candidates = len(compared.a), len(compared.b)
    if rows == 0 or candidates == 0:
        nothing = Nearest(np.full((rows, k), -1, np.int64), np.full((rows, k), np.inf))
        return nothing, np.full(candidates, -1, np.int64)
    walker = compared.walker
    if rows <= _FEW and not columns and not walker.of_points:
        return Nearest(*_decide_in_float64(compared, np.arange(rows), k)), np.empty(0, np.int64)
    values = np.full((rows, k + SPARE), UNSEEN, np.float32)
    indices = np.full((rows, k + SPARE), -1, np.int32)

    def scan(stripes: list[slice]) -> ColumnBest:
        seen = ColumnBest(walker.blocks * walker.width if columns else 0)
        walker.scan(stripes, values, indices, seen)
        return seen

    parts = walker.each_group(scan)
    back = _settle_columns(compared, parts) if columns else np.empty(0, np.int64)
    return settle(compared, values, indices), back


def settle(compared: Comparison, values: Float32, indices: NDArray[np.int32]) -> Nearest:
    """Turn float32 candidates, SPARE more than wanted, into exact neighbours.

    `values` and `indices` are (n, k + SPARE), sorted: squared scaled distances of the nearest candidates.
    """
    n, k = len(values), values.shape[1] - SPARE
    chosen, distances, verdict = np.empty((n, k), np.int64), np.empty((n, k)), np.empty(n, np.int8)
    _judge(values, indices, compared.pair.scale, chosen, distances, verdict)
    listed = np.flatnonzero(verdict == _AMONG_LISTED)
    if len(listed):
        chosen[listed], distances[listed] = _rank_listed(
            compared, listed, values[listed], indices[listed].astype(np.int64), k
        )
    doubtful = np.flatnonzero(verdict == _DOUBTFUL)
    # All that the kernel was unsure of are listed where the last one listed is not: with the exact distances of those
    # the rest is farther, or not.
    sure = doubtful[values[doubtful, -1] >= 0]
    if len(sure):
        picked, away = _rank_listed(compared, sure, values[sure], indices[sure].astype(np.int64), k)
        settled = (away[:, -1] / compared.pair.scale) ** 2 + MARGIN < values[sure, -1]
        chosen[sure[settled]], distances[sure[settled]] = picked[settled], away[settled]
        doubtful = np.setdiff1d(doubtful, sure[settled])
    if len(doubtful):
        chosen[doubtful], distances[doubtful] = _decide_in_float64(compared, doubtful, k)
    return Nearest(chosen, distances)


@jit(REORDER)
def _judge(
    values: Float32,
    indices: NDArray[np.int32],
    scale: float,
    chosen: Integers,
    distances: Float64,
    verdict: NDArray[np.int8],
) -> None:
    """The neighbours as the kernel sees them, and whether to trust it, row by row."""
    n, k = chosen.shape
    for i in range(n):
        close = values[i, 0] < NEAR_ZERO
        for place in range(k):
            chosen[i, place] = indices[i, place]
            squared = max(np.float64(values[i, place]), 0.0)
            distances[i, place] = np.sqrt(squared) * scale if indices[i, place] >= 0 else np.inf
            after = values[i, place + 1]
            close |= after - values[i, place] < MARGIN and after < UNSEEN
        # With the last candidate clearly farther than the k-th, all that the error could swap are listed.
        complete = values[i, 0] >= 0 and values[i, -1] > values[i, k - 1] + MARGIN
        verdict[i] = _CLEAR if not close else _AMONG_LISTED if complete else _DOUBTFUL


def _rank_listed(
    compared: Comparison, rows: Integers, values: Float32, columns: Integers, k: int
) -> tuple[Integers, Float64]:
    """The k nearest of the listed `columns` (len(rows), k + SPARE) of each of `rows`; -1 stands for none.

    `values` are what the kernel found, sorted. Those that its error could swap, or near zero, are computed in float64;
    the others keep their distances. Where it was unsure of one, whose place is unknown, all are computed.
    """
    apart = np.diff(values, axis=1) >= MARGIN
    close = (values < NEAR_ZERO) | (values[:, :1] < 0)
    close[:, 1:] |= ~apart
    close[:, :-1] |= ~apart
    distances = np.where(columns >= 0, np.sqrt(values.clip(0), dtype=np.float64) * compared.pair.scale, np.inf)
    i, place = np.nonzero(close & (columns >= 0))
    distances[i, place] = compared.exact(rows[i], columns[i, place])
    order = np.lexsort((columns, distances))[:, :k]
    return np.take_along_axis(columns, order, axis=1), np.take_along_axis(distances, order, axis=1)


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


def _settle_columns(compared: Comparison, parts: list[ColumnBest]) -> Integers:
    """The nearest row of each column; those too close to call are decided in float64."""
    columns = slice(0, len(compared.b))
    best, second, rows = (values[columns] for values in merged(parts))
    chosen = rows.astype(np.int64)
    close = (second - best < MARGIN) & (second < UNSEEN)
    unknown = best < 0
    if any(part.overflowed for part in parts):
        unknown |= close
    close &= ~unknown
    if close.any():
        own = np.flatnonzero(close)
        listed = [np.stack([part.rows[own], own], axis=1) for part in parts] + [part.ties for part in parts]
        pairs = np.concatenate(listed)
        i, j = pairs[(pairs[:, 0] >= 0) & close[pairs[:, 1]]].T
        order = np.lexsort((i, compared.exact(i, j), j))
        decided, first = np.unique(j[order], return_index=True)
        chosen[decided] = i[order][first]
    doubtful = np.flatnonzero(unknown)
    if len(doubtful):
        chosen[doubtful] = _decide_in_float64(compared.swapped(), doubtful, 1)[0][:, 0]
    return chosen
