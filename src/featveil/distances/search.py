"""Exact full matrices and exact nearest neighbours, without ever holding all pairs.

The float32 kernel of a backend decides wherever its error cannot change the answer. Rows (or columns) whose candidates
are closer to each other than that error, or hold an almost parallel pair, are decided again in float64; remaining ties
go to the lower index.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from featveil.core import Descriptors, Flats, InputError, Points, Subspaces
from featveil.core.arrays import Float32, Float64, Integers
from featveil.core.descriptors import as_flats
from featveil.distances.backends import FAR, MARGIN, Columns, Indices, Rows, Walker, walker
from featveil.distances.backends.compiling import REORDER, jit
from featveil.distances.frames import Pair, frame
from featveil.distances.orthonormal import pair_distances
from featveil.distances.threads import each_stripe

NEAR_ZERO = np.float32(1e-4)  # squared distances, after scaling, below which float32 has too few digits

SPARE = 2  # candidates kept beyond the k that are wanted, so that near ties can be settled among them

_CLEAR, _AMONG_LISTED, _DOUBTFUL = 0, 1, 2  # what the kernel's answer for a row is worth

# So few rows, such as a face to be identified, are decided in float64 at once: their distances take little room, and
# many near ties (templates that share a confounder) no second pass.
_FEW = 4

_ROOM = 1.5  # how much farther from the middle than every entry a query of a gallery may lie


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
        """Goes over all pairs; its squared distances are in units of `pair.scale`."""
        return self.prepared or walker(self.pair.first, self.pair.second)

    def swapped(self) -> "Comparison":
        """The same comparison seen from the other side."""
        return Comparison(self.b, self.a, self.pair.swapped())

    def matrices(self, work: Callable[[slice, Float32], None], rows: Walker | None = None) -> None:
        """Hand all squared distances, stripe by stripe, to `work`; of some rows, where they have a walker."""
        over = rows or self.walker
        stripes = over.stripes()
        pairs = stripes[-1].stop * len(self.b)
        each_stripe(stripes, pairs, lambda stripe: work(stripe, over.matrix(stripe)))

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

    def fill(stripe: slice, squared: Float32) -> None:
        rows, columns = np.nonzero(squared < NEAR_ZERO)
        part = np.sqrt(squared.clip(0)) * np.float32(compared.pair.scale)
        part[rows, columns] = compared.exact(rows + stripe.start, columns)
        result[stripe] = part

    compared.matrices(fill)
    return result


def nearest(a: Descriptors, b: Descriptors, k: int = 2) -> Nearest:
    """The k nearest of `b` for each of `a`, exact; memory grows with n1 + n2, not with their product."""
    return _search(a, b, k, columns=False)[0]


def nearest_both_ways(a: Descriptors, b: Descriptors, k: int = 2) -> tuple[Nearest, Integers]:
    """`nearest(a, b, k)`, and for each of `b` the index of its nearest of `a` (n2,), in one pass over the pairs."""
    return _search(a, b, k, columns=True)


class Gallery:
    """Searches `entries`, points or subspaces, for the nearest of each query; exact, as `nearest` is.

    For those that are searched again and again, such as enrolled templates: what can be done once is.
    """

    def __init__(self, entries: Flats) -> None:
        self.entries = as_flats(entries)
        self._prepared: dict[int, tuple[Pair, Walker]] = {}

    def __len__(self) -> int:
        return len(self.entries)

    def nearest(self, queries: Flats, k: int = 1) -> Nearest:
        """The k nearest entries of each of `queries`; raises InputError as `distances.nearest` does."""
        queries = as_flats(queries)
        if len(self.entries) == 0 or len(queries) == 0 or queries.size != self.entries.size:
            return nearest(queries, self.entries, k)
        prepared, entries = self._for(queries)
        pair = prepared.replaced(queries)
        if pair.first.reach > 1:  # the kernel's error is known for what lies within the scale
            return nearest(queries, self.entries, k)
        compared = Comparison(queries, self.entries, pair, entries.against(pair.first))
        return searched(compared, k)[0]

    def _for(self, queries: Flats) -> tuple[Pair, Walker]:
        """The entries, ready for queries of that dimension."""
        m = queries.dimension
        if m not in self._prepared:
            pair = frame(_nothing(m, queries.size), self.entries, _ROOM)
            self._prepared[m] = pair, walker(pair.first, pair.second)
        return self._prepared[m]


def _search(a: Descriptors, b: Descriptors, k: int, columns: bool) -> tuple[Nearest, Integers]:
    return searched(compare(a, b), k, columns)


def searched(compared: Comparison, k: int, columns: bool = False) -> tuple[Nearest, Integers]:
    """The k nearest columns of each row, and with `columns` the nearest row of each of those."""
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}")
    rows, across = len(compared.a), len(compared.b)
    if rows == 0 or across == 0:
        nothing = Nearest(np.full((rows, k), -1, np.int64), np.full((rows, k), np.inf))
        return nothing, np.full(across, -1, np.int64)
    if rows <= _FEW and not columns and not compared.pair.of_points:
        return Nearest(*_decide_in_float64(compared, np.arange(rows), k)), np.empty(0, np.int64)
    if not columns:
        return settle(compared, compared.walker.nearest(k + SPARE)), np.empty(0, np.int64)
    candidates, back = compared.walker.nearest_both_ways(k + SPARE)
    return settle(compared, candidates), _settle_columns(compared, back)


def settle(compared: Comparison, candidates: Rows) -> Nearest:
    """Turn float32 candidates, SPARE more than wanted, into exact neighbours."""
    values, indices = candidates.values, candidates.indices
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
    indices: Indices,
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
            close |= after - values[i, place] < MARGIN and after < FAR
        # With the last candidate clearly farther than the k-th, all that the error could swap are listed.
        complete = values[i, 0] >= 0 and values[i, -1] > values[i, k - 1] + MARGIN
        verdict[i] = _CLEAR if not close else _AMONG_LISTED if complete else _DOUBTFUL


def _rank_listed(
    compared: Comparison, rows: Integers, values: Float32, columns: Integers, k: int
) -> tuple[Integers, Float64]:
    """The k nearest of the listed `columns` (len(rows), k + SPARE) of each of `rows`; -1 stands for none.

    `values` are the kernel's, sorted. Those that its error could swap, or near zero, are computed in float64; the
    others keep their distances. Where it was unsure of one, whose place is unknown, all are computed.
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
    chosen, distances = np.full((len(rows), k), -1, np.int64), np.full((len(rows), k), np.inf)
    known = min(k, len(compared.b))

    def decide(stripe: slice, squared: Float32) -> None:
        own = rows[stripe]
        i, j = np.nonzero(squared < 0)
        squared[i, j] = (compared.exact(own[i], j) / compared.pair.scale) ** 2
        limit = np.partition(squared, known - 1, axis=1)[:, known - 1] + MARGIN
        i, j = np.nonzero(squared <= limit[:, None])
        exact = compared.exact(own[i], j)
        order = np.lexsort((j, exact, i))
        first = np.searchsorted(i[order], np.arange(len(squared)))
        picked = order[first[:, None] + np.arange(known)]
        chosen[stripe, :known], distances[stripe, :known] = j[picked], exact[picked]

    compared.matrices(decide, compared.walker.against(compared.pair.first.take(rows)))
    return chosen, distances


def _settle_columns(compared: Comparison, columns: Columns) -> Integers:
    """The nearest row of each column; those too close to call are decided in float64."""
    chosen = columns.rows.astype(np.int64)
    close = (columns.second - columns.best < MARGIN) & (columns.second < FAR)
    unknown = columns.best < 0
    if not columns.complete:
        unknown |= close
    close &= ~unknown
    if close.any():
        i, j = columns.rivals[close[columns.rivals[:, 1]]].T
        order = np.lexsort((i, compared.exact(i, j), j))
        decided, first = np.unique(j[order], return_index=True)
        chosen[decided] = i[order][first]
    doubtful = np.flatnonzero(unknown)
    if len(doubtful):
        chosen[doubtful] = _decide_in_float64(compared.swapped(), doubtful, 1)[0][:, 0]
    return chosen


def _nothing(m: int, d: int) -> Flats:
    """No descriptors, of dimension m."""
    if m == 0:
        return Points(np.empty((0, d), np.float32))
    return Subspaces(np.empty((0, d), np.float32), np.empty((0, m, d), np.float32))
