"""Descriptors x entries -> the nearest entries within a distance, exactly, at less than the cost of all distances.

A distance along some axes is never larger than the whole distance. On the main axes of the entries nearly all pairs are
too far apart already; the others are compared in full.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from featveil.core.arrays import Float32, Integers
from featveil.distances.backends import FAR
from featveil.distances.backends.compiling import FINITE, jit
from featveil.distances.threads import each_stripe

_AXES = 24
_ROWS, _COLUMNS = 512, 512  # pairs that are compared at a time: they should stay in the cache
_LANES = 16  # neighbouring pairs of which the nearest is looked at first
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


def main_axes(sample: Float32) -> Axes:
    """The directions in which the descriptors of a sample (s, d) differ most."""
    centred = (sample - sample.mean(axis=0)).astype(np.float64)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    return np.ascontiguousarray(vectors[:, ::-1][:, :_AXES], np.float32)


def nearest_within(values: Float32, entries: Blocks, points: Integers, axes: Axes, limit: float, k: int = 1) -> Passed:
    """The nearest entries within `limit` of each of `values` (n, d), one of each point, at most `k`.

    Both have norm 1. `entries` come block by block, and `points` (e,) are what each of them is of. Of equally near
    entries the first counts.
    """
    squared = np.float32(limit) ** 2
    rows = _rows(values @ axes, squared)
    near, kept = np.full((len(values), k), FAR, np.float32), np.full((len(values), k), -1, np.int64)
    stripes = [slice(start, min(start + _ROWS, len(values))) for start in range(0, len(values), _ROWS)]
    for block, decoded in entries() if stripes else ():
        columns = _columns(decoded @ axes)

        def work(stripe: slice, block: slice = block, decoded: Float32 = decoded, columns: Float32 = columns) -> None:
            for start in range(0, len(columns), _COLUMNS):
                bounds = rows[stripe] @ columns[start : start + _COLUMNS].T
                _keep(
                    bounds.reshape(len(bounds), -1, _LANES),
                    (values[stripe], decoded[start : start + _COLUMNS]),
                    block.start + start,
                    squared,
                    (near[stripe], kept[stripe], points),
                )

        each_stripe(stripes, len(values) * len(decoded), work)
    passing = np.flatnonzero(kept[:, 0] >= 0)
    near, kept = near[passing], kept[passing]
    return Passed(passing, kept, np.where(kept < 0, np.float32(np.inf), np.sqrt(near)))


def _rows(along: Float32, squared: np.float32) -> Float32:
    """What gives, multiplied with columns, the squared distances along the axes, less the limit."""
    norms = (along**2).sum(axis=1, keepdims=True) - squared
    return np.concatenate([-2 * along, norms, np.ones_like(norms)], axis=1).astype(np.float32)


def _columns(along: Float32) -> Float32:
    """What rows are multiplied with; filled up with entries that are far from everything."""
    columns = np.zeros((len(along) + -len(along) % _LANES, along.shape[1] + 2), np.float32)
    columns[: len(along), :-2], columns[:, -2], columns[:, -1] = along, 1, FAR
    columns[: len(along), -1] = (along**2).sum(axis=1)
    return columns


Kept = tuple[Float32, Integers, Integers]  # squared distances and entries of each row, nearest first; points of entries


@jit(FINITE)
def _insert(away: np.float32, entry: int, row: int, best: Kept) -> None:
    """Put `entry` in its place, instead of a farther one of the same point, or else of the last."""
    near, kept, points = best[0][row], best[1][row], best[2]
    place = len(near) - 1
    for other in range(len(near)):
        if kept[other] >= 0 and points[kept[other]] == points[entry]:
            place = other
            break
    if away >= near[place]:
        return
    while place > 0 and near[place - 1] > away:
        near[place], kept[place] = near[place - 1], kept[place - 1]
        place -= 1
    near[place], kept[place] = away, entry


@jit(FINITE)
def _keep(
    bounds: NDArray[np.float32], pair: tuple[Float32, Float32], first: int, limit: np.float32, best: Kept
) -> None:
    """Compare in full what its bound (n, groups, lanes), less the limit, does not rule out; keep what is nearest."""
    (values, decoded), near = pair, best[0]
    last = near.shape[1] - 1
    for row in range(len(bounds)):
        value = values[row]
        for group in range(bounds.shape[1]):
            slack = min(np.float32(0), near[row, last] - limit) + _SLACK
            least = bounds[row, group, 0]
            for lane in range(_LANES):
                least = min(least, bounds[row, group, lane])
            if least >= slack:
                continue
            for lane in range(_LANES):
                if bounds[row, group, lane] >= slack:
                    continue
                column = group * _LANES + lane
                entry, away = decoded[column], np.float32(0)
                for axis in range(len(value)):
                    away += (value[axis] - entry[axis]) ** 2
                if away <= limit:
                    _insert(away, first + column, row, best)
