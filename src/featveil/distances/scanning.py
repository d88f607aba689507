"""One compiled pass over many tiles: matrix product, small solve, best of each row and column.

For a thousand descriptors the time between the tiles, spent in Python, would be as long as the small solves.
"""

from functools import cache

from featveil.distances.blocked import blocked_kernel
from featveil.distances.compiling import Kernel, compiled
from featveil.distances.frames import FAR, LARGEST_UNROLLED
from featveil.distances.keeping import keep_columns, keep_many, keep_nearest_points, keep_smallest, sort_gathered
from featveil.distances.kernels import tile_kernel


def kernel_for(m1: int, m2: int, width: int, sign: int = -1) -> Kernel:
    """The compiled small solve for two dimensions; `sign` is explained in `kernels.tile_kernel`."""
    if m1 * m2 > LARGEST_UNROLLED:
        return blocked_kernel(m1, m2, width)
    return tile_kernel(m1, m2, width, sign)


@cache
def scanner(m1: int, m2: int, width: int, sign: int, many: bool = False) -> Kernel:
    """A compiled function that merges the stripes of rows beginning at `starts` into the results so far.

    With `many` neighbours to keep, each stripe comes once and its results replace what was there.
    """
    name = f"{'gather' if many else 'scan'}_{m1}_{m2}_{width}_{'normals' if sign > 0 else 'directions'}"
    uses = {"solve": kernel_for(m1, m2, width, sign), "keep_columns": keep_columns}
    if many:
        return compiled(name, _gather_source(name), uses | {"keep_many": keep_many, "sort_gathered": sort_gathered})
    uses |= {"keep_smallest": keep_smallest, "keep_nearest_points": keep_nearest_points}
    return compiled(name, _scan_source(name, points=m1 == m2 == 0), uses)


@cache
def bounder(m1: int, m2: int, width: int, sign: int) -> Kernel:
    """A compiled function that fills `bounds` (blocks, rows, width) for one stripe and keeps the smallest."""
    name = f"bound_{m1}_{m2}_{width}_{'normals' if sign > 0 else 'directions'}"
    uses = {"solve": kernel_for(m1, m2, width, sign), "keep_smallest": keep_smallest}
    return compiled(name, _bound_source(name), uses)


def _scan_source(name: str, points: bool) -> str:
    shortcut = """
            if len(columns[0]) == 0:
                lanes_of_rows = product.reshape(count, width)
                keep_nearest_points(lanes_of_rows, norms, norms2[block], block * width, own_values, own_indices)
                continue
"""
    return f"""
def {name}(flat, norms1, planes, norms2, starts, height, values, indices, columns):
    (blocks, lanes, _), width, rows = planes.shape, norms2.shape[1], len(flat) // len(norms1)
    room, tile_room = numpy.empty(height * rows * lanes, numpy.float32), numpy.empty(height * width, numpy.float32)
    for start in starts:
        count = min(height, len(norms1) - start)
        left, norms = flat[start * rows : (start + count) * rows], norms1[start : start + count]
        product, tile = room[: count * rows * lanes], tile_room[: count * width].reshape(count, width)
        own_values, own_indices = values[start : start + count], indices[start : start + count]
        for block in range(blocks):
            numpy.dot(left, planes[block].T, product.reshape(count * rows, lanes)){shortcut if points else ""}
            solve(product, norms, norms2[block], tile.reshape(-1))
            keep_smallest(tile, block * width, own_values, own_indices)
            if len(columns[0]) > 0:
                keep_columns(tile, start, block * width, columns)
"""


def _gather_source(name: str) -> str:
    return f"""
def {name}(flat, norms1, planes, norms2, starts, height, values, indices, columns):
    (blocks, lanes, _), width, rows = planes.shape, norms2.shape[1], len(flat) // len(norms1)
    room, tile_room = numpy.empty(height * rows * lanes, numpy.float32), numpy.empty(height * width, numpy.float32)
    k = values.shape[1]
    enough = 2 * k + width + 1
    gathered = (numpy.empty((height, enough), numpy.float32), numpy.empty((height, enough), numpy.int32),
                numpy.empty(height, numpy.int64), numpy.empty(height, numpy.float32))
    for start in starts:
        count = min(height, len(norms1) - start)
        left, norms = flat[start * rows : (start + count) * rows], norms1[start : start + count]
        product, tile = room[: count * rows * lanes], tile_room[: count * width].reshape(count, width)
        gathered[2][:], gathered[3][:] = 0, numpy.float32({FAR})
        for block in range(blocks):
            numpy.dot(left, planes[block].T, product.reshape(count * rows, lanes))
            solve(product, norms, norms2[block], tile.reshape(-1))
            keep_many(tile, block * width, k, gathered)
            if len(columns[0]) > 0:
                keep_columns(tile, start, block * width, columns)
        sort_gathered(gathered, values[start : start + count], indices[start : start + count])
"""


def _bound_source(name: str) -> str:
    return f"""
def {name}(left, norms1, planes, norms2, bounds, lowest, seeds):
    product = numpy.empty(len(left) * planes.shape[1], numpy.float32)
    for block in range(len(planes)):
        numpy.dot(left, planes[block].T, product.reshape(len(left), -1))
        solve(product, norms1, norms2[block], bounds[block].reshape(-1))
        keep_smallest(bounds[block], block * norms2.shape[1], lowest, seeds)
"""
