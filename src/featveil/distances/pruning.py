"""Exact nearest neighbours that look at few pairs: a bound from the first principal axes rules out the others.

Projecting on an orthonormal set of axes never lengthens a distance, so the distance between projected subspaces is a
lower bound of the true one, and the same kernel computes it with shorter vectors. Each row first evaluates its few
lowest bounds, then only the pairs whose bound lies below the k-th best found.
"""

from functools import cache

import numpy as np

from featveil.core import Descriptors, InputError
from featveil.core.arrays import Float32, Float64
from featveil.distances.compiling import Kernel, compiled
from featveil.distances.frames import FAR, Frames
from featveil.distances.keeping import insert
from featveil.distances.kernels import MARGIN
from featveil.distances.orthonormal import orthonormalise, remove_span
from featveil.distances.scanning import kernel_for
from featveil.distances.search import SPARE, UNSEEN, Nearest, compare, nearest, settle
from featveil.distances.tiles import Walker

# Candidates evaluated at once; also the seeds of each row.
_LANES = 8
# The bound and the distance each carry float32 error; a pair is skipped only when its bound is clearly above.
_SLACK = 2 * MARGIN
_CHUNK = 2048


def nearest_pruned(a: Descriptors, b: Descriptors, k: int = 2, axes: int | None = None) -> Nearest:
    """As `nearest`, usually several times faster from a few thousand descriptors on.

    `axes` is how many principal axes bound the distances. Few are quick but rule out less; larger subspaces need more
    (default: (12 + m) / 64 of the descriptor size, 28 of 128 for m = 2).
    """
    compared = compare(a, b)
    pair, d = compared.pair, compared.a.size
    largest = max(compared.a.dimension, compared.b.dimension)
    axes = min(d, max(1, d * (12 + largest) // 64)) if axes is None else axes
    if not 1 <= axes <= d:
        raise InputError(f"axes must be 1 to {d}, got {axes}")
    if len(b) <= max(_LANES, k + SPARE) or pair.first.complementary or pair.second.complementary:
        return nearest(a, b, k)
    basis = _principal_axes(pair.first, pair.second, axes)
    walker = Walker(_projected(pair.first, basis), _projected(pair.second, basis))
    values = np.full((len(a), k + SPARE), UNSEEN, np.float32)
    indices = np.full((len(a), k + SPARE), -1, np.int32)
    refine = _refiner(pair.first.rows - 1, pair.second.rows - 1)

    def search(stripe: slice) -> None:
        height = stripe.stop - stripe.start
        lowest = np.full((height, _LANES), UNSEEN, np.float32)
        seeds = np.full((height, _LANES), -1, np.int32)
        bounds = walker.bound(stripe, lowest, seeds)
        first = pair.first
        own = (first.stack[stripe], first.norms[stripe], pair.second.stack, pair.second.norms)
        refine(*own, bounds, seeds, values[stripe], indices[stripe], _SLACK)

    walker.each_stripe(search)
    return settle(compared, values, indices)


def _principal_axes(first: Frames, second: Frames, count: int) -> Float32:
    """Directions (d, count) along which the descriptors spread most."""
    points = np.concatenate([first.stack[:, 0], second.stack[:, 0]]).astype(np.float64)
    _, vectors = np.linalg.eigh(points.T @ points)
    return np.ascontiguousarray(vectors[:, ::-1][:, :count], dtype=np.float32)


def _projected(frames: Frames, axes: Float32) -> Frames:
    """The frames seen along `axes` only, brought back to the canonical form."""
    n, rows, _ = frames.stack.shape
    stack = np.empty((n, rows, axes.shape[1]), np.float32)
    norms = np.empty(n, np.float32)
    for start in range(0, n, _CHUNK):
        part = slice(start, min(start + _CHUNK, n))
        seen: Float64 = (frames.stack[part] @ axes).astype(np.float64)
        basis, points = np.ascontiguousarray(seen[:, 1:]), np.ascontiguousarray(seen[:, 0])
        orthonormalise(basis)
        remove_span(points, basis)
        stack[part, 1:], stack[part, 0] = basis, points
        norms[part] = np.einsum("nd,nd->n", points, points)
    return Frames(stack, norms)


@cache
def _refiner(m1: int, m2: int) -> Kernel:
    """A compiled function that finds the best pairs of each row among those that its bounds leave."""
    measure = f"measure_{m1}_{m2}"
    uses = {"solve": kernel_for(m1, m2, _LANES), "insert": insert}
    compiled_measure = compiled(measure, _measure_source(measure, m1 + 1, m2 + 1), uses)
    return compiled(f"refine_{m1}_{m2}", _refine_source(f"refine_{m1}_{m2}"), {"measure": compiled_measure})


def _measure_source(name: str, rows1: int, rows2: int) -> str:
    """Merge the true distances of one row to the columns lanes[:count]: products written out, then the small solve."""
    sums = range(rows1)
    return "\n".join(
        [
            f"def {name}(own, norm, stack2, norms2, lanes, count, room, row, values, indices):",
            "    product, norms, result = room",
            "    for lane in range(count):",
            "        norms[lane] = norms2[lanes[lane]]",
            f"        for q in range({rows2}):",
            "            other = stack2[lanes[lane], q]",
            *(f"            r{p} = numpy.float32(0)" for p in sums),
            "            for t in range(len(other)):",
            *(f"                r{p} += own[{p}, t] * other[t]" for p in sums),
            *(f"            product[{p * rows2 * _LANES} + q * {_LANES} + lane] = r{p}" for p in sums),
            "    solve(product, norm, norms, result)",
            "    for lane in range(count):",
            "        insert(result[lane], lanes[lane], row, values, indices)",
        ]
    )


def _refine_source(name: str) -> str:
    """Evaluate the seeds of each row, then, block by block, every column whose bound is below the row's k-th best."""
    return f"""
def {name}(stack1, norms1, stack2, norms2, bounds, seeds, values, indices, slack):
    k, (blocks, rows, width) = values.shape[1] - {SPARE}, bounds.shape
    room = (numpy.zeros(stack1.shape[1] * stack2.shape[1] * {_LANES}, numpy.float32),
            numpy.zeros({_LANES}, numpy.float32), numpy.empty({_LANES}, numpy.float32))
    lanes = numpy.empty(width, numpy.int64)
    for i in range(rows):
        lanes[:{_LANES}] = seeds[i]
        measure(stack1[i], norms1[i : i + 1], stack2, norms2, lanes, {_LANES}, room, i, values, indices)
        for lane in range({_LANES}):
            bounds[lanes[lane] // width, i, lanes[lane] % width] = numpy.float32({FAR})
    for block in range(blocks):  # outside, so that the block's stacks stay in cache
        for i in range(rows):
            limit, found = values[i, k - 1] + slack, 0
            for j in range(width):  # without a branch, which would often be guessed wrong
                lanes[found] = block * width + j
                found += bounds[block, i, j] < limit
            for start in range(0, found, {_LANES}):
                count = min({_LANES}, found - start)
                measure(stack1[i], norms1[i : i + 1], stack2, norms2, lanes[start : start + count], count, room,
                        i, values, indices)
"""
