"""Descriptors x entries -> the nearest entries within a distance, exactly, at less than the cost of all distances.

A distance along some axes is never larger than the whole distance. On the main axes of the entries nearly all pairs are
too far apart already; the others are compared in full.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from featveil.core.arrays import Float32, Integers

_AXES = 32
_ROWS, _COLUMNS = 4096, 1024  # pairs that are compared at a time: they should stay in the cache
_PAIRS = 16_384  # that are compared in full at a time
_KEPT = 2**20  # pairs within the limit that are held, before only the nearest of each feature are kept
_SLACK = 1e-4  # of squared distances between descriptors of norm 1: beyond what float32 loses

Axes = Float32  # (d, q), orthonormal columns
Blocks = Callable[[], Iterable[tuple[slice, Float32]]]


@dataclass(frozen=True, eq=False)
class Passed:
    """Features `rows` (p,), rising, with the nearest entry of each of up to k points: `entries` (p, k).

    They lie at `distances` (p, k), nearest first; where there are fewer than k, the rest is -1 and infinity.
    """

    rows: Integers
    entries: Integers
    distances: Float32

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, kept: Integers) -> "Passed":
        """Those at `kept`."""
        return Passed(self.rows[kept], self.entries[kept], self.distances[kept])


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Features (p,), entries (p,) and their squared distances (p,)."""

    rows: Integers
    entries: Integers
    squared: Float32

    def nearest(self, points: Integers, k: int) -> "_Pairs":
        """Of each feature and point the nearest entry, of these the `k` nearest; equally near ones in their order."""
        order = np.lexsort((self.entries, self.squared, points[self.entries], self.rows))
        row, point = self.rows[order], points[self.entries[order]]
        order = order[(np.diff(row, prepend=-1) != 0) | (np.diff(point, prepend=-1) != 0)]
        order = order[np.lexsort((self.entries[order], self.squared[order], self.rows[order]))]
        return _Pairs(
            *(values[order[_place(self.rows[order]) < k]] for values in (self.rows, self.entries, self.squared))
        )


def main_axes(sample: Float32) -> Axes:
    """The directions in which the descriptors of a sample (s, d) differ most."""
    centred = (sample - sample.mean(axis=0)).astype(np.float64)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    return np.ascontiguousarray(vectors[:, ::-1][:, :_AXES], np.float32)


def nearest_within(values: Float32, entries: Blocks, points: Integers, axes: Axes, limit: float, k: int = 1) -> Passed:
    """The nearest entries within `limit` of each of `values` (n, d), one of each point, at most `k`.

    Both have norm 1. `entries` come block by block, and `points` (e,) are what each of them is of.
    """
    squared = np.float32(limit) ** 2
    stripes = [
        (slice(start, start + _ROWS), _bordered(values[start : start + _ROWS] @ axes, squared))
        for start in range(0, len(values), _ROWS)
    ]
    kept: list[_Pairs] = []
    for block, decoded in entries():
        along = decoded @ axes
        columns = np.concatenate([along, np.ones((len(along), 1)), (along**2).sum(axis=1, keepdims=True)], axis=1)
        for start in range(0, len(decoded), _COLUMNS):
            part = np.ascontiguousarray(columns[start : start + _COLUMNS].T, np.float32)
            for stripe, rows in stripes:
                places = np.flatnonzero((rows @ part).ravel() < _SLACK)
                if len(places):
                    row, column = np.divmod(places, part.shape[1])
                    kept += _compared(values, decoded, row + stripe.start, column + start, squared, block.start)
            if sum(len(pairs.rows) for pairs in kept) > _KEPT:
                kept = [_joined(kept).nearest(points, k)]
    pairs = _joined(kept).nearest(points, k)
    passing = np.unique(pairs.rows)
    which = np.full((len(passing), k), -1, np.int64)
    distances = np.full((len(passing), k), np.inf, np.float32)
    cells = np.searchsorted(passing, pairs.rows), _place(pairs.rows)
    which[cells], distances[cells] = pairs.entries, np.sqrt(pairs.squared)
    return Passed(passing, which, distances)


def _bordered(along: Float32, squared: np.float32) -> Float32:
    """Rows whose product with the columns is the squared distance along the axes, less the limit."""
    norms = (along**2).sum(axis=1, keepdims=True) - squared
    return np.concatenate([-2 * along, norms, np.ones_like(norms)], axis=1).astype(np.float32)


def _compared(
    values: Float32, decoded: Float32, rows: Integers, columns: Integers, limit: np.float32, offset: int
) -> Iterable[_Pairs]:
    """The pairs that are within the limit in full."""
    for start in range(0, len(rows), _PAIRS):
        row, column = rows[start : start + _PAIRS], columns[start : start + _PAIRS]
        difference = values[row] - decoded[column]
        squared = np.einsum("ij,ij->i", difference, difference)
        near = np.flatnonzero(squared <= limit)
        yield _Pairs(row[near], column[near] + offset, squared[near])


def _joined(kept: list[_Pairs]) -> _Pairs:
    if not kept:
        return _Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    rows, entries, squared = zip(*((pairs.rows, pairs.entries, pairs.squared) for pairs in kept), strict=True)
    return _Pairs(np.concatenate(rows), np.concatenate(entries), np.concatenate(squared))


def _place(rows: Integers) -> Integers:
    """The place of each among the equal `rows`, which rise."""
    return np.arange(len(rows)) - np.searchsorted(rows, rows)
