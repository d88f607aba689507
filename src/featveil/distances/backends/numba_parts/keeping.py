"""What is worth keeping of a distance matrix that goes by tile by tile: the best of every row and column."""

import numpy as np
from numpy.typing import NDArray

from featveil.core.arrays import Float32, Integers
from featveil.distances.backends import FAR, MARGIN, Columns
from featveil.distances.backends.compiling import FINITE, jit

# From so many wanted on, it takes less time to sort them in the end than to keep them sorted.
MANY = 64

# Values (rows, room) and column indices of candidates, how many there are in each row, and what is too large for it.
Gathered = tuple[Float32, NDArray[np.int32], Integers, Float32]

# The arrays of a ColumnBest.
ColumnState = tuple[Float32, Float32, NDArray[np.int32], NDArray[np.int32], Integers]


class ColumnBest:
    """`best` and `second` best value of each column, the best's row, and the pairs that come too close to call."""

    def __init__(self, columns: int) -> None:
        self.best, self.second = np.full((2, columns), FAR, np.float32)
        self.rows = np.full(columns, -1, np.int32)
        self._ties = np.empty((columns + 256, 2), np.int32)
        self._used = np.zeros(1, np.int64)

    @property
    def state(self) -> ColumnState:
        """The arrays that `keep_columns` updates."""
        return self.best, self.second, self.rows, self._ties, self._used

    @property
    def overflowed(self) -> bool:
        """Whether there were more close pairs than could be kept."""
        return bool(self._used[0] > len(self._ties))

    @property
    def rivals(self) -> Integers:
        """(row, column) of the best and of what came within MARGIN of it, or did before a better one was seen."""
        own = np.flatnonzero(self.rows >= 0)
        return np.concatenate([np.stack([self.rows[own], own], axis=1), self._ties[: self._used[0]].astype(np.int64)])


def merged(parts: list[ColumnBest], count: int) -> Columns:
    """What is known of the first `count` columns from several parts of the rows."""
    best, second, rows = parts[0].best, parts[0].second, parts[0].rows
    for part in parts[1:]:
        second = np.minimum(np.maximum(best, part.best), np.minimum(second, part.second))
        rows = np.where(part.best < best, part.rows, rows)
        best = np.minimum(best, part.best)
    rivals = np.concatenate([part.rivals for part in parts])
    complete = not any(part.overflowed for part in parts)
    return Columns(best[:count], second[:count], rows[:count], rivals[rivals[:, 1] < count], complete)


@jit(FINITE)
def keep_columns(tile: Float32, row: int, column: int, state: ColumnState) -> None:
    """Merge a tile, whose corner is (row, column), into what is known of its columns."""
    count, width = tile.shape
    best, second, rows = state[0][column:], state[1][column:], state[2][column:]
    ties, used = state[3], state[4]
    group = np.full(width, -1, np.int32)
    whole = count - count % 4
    for first in range(0, whole, 4):
        a, b, c, d = tile[first], tile[first + 1], tile[first + 2], tile[first + 3]
        here = np.int32(first)
        for j in range(width):
            low1, high1, low2, high2 = min(a[j], b[j]), max(a[j], b[j]), min(c[j], d[j]), max(c[j], d[j])
            low, next_low = min(low1, low2), min(max(low1, low2), min(high1, high2))
            known = best[j]
            second[j] = min(min(second[j], max(known, low)), next_low)
            group[j] = here if low < known else group[j]
            best[j] = min(known, low)
    for j in range(width):
        before = rows[j]
        if group[j] >= 0:
            i = group[j]
            while tile[i, j] != best[j]:
                i += 1
            rows[j] = row + i
        for i in range(whole, count):
            value = tile[i, j]
            second[j] = min(second[j], max(best[j], value))
            if value < best[j]:
                best[j], rows[j] = value, row + i
        if second[j] - best[j] < MARGIN and second[j] < FAR:
            # A pair that may win is the best of this moment, listed when it is displaced, or close to it, listed now.
            if 0 <= before != rows[j]:
                _list(before, column + j, ties, used)
            for i in range(count):
                if tile[i, j] <= best[j] + MARGIN and row + i != rows[j]:
                    _list(row + i, column + j, ties, used)


@jit(FINITE)
def _list(row: int, column: int, ties: NDArray[np.int32], used: Integers) -> None:
    if used[0] < len(ties):
        ties[used[0], 0], ties[used[0], 1] = row, column
    used[0] += 1


@jit(FINITE)
def keep_smallest(tile: Float32, column: int, values: Float32, indices: NDArray[np.int32]) -> None:
    """Merge a tile (rows, a multiple of 64) into the sorted smallest `values` (rows, k) and their column `indices`.

    First, as SIMD code, the minimum of every eight values of a row, and eight minima of those. The k-th smallest of
    the latter bounds the k-th smallest value, so few values have to be looked at one by one.
    """
    count, width = tile.shape
    k, step = values.shape[1], width // 8
    lows, lowest, picked = np.empty(step, np.float32), np.empty(8, np.float32), np.empty(step + 1, np.int32)
    kth, unused = np.empty((1, k), np.float32), np.empty((1, k), np.int32)
    for i in range(count):
        _minima(tile, i, lows)
        lowest[:] = lows[:8]
        for j in range(8, step, 8):
            for lane in range(8):
                lowest[lane] = min(lowest[lane], lows[j + lane])
        kth[0] = values[i]
        for lane in range(8):
            insert(lowest[lane], 0, 0, kth, unused)
        limit, passing = kth[0, k - 1], 0
        for j in range(step):  # without a branch, which would often be guessed wrong
            picked[passing] = j
            passing += lows[j] <= limit
        for p in range(passing):
            for j in range(picked[p], width, step):
                if tile[i, j] <= limit:
                    insert(tile[i, j], column + j, i, values, indices)


@jit(FINITE)
def _minima(tile: Float32, i: int, lows: Float32) -> None:
    """The minimum of every eight values of a row, those that lie len(lows) apart."""
    step = len(lows)
    for j in range(step):
        a, b = min(tile[i, j], tile[i, step + j]), min(tile[i, 2 * step + j], tile[i, 3 * step + j])
        c, d = min(tile[i, 4 * step + j], tile[i, 5 * step + j]), min(tile[i, 6 * step + j], tile[i, 7 * step + j])
        lows[j] = min(min(a, b), min(c, d))


@jit(FINITE)
def keep_many(tile: Float32, column: int, k: int, gathered: Gathered) -> None:
    """As `keep_smallest`, for a large k: what may belong to the k smallest of a row is gathered, unsorted."""
    count, width = tile.shape
    step = width // 8
    values, indices, used, limits = gathered
    lows, picked = np.empty(step, np.float32), np.empty(step + 1, np.int32)
    for i in range(count):
        _minima(tile, i, lows)
        limit, end, passing = limits[i], used[i], 0
        for j in range(step):
            picked[passing] = j
            passing += lows[j] < limit
        for p in range(passing):
            for j in range(picked[p], width, step):
                values[i, end], indices[i, end] = tile[i, j], column + j
                end += tile[i, j] < limit
        used[i] = end
        if end + width >= values.shape[1]:
            _cut(i, k, gathered)


@jit(FINITE)
def _cut(i: int, k: int, gathered: Gathered) -> None:
    """Drop from a row what is not among its k smallest; of equal values the first stay."""
    values, indices, used, limits = gathered
    if used[i] <= k:
        return
    limit = np.partition(values[i, : used[i]], k - 1)[k - 1]
    equal, end = k, 0
    for j in range(used[i]):
        equal -= values[i, j] < limit
    for j in range(used[i]):
        value = values[i, j]
        if value < limit or (value == limit and equal > 0):
            equal -= value == limit
            values[i, end], indices[i, end] = value, indices[i, j]
            end += 1
    used[i], limits[i] = end, limit


@jit(FINITE)
def sort_gathered(gathered: Gathered, values: Float32, indices: NDArray[np.int32]) -> None:
    """Write the smallest that `keep_many` gathered of each row into `values` (rows, k) and `indices`, sorted."""
    for i in range(len(values)):
        _cut(i, values.shape[1], gathered)
        end = gathered[2][i]
        order = np.argsort(gathered[0][i, :end])
        for place in range(end):
            values[i, place], indices[i, place] = gathered[0][i, order[place]], gathered[1][i, order[place]]


@jit(FINITE)
def keep_nearest_points(
    product: Float32, norms1: Float32, norms2: Float32, column: int, values: Float32, indices: NDArray[np.int32]
) -> None:
    """As `keep_smallest`, for points, straight from their inner products (rows, width): one pass instead of two.

    Without the norm of its own point a row's distances have the same order. Their limit is set a little too high, and
    what passes is compared once more as the kernel computes it.
    """
    count, width = product.shape
    k, step = values.shape[1], width // 8
    two, zero = np.float32(2), np.float32(0)
    lows, lowest, picked = np.empty(step, np.float32), np.empty(8, np.float32), np.empty(step + 1, np.int32)
    kth, unused = np.empty((1, k), np.float32), np.empty((1, k), np.int32)
    for i in range(count):
        for j in range(step):
            low = norms2[j] - two * product[i, j]
            for part in range(1, 8):
                low = min(low, norms2[part * step + j] - two * product[i, part * step + j])
            lows[j] = low
        lowest[:] = lows[:8]
        for j in range(8, step, 8):
            for lane in range(8):
                lowest[lane] = min(lowest[lane], lows[j + lane])
        kth[0] = values[i]
        for lane in range(8):
            insert(max(norms1[i] + lowest[lane], zero), 0, 0, kth, unused)
        limit, passing = kth[0, k - 1] - norms1[i] + MARGIN, 0
        for j in range(step):
            picked[passing] = j
            passing += lows[j] <= limit
        for p in range(passing):
            for j in range(picked[p], width, step):
                if norms2[j] - two * product[i, j] <= limit:
                    insert(max(norms1[i] + norms2[j] - two * product[i, j], zero), column + j, i, values, indices)


@jit(FINITE)
def insert(value: np.float32, index: int, row: int, values: Float32, indices: NDArray[np.int32]) -> None:
    """Put a distance, if it belongs there, into the sorted smallest `values` (rows, k) and `indices` of a row."""
    # Two indices instead of a view of the row: making a view costs more than the work.
    place = values.shape[1] - 1
    if not value < values[row, place]:
        return
    while place > 0 and value < values[row, place - 1]:
        values[row, place] = values[row, place - 1]
        indices[row, place] = indices[row, place - 1]
        place -= 1
    values[row, place] = value
    indices[row, place] = index
