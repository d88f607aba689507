"""All pairs tile by tile on the processor: a matrix product by BLAS, a small solve, and what is worth keeping of it."""

from collections.abc import Sequence
from copy import copy

import numpy as np

from featveil.core.arrays import Float32
from featveil.distances.backends import FAR, MARGIN, Columns, Frames, Indices, Rows, Walker
from featveil.distances.backends.numba_parts.keeping import MANY, ColumnBest, merged
from featveil.distances.backends.numba_parts.passes import (
    LANES,
    LARGEST_UNROLLED,
    bounder,
    kernel_for,
    refiner,
    scanner,
)
from featveil.distances.threads import each_group, each_stripe

# Multiplications that one compiled call may do: a fraction of a second.
_WORK_PER_CALL = 2**34

# From here on, as in a codebook, points are compared in taller tiles.
_MANY_COLUMNS = 2**16

# The bound and the distance each carry float32 error; a pair is skipped only when its bound is clearly above.
_SLACK = 2 * MARGIN


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


class NumbaWalker:
    """Computes tiles of squared distances between `first` (rows) and `second` (columns)."""

    def __init__(self, first: Frames, second: Frames) -> None:
        blocked = (first.rows - 1) * (second.rows - 1) > LARGEST_UNROLLED
        self._step = 4 if blocked else 1
        self._first, second = _padded(first, self._step), _padded(second, self._step)
        self._height, self._width = tile_size(self._first.rows, second.rows, len(second))
        sign = 1 if first.complementary or second.complementary else -1
        self._solve = self._first.rows - 1, second.rows - 1, self._width, sign
        self._columns = second
        self._planes, self._norms = _planes(second, self._width)

    def against(self, first: Frames) -> "NumbaWalker":
        """A walker over other rows, as many vectors each, and the same columns."""
        other = copy(self)
        other._first = _padded(first, self._step)
        return other

    def stripes(self) -> list[slice]:
        """The rows in stripes of one tile's height."""
        n = len(self._first)
        return [slice(start, min(start + self._height, n)) for start in range(0, n, self._height)]

    def matrix(self, stripe: slice) -> Float32:
        """All squared distances of a stripe (rows, n2)."""
        left, norms = self._left(stripe)
        whole = np.empty((len(norms), len(self._columns)), np.float32)
        product = np.empty((len(left), self._planes.shape[1]), np.float32)
        tile = np.empty((len(norms), self._width), np.float32)
        kernel = kernel_for(*self._solve)
        for block, planes in enumerate(self._planes):
            np.dot(left, planes.T, out=product)
            kernel(product.reshape(-1), norms, self._norms[block], tile.reshape(-1))
            lanes = whole[:, block * self._width : (block + 1) * self._width]
            lanes[:] = tile[:, : lanes.shape[1]]
        return whole

    def nearest(self, k: int) -> Rows:
        """The k nearest columns of each row."""
        return self._search(k, columns=False)[0]

    def nearest_both_ways(self, k: int) -> tuple[Rows, Columns]:
        """The k nearest columns of each row and the nearest row of each column, in one pass."""
        rows, parts = self._search(k, columns=True)
        return rows, merged(parts, len(self._columns))

    def nearest_pruned(self, bounds: Walker, k: int, spare: int) -> Rows:
        """As `nearest` of k + `spare`, of which only the first k are sure to be right; evaluates few pairs."""
        assert isinstance(bounds, NumbaWalker)
        if len(self._columns) <= max(LANES, k + spare):
            return self.nearest(k + spare)
        best = _nothing_yet(len(self._first), k + spare)
        refine = refiner(self._first.rows - 1, self._columns.rows - 1)

        def search(stripe: slice) -> None:
            first, second = self._first, self._columns
            lower, seeds = bounds._bound(stripe)
            operands = first.stack[stripe], first.norms[stripe], second.stack, second.norms
            refine(operands, lower, seeds, best.values[stripe], best.indices[stripe], k, _SLACK)

        each_stripe(bounds.stripes(), self._pairs, search)
        return best

    @property
    def _pairs(self) -> int:
        return len(self._first) * len(self._columns)

    def _search(self, k: int, columns: bool) -> tuple[Rows, list[ColumnBest]]:
        best = _nothing_yet(len(self._first), k)

        def scan(stripes: Sequence[slice]) -> ColumnBest:
            seen = ColumnBest(self._norms.size if columns else 0)
            self._scan(stripes, best, seen)
            return seen

        return best, each_group(self.stripes(), self._pairs, scan)

    def _scan(self, stripes: Sequence[slice], best: Rows, columns: ColumnBest) -> None:
        """Merge whole stripes, each once, into the `best` of each row, and `columns`."""
        starts = np.array([stripe.start for stripe in stripes])
        stripe_work = self._height * self._first.rows * self._planes.size
        step = max(1, _WORK_PER_CALL // stripe_work)  # Ctrl-C is noticed between calls
        merge = scanner(*self._solve, many=best.values.shape[1] >= MANY)
        operands = self._first.flat, self._first.norms, self._planes, self._norms
        for part in range(0, len(starts), step):
            merge(*operands, starts[part : part + step], self._height, best.values, best.indices, columns.state)

    def _bound(self, stripe: slice) -> tuple[Float32, Indices]:
        """Squared distances of a stripe (blocks, rows, width), padding included, and the columns of the lowest."""
        height = stripe.stop - stripe.start
        bounds = np.empty((len(self._planes), height, self._width), np.float32)
        seeds = _nothing_yet(height, LANES)
        bounder(*self._solve)(*self._left(stripe), self._planes, self._norms, bounds, seeds.values, seeds.indices)
        return bounds, seeds.indices

    def _left(self, stripe: slice) -> tuple[Float32, Float32]:
        rows = self._first.rows
        return self._first.flat[stripe.start * rows : stripe.stop * rows], self._first.norms[stripe]


def _nothing_yet(rows: int, k: int) -> Rows:
    return Rows(np.full((rows, k), FAR, np.float32), np.full((rows, k), -1, np.int32))


def _padded(frames: Frames, step: int) -> Frames:
    """Frames with zero directions up to a multiple of `step`, for solves in blocks; they change nothing."""
    n, rows, d = frames.stack.shape
    room = -(-(rows - 1) // step) * step + 1
    if room == rows:
        return frames
    stack = np.zeros((n, room, d), np.float32)
    stack[:, :rows] = frames.stack
    return Frames(stack, frames.norms)


def _planes(frames: Frames, width: int) -> tuple[Float32, Float32]:
    """The right operand: (blocks, rows * width, d), lanes of one row side by side, and norms (blocks, width)."""
    count = -(-len(frames) // width)
    n, rows, d = frames.stack.shape
    planes = np.zeros((count, rows, width, d), np.float32)
    norms = np.full((count, width), FAR, np.float32)
    for block in range(count):
        part = slice(block * width, min((block + 1) * width, n))
        lanes = part.stop - part.start
        planes[block, :, :lanes] = frames.stack[part].transpose(1, 0, 2)
        norms[block, :lanes] = frames.norms[part]
    return planes.reshape(count, rows * width, d), norms
