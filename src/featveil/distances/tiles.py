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
from featveil.distances.frames import Frames
from featveil.distances.keeping import MANY, ColumnBest
from featveil.distances.scanning import bounder, kernel_for, scanner

Result = TypeVar("Result")

_SINGLE: ContextVar[bool] = ContextVar("single_threaded", default=False)

# Multiplications that one compiled call may do: a fraction of a second.
_WORK_PER_CALL = 2**34

# From here on, as in a codebook, points are compared in taller tiles.
_MANY_COLUMNS = 2**16

# Pairs below which starting threads costs more than it gains.
_SINGLE_THREADED = 250_000


def tile_size(rows1: int, rows2: int, columns: int) -> tuple[int, int]:
    """Rows and columns of a tile: large enough for the matrix product to run at full speed, small enough to cache.

    Wide tiles are for many columns, or where the last one happens to be almost full.
    """
    cells = rows1 * rows2
    if min(rows1, rows2) == 1:
        width = 128 if columns < 4096 and -columns % 512 > 128 else 512
        if cells == 1:
            return (512 if columns >= _MANY_COLUMNS else 256), width
        return (128 if cells <= 3 else max(8, 640 // max(cells, 10))), width
    if cells <= 81:
        return (128, 128) if cells <= 25 else (64, 128)
    return max(8, 32 * 289 // max(cells, 289)), 64


class Walker:
    """Computes tiles of squared distances between `first` (rows) and `second` (columns)."""

    def __init__(self, first: Frames, second: Frames) -> None:
        self.first, self.count = first, len(second)
        self.height, self.width = tile_size(first.rows, second.rows, len(second))
        sign = 1 if first.complementary or second.complementary else -1
        self._solve = first.rows - 1, second.rows - 1, self.width, sign
        self._planes, self._norms = second.blocks(self.width)

    @property
    def blocks(self) -> int:
        """How many tiles lie side by side."""
        return len(self._planes)

    @property
    def of_points(self) -> bool:
        """Whether both sides are points, for which there is a shorter way."""
        return self._solve[:2] == (0, 0)

    def rows(self, indices: Integers) -> "Walker":
        """A walker over some of the rows and the same columns."""
        return self.against(self.first.take(indices))

    def against(self, first: Frames) -> "Walker":
        """A walker over other rows, as many vectors each, and the same columns."""
        other = copy(self)
        other.first = first
        return other

    def stripes(self) -> list[slice]:
        """The rows in stripes of one tile's height."""
        n = len(self.first)
        return [slice(start, min(start + self.height, n)) for start in range(0, n, self.height)]

    def scan(self, stripes: list[slice], values: Float32, indices: NDArray[np.int32], columns: ColumnBest) -> None:
        """Merge whole stripes, each once, into the smallest `values` (n1, k), `indices` of each row, and `columns`."""
        starts = np.array([stripe.start for stripe in stripes])
        stripe_work = self.height * self.first.rows * self._planes.size
        step = max(1, _WORK_PER_CALL // stripe_work)  # Ctrl-C is noticed between calls
        merge = scanner(*self._solve, many=values.shape[1] >= MANY)
        operands = self.first.flat, self.first.norms, self._planes, self._norms
        for part in range(0, len(starts), step):
            merge(*operands, starts[part : part + step], self.height, values, indices, columns.state)

    def bound(self, stripe: slice, lowest: Float32, seeds: NDArray[np.int32]) -> Float32:
        """Squared distances of a stripe (blocks, rows, width), padding included, and the `lowest` (rows, k) of them."""
        bounds = np.empty((self.blocks, stripe.stop - stripe.start, self.width), np.float32)
        bounder(*self._solve)(*self._left(stripe), self._planes, self._norms, bounds, lowest, seeds)
        return bounds

    def matrix(self, stripe: slice) -> Float32:
        """All squared distances of a stripe (rows, n2)."""
        left, norms = self._left(stripe)
        whole = np.empty((len(norms), self.count), np.float32)
        product = np.empty((len(left), self._planes.shape[1]), np.float32)
        tile = np.empty((len(norms), self.width), np.float32)
        kernel = kernel_for(*self._solve)
        for block, planes in enumerate(self._planes):
            np.dot(left, planes.T, out=product)
            kernel(product.reshape(-1), norms, self._norms[block], tile.reshape(-1))
            lanes = whole[:, block * self.width : (block + 1) * self.width]
            lanes[:] = tile[:, : lanes.shape[1]]
        return whole

    def _left(self, stripe: slice) -> tuple[Float32, Float32]:
        rows = self.first.rows
        return self.first.flat[stripe.start * rows : stripe.stop * rows], self.first.norms[stripe]

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
    import scipy.linalg.cython_blas  # noqa: F401 - compiled code uses its library, which must be loaded to be held

    return ThreadpoolController()


def one_thread_each() -> AbstractContextManager[Any]:
    """Hold the BLAS library to one thread: stripes are the unit of parallel work."""
    limit: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limit
