"""Walking a distance matrix tile by tile: one matrix product, one small solve, and what is worth keeping."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from featveil.core.arrays import Float32
from featveil.distances.blocked import blocked_kernel
from featveil.distances.frames import LARGEST_UNROLLED, Frames
from featveil.distances.kernels import FINITE, Kernel, tile_kernel

Result = TypeVar("Result")

_SINGLE: ContextVar[bool] = ContextVar("single_threaded", default=False)

# Pairs below which starting threads costs more than it gains.
_SINGLE_THREADED = 250_000


def kernel_for(m1: int, m2: int, width: int, sign: int = -1) -> Kernel:
    """The compiled small solve for two dimensions; `sign` is explained in `kernels.tile_kernel`."""
    if m1 * m2 > LARGEST_UNROLLED:
        return blocked_kernel(m1, m2, width)
    return tile_kernel(m1, m2, width, sign)


def tile_size(rows1: int, rows2: int) -> tuple[int, int]:
    """Rows and columns of a tile: large enough for the matrix product to run at full speed, small enough to cache."""
    if rows1 == rows2 == 1:
        return 128, 512
    if min(rows1, rows2) == 1:
        return max(8, min(128, 2048 // (rows1 * rows2))), 256
    if rows1 * rows2 > 81:
        return max(8, 64 * 289 // max(rows1 * rows2, 289)), 64
    return (128, 128) if rows1 * rows2 <= 25 else (64, 128)


class Walker:
    """Computes tiles of squared distances between `first` (rows) and `second` (columns)."""

    def __init__(self, first: Frames, second: Frames) -> None:
        self.first, self.count = first, len(second)
        self.height, self.width = tile_size(first.rows, second.rows)
        sign = 1 if first.complementary or second.complementary else -1
        self._kernel = kernel_for(first.rows - 1, second.rows - 1, self.width, sign)
        self._planes, self._norms = second.blocks(self.width)

    def stripes(self) -> list[slice]:
        """The rows in stripes of one tile's height."""
        n = len(self.first)
        return [slice(start, min(start + self.height, n)) for start in range(0, n, self.height)]

    def tiles(self, stripe: slice) -> Iterator[tuple[int, Float32]]:
        """For each block of columns, its first column and the tile (rows, width), valid until the next one.

        Columns past the end hold a very large distance.
        """
        rows = self.first.rows
        left = self.first.flat[stripe.start * rows : stripe.stop * rows]
        norms = self.first.norms[stripe]
        product = np.empty((len(left), self._planes.shape[1]), np.float32)
        tile = np.empty((len(norms), self.width), np.float32)
        for block, planes in enumerate(self._planes):
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


@numba.njit(cache=True, nogil=True, fastmath=FINITE)
def keep_smallest(tile: Float32, column: int, values: Float32, indices: NDArray[np.int32]) -> None:
    """Merge a tile (rows, width) into the sorted smallest `values` (rows, k) and their column `indices`."""
    rows, width = tile.shape
    k = values.shape[1]
    for i in range(rows):
        line = tile[i]
        lowest = line[0]
        for j in range(width):
            lowest = min(lowest, line[j])
        if not lowest < values[i, k - 1]:
            continue
        for j in range(width):
            value = line[j]
            if value < values[i, k - 1]:
                place = k - 1
                while place > 0 and value < values[i, place - 1]:
                    values[i, place] = values[i, place - 1]
                    indices[i, place] = indices[i, place - 1]
                    place -= 1
                values[i, place] = value
                indices[i, place] = column + j


@numba.njit(cache=True, nogil=True, fastmath=FINITE)
def keep_column_best(tile: Float32, row: int, best: Float32, second: Float32, indices: NDArray[np.int32]) -> None:
    """Merge a tile into each column's `best` value, its row in `indices`, and its `second` best value (width,)."""
    for i in range(tile.shape[0]):
        line = tile[i]
        here = np.int32(row + i)
        for j in range(len(best)):
            value, known = line[j], best[j]
            second[j] = min(second[j], max(known, value))
            indices[j] = here if value < known else indices[j]
            best[j] = min(known, value)
