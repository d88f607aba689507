"""Walking a distance matrix tile by tile: one matrix product, one small solve, and what is worth keeping."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from copy import copy
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from featveil.core.arrays import Float32, Integers
from featveil.distances.blocked import blocked_kernel
from featveil.distances.compiling import FINITE, Kernel, jit
from featveil.distances.frames import LARGEST_UNROLLED, Frames
from featveil.distances.kernels import tile_kernel

Result = TypeVar("Result")

_SINGLE: ContextVar[bool] = ContextVar("single_threaded", default=False)

_PART = 64  # divides the width of every tile

# Pairs below which starting threads costs more than it gains.
_SINGLE_THREADED = 250_000


def kernel_for(m1: int, m2: int, width: int, sign: int = -1) -> Kernel:
    """The compiled small solve for two dimensions; `sign` is explained in `kernels.tile_kernel`."""
    if m1 * m2 > LARGEST_UNROLLED:
        return blocked_kernel(m1, m2, width)
    return tile_kernel(m1, m2, width, sign)


def tile_size(rows1: int, rows2: int) -> tuple[int, int]:
    """Rows and columns of a tile: large enough for the matrix product to run at full speed, small enough to cache."""
    cells = rows1 * rows2
    if cells == 1:
        return 256, 512
    if min(rows1, rows2) == 1:
        return (128, 512) if cells <= 3 else (max(8, 640 // max(cells, 10)), 512)
    if cells <= 81:
        return (128, 128) if cells <= 25 else (64, 128)
    return max(8, 32 * 289 // max(cells, 289)), 64


class Walker:
    """Computes tiles of squared distances between `first` (rows) and `second` (columns)."""

    def __init__(self, first: Frames, second: Frames) -> None:
        self.first, self.count = first, len(second)
        self.height, self.width = tile_size(first.rows, second.rows)
        sign = 1 if first.complementary or second.complementary else -1
        self._kernel = kernel_for(first.rows - 1, second.rows - 1, self.width, sign)
        self._planes, self._norms = second.blocks(self.width)

    @property
    def blocks(self) -> int:
        """How many tiles lie side by side."""
        return len(self._planes)

    def rows(self, indices: Integers) -> "Walker":
        """A walker over some of the rows and the same columns."""
        other = copy(self)
        other.first = self.first.take(indices)
        return other

    def stripes(self) -> list[slice]:
        """The rows in stripes of one tile's height."""
        n = len(self.first)
        return [slice(start, min(start + self.height, n)) for start in range(0, n, self.height)]

    def tiles(self, stripe: slice, into: Float32 | None = None) -> Iterator[tuple[int, Float32]]:
        """For each block of columns, its first column and the tile (rows, width), valid until the next one.

        Columns past the end hold a very large distance. `into` (blocks, rows, width) keeps all tiles.
        """
        rows = self.first.rows
        left = self.first.flat[stripe.start * rows : stripe.stop * rows]
        norms = self.first.norms[stripe]
        product = np.empty((len(left), self._planes.shape[1]), np.float32)
        tile = np.empty((len(norms), self.width), np.float32)
        for block, planes in enumerate(self._planes):
            if into is not None:
                tile = into[block]
            np.dot(left, planes.T, out=product)
            self._kernel(product.reshape(-1), norms, self._norms[block], tile.reshape(-1))
            yield block * self.width, tile

    def matrix(self, stripe: slice) -> Float32:
        """All squared distances of a stripe (rows, n2)."""
        whole = np.empty((stripe.stop - stripe.start, self.count), np.float32)
        for column, tile in self.tiles(stripe):
            lanes = min(self.width, self.count - column)
            whole[:, column : column + lanes] = tile[:, :lanes]
        return whole

    def each_group(self, work: Callable[[list[slice]], Result]) -> list[Result]:
        """Deal the stripes out to as many groups as there are threads and run `work` on each group."""
        stripes = self.stripes()
        workers = min(threads(), len(stripes)) if len(self.first) * self.count >= _SINGLE_THREADED else 1
        groups = [stripes[worker::workers] for worker in range(workers)]
        with one_thread_each():
            if workers == 1:
                return [work(groups[0])]
            with ThreadPoolExecutor(workers) as pool:
                return list(pool.map(work, groups))

    def each_stripe(self, work: Callable[[slice], None]) -> None:
        """Run `work` on every stripe, in parallel where that pays."""

        def work_through(group: list[slice]) -> None:
            for stripe in group:
                work(stripe)

        self.each_group(work_through)


def threads() -> int:
    """Threads to use: FEATVEIL_THREADS, else the cores this process may run on."""
    if _SINGLE.get():
        return 1
    wanted = os.environ.get("FEATVEIL_THREADS", "")
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@contextmanager
def single_threaded() -> Iterator[None]:
    """Keep this module's own work on the calling thread, for measuring."""
    token = _SINGLE.set(True)
    try:
        yield
    finally:
        _SINGLE.reset(token)


@cache
def _controller() -> Any:
    return ThreadpoolController()


def one_thread_each() -> AbstractContextManager[Any]:
    """Hold the BLAS library to one thread: stripes are the unit of parallel work."""
    limit: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limit


@jit(FINITE)
def keep_smallest(tile: Float32, column: int, values: Float32, indices: NDArray[np.int32]) -> None:
    """Merge a tile (rows, width) into the sorted smallest `values` (rows, k) and their column `indices`.

    The minima of parts of a row come first, as SIMD code. The k-th smallest of them bounds the k-th smallest value, so
    few parts have to be looked through value by value.
    """
    count, width = tile.shape
    parts = width // _PART
    minima = np.empty((4, parts), np.float32)
    kth = np.empty((1, values.shape[1]), np.float32)
    unused = np.empty((1, values.shape[1]), np.int32)
    for first in range(0, count, 4):
        last = min(first + 4, count)
        # Four rows in one loop is what the compiler turns into SIMD code; a short group repeats its last row.
        a, b, c, d = tile[first], tile[min(first + 1, last - 1)], tile[min(first + 2, last - 1)], tile[last - 1]
        for part in range(parts):
            start = part * _PART
            low_a, low_b, low_c, low_d = a[start], b[start], c[start], d[start]
            for j in range(_PART):
                low_a, low_b = min(low_a, a[start + j]), min(low_b, b[start + j])
                low_c, low_d = min(low_c, c[start + j]), min(low_d, d[start + j])
            minima[0, part], minima[1, part], minima[2, part], minima[3, part] = low_a, low_b, low_c, low_d
        for i in range(first, last):
            kth[0] = values[i]
            for part in range(parts):
                insert(minima[i - first, part], 0, 0, kth, unused)
            limit = kth[0, -1]
            for part in range(parts):
                if minima[i - first, part] <= limit:
                    for j in range(part * _PART, (part + 1) * _PART):
                        if tile[i, j] <= limit:
                            insert(tile[i, j], column + j, i, values, indices)


@jit(FINITE)
def keep_column_best(tile: Float32, row: int, best: Float32, second: Float32, rows: NDArray[np.int32]) -> None:
    """Merge a tile into each column's `best` and `second` best value and its best row in `rows` (width,)."""
    count, width = tile.shape
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
