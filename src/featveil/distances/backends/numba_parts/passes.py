"""One compiled pass over many tiles: matrix product, small solve, best of each row and column.

For a thousand descriptors the time between the tiles, spent in Python, would be as long as the small solves. The
functions here are templates: the names bound to `unbound` are the compiled ones for two dimensions.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from featveil.core.arrays import Float32, Integers
from featveil.distances.backends import FAR
from featveil.distances.backends.compiling import Kernel, specialised, unbound
from featveil.distances.backends.numba_parts.blocked import blocked_kernel
from featveil.distances.backends.numba_parts.keeping import (
    ColumnState,
    insert,
    keep_columns,
    keep_many,
    keep_nearest_points,
    keep_smallest,
    sort_gathered,
)
from featveil.distances.backends.numba_parts.unrolled import tile_kernel

LARGEST_UNROLLED = 64  # m1 * m2; larger solves run in blocks of four

LANES = 8  # candidates that `refine` evaluates at once; also the seeds of each row

solve: Kernel = unbound
measure: Kernel = unbound


def kernel_for(m1: int, m2: int, width: int, sign: int = -1) -> Kernel:
    """The compiled small solve for two dimensions; `sign` is explained in `unrolled.tile_kernel`."""
    if m1 * m2 > LARGEST_UNROLLED:
        return blocked_kernel(m1, m2, width)
    return tile_kernel(m1, m2, width, sign)


@cache
def scanner(m1: int, m2: int, width: int, sign: int, many: bool = False) -> Kernel:
    """A compiled function that merges the stripes of rows beginning at `starts` into the results so far.

    With `many` neighbours to keep, each stripe comes once and its results replace what was there.
    """
    template = _gather if many else _scan_points if m1 == m2 == 0 else _scan
    return specialised(template, solve=kernel_for(m1, m2, width, sign))


@cache
def bounder(m1: int, m2: int, width: int, sign: int) -> Kernel:
    """A compiled function that fills `bounds` (blocks, rows, width) for one stripe and keeps the smallest."""
    return specialised(_bound, solve=kernel_for(m1, m2, width, sign))


@cache
def refiner(m1: int, m2: int) -> Kernel:
    """A compiled function that finds the best pairs of each row among those that its bounds leave."""
    return specialised(_refine, measure=specialised(_measure, solve=kernel_for(m1, m2, LANES)))


def _scan(
    flat: Float32,
    norms1: Float32,
    planes: Float32,
    norms2: Float32,
    starts: Integers,
    height: int,
    values: Float32,
    indices: NDArray[np.int32],
    columns: ColumnState,
) -> None:
    (blocks, lanes, _), width, rows = planes.shape, norms2.shape[1], len(flat) // len(norms1)
    room, tile_room = np.empty(height * rows * lanes, np.float32), np.empty(height * width, np.float32)
    for start in starts:
        count = min(height, len(norms1) - start)
        left, norms = flat[start * rows : (start + count) * rows], norms1[start : start + count]
        product, tile = room[: count * rows * lanes], tile_room[: count * width].reshape(count, width)
        own_values, own_indices = values[start : start + count], indices[start : start + count]
        for block in range(blocks):
            np.dot(left, planes[block].T, product.reshape(count * rows, lanes))
            solve(product, norms, norms2[block], tile.reshape(-1))
            keep_smallest(tile, block * width, own_values, own_indices)
            if len(columns[0]) > 0:
                keep_columns(tile, start, block * width, columns)


def _scan_points(
    flat: Float32,
    norms1: Float32,
    planes: Float32,
    norms2: Float32,
    starts: Integers,
    height: int,
    values: Float32,
    indices: NDArray[np.int32],
    columns: ColumnState,
) -> None:
    """As `_scan`, for points, whose products say it all unless columns are wanted."""
    (blocks, lanes, _), width = planes.shape, norms2.shape[1]
    room, tile_room = np.empty(height * lanes, np.float32), np.empty(height * width, np.float32)
    for start in starts:
        count = min(height, len(norms1) - start)
        left, norms = flat[start : start + count], norms1[start : start + count]
        product, tile = room[: count * lanes], tile_room[: count * width].reshape(count, width)
        own_values, own_indices = values[start : start + count], indices[start : start + count]
        for block in range(blocks):
            np.dot(left, planes[block].T, product.reshape(count, lanes))
            if len(columns[0]) == 0:
                products = product.reshape(count, width)
                keep_nearest_points(products, norms, norms2[block], block * width, own_values, own_indices)
                continue
            solve(product, norms, norms2[block], tile.reshape(-1))
            keep_smallest(tile, block * width, own_values, own_indices)
            keep_columns(tile, start, block * width, columns)


def _gather(
    flat: Float32,
    norms1: Float32,
    planes: Float32,
    norms2: Float32,
    starts: Integers,
    height: int,
    values: Float32,
    indices: NDArray[np.int32],
    columns: ColumnState,
) -> None:
    """As `_scan`, for many neighbours of each row, which are sorted in the end."""
    (blocks, lanes, _), width, rows = planes.shape, norms2.shape[1], len(flat) // len(norms1)
    room, tile_room = np.empty(height * rows * lanes, np.float32), np.empty(height * width, np.float32)
    k = values.shape[1]
    enough = 2 * k + width + 1
    gathered = (
        np.empty((height, enough), np.float32),
        np.empty((height, enough), np.int32),
        np.empty(height, np.int64),
        np.empty(height, np.float32),
    )
    for start in starts:
        count = min(height, len(norms1) - start)
        left, norms = flat[start * rows : (start + count) * rows], norms1[start : start + count]
        product, tile = room[: count * rows * lanes], tile_room[: count * width].reshape(count, width)
        gathered[2][:], gathered[3][:] = 0, FAR
        for block in range(blocks):
            np.dot(left, planes[block].T, product.reshape(count * rows, lanes))
            solve(product, norms, norms2[block], tile.reshape(-1))
            keep_many(tile, block * width, k, gathered)
            if len(columns[0]) > 0:
                keep_columns(tile, start, block * width, columns)
        sort_gathered(gathered, values[start : start + count], indices[start : start + count])


def _bound(
    left: Float32,
    norms1: Float32,
    planes: Float32,
    norms2: Float32,
    bounds: Float32,
    lowest: Float32,
    seeds: NDArray[np.int32],
) -> None:
    product = np.empty(len(left) * planes.shape[1], np.float32)
    for block in range(len(planes)):
        np.dot(left, planes[block].T, product.reshape(len(left), -1))
        solve(product, norms1, norms2[block], bounds[block].reshape(-1))
        keep_smallest(bounds[block], block * norms2.shape[1], lowest, seeds)


Operands = tuple[Float32, Float32, Float32, Float32]  # stacks and norms of either side
Room = tuple[Float32, Float32, Float32]  # products, norms and results of LANES pairs


def _measure(
    operands: Operands, i: int, lanes: Integers, room: Room, values: Float32, indices: NDArray[np.int32]
) -> None:
    """Merge the true distances of row i to the columns `lanes`, LANES at most: the products, then the small solve."""
    stack1, norms1, stack2, norms2 = operands
    product, norms, result = room
    own, rows1, rows2 = stack1[i], stack1.shape[1], stack2.shape[1]
    for lane in range(len(lanes)):
        norms[lane] = norms2[lanes[lane]]
        for q in range(rows2):
            other = stack2[lanes[lane], q]
            for p in range(rows1):
                total = np.float32(0)
                for t in range(len(other)):
                    total += own[p, t] * other[t]
                product[(p * rows2 + q) * LANES + lane] = total
    solve(product, norms1[i : i + 1], norms, result)
    for lane in range(len(lanes)):
        insert(result[lane], lanes[lane], i, values, indices)


def _refine(
    operands: Operands,
    bounds: Float32,
    seeds: NDArray[np.int32],
    values: Float32,
    indices: NDArray[np.int32],
    k: int,
    slack: np.float32,
) -> None:
    """Evaluate the seeds of each row, then, block by block, every column whose bound is below the row's k-th best."""
    stack1, stack2 = operands[0], operands[2]
    blocks, rows, width = bounds.shape
    room = (
        np.zeros(stack1.shape[1] * stack2.shape[1] * LANES, np.float32),
        np.zeros(LANES, np.float32),
        np.empty(LANES, np.float32),
    )
    lanes = np.empty(width, np.int64)
    for i in range(rows):
        lanes[:LANES] = seeds[i]
        measure(operands, i, lanes[:LANES], room, values, indices)
        for lane in range(LANES):
            bounds[lanes[lane] // width, i, lanes[lane] % width] = FAR
    for block in range(blocks):  # outside, so that the block's stacks stay in cache
        for i in range(rows):
            limit, left = values[i, k - 1] + slack, 0
            for j in range(width):  # without a branch, which would often be guessed wrong
                lanes[left] = block * width + j
                left += bounds[block, i, j] < limit
            for start in range(0, left, LANES):
                measure(operands, i, lanes[start : min(start + LANES, left)], room, values, indices)
