"""Which keypoints see the same pixels, and what the SIFT descriptor of one says of that of the other.

A SIFT descriptor reads the gradients around its keypoint with 4 x 4 cells of 3 scales width, each a tent under one
Gaussian window of 2 cells, and 8 orientation bins (Lowe 2004, section 6; angles and layout as in OpenCV). Two keypoints
are thus two linear readings of one field of gradients. Taking the gradients of different places for unrelated, the
best linear prediction of one reading from the other is K_ij K_jj^-1, with K the inner products of the cells.
"""

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from featveil.core import InputError, Keypoints
from featveil.core.arrays import Float32, Float64, Floats, Integers

CELLS, BINS = 16, 8  # of a descriptor: component (row * 4 + column) * 8 + bin
_SIDE = 4
_CELL = 3.0  # scales
_WINDOW = 2.0  # cells, sigma of the Gaussian
_REACH = 2.5  # cells from the keypoint to where the outermost tents end
_STEPS = 15  # samples along a side of the window
_RIDGE = 0.02  # of noise in each cell, as a share of a central cell's power
_RATIO = 2.0  # of scales, beyond which the blur differs too much
_LEAST = 0.15  # share below which a pair is not worth its time
_CHUNK = 4096


@dataclass(frozen=True, eq=False, repr=False)
class Overlaps:
    """Ordered pairs: feature `first[q]` as it can be predicted from feature `second[q]`.

    `share` (p,) is how much of the first's window the second saw, from 0 to 1. `cells` (p, 16, 16) maps the second's
    cells to the first's, `bins` (p, 8, 8) its orientation bins, and `weight` (p, 16) is the share of each of the
    first's cells that the prediction accounts for.
    """

    first: Integers
    second: Integers
    share: Float32
    cells: Float32
    bins: Float32
    weight: Float32

    def __len__(self) -> int:
        return len(self.first)


def find_overlaps(keypoints: Keypoints, neighbours: int = 12) -> Overlaps:
    """For each keypoint the up to `neighbours` others that saw most of its window.

    Raises InputError for keypoints without scale or orientation: give hypotheses for them.
    """
    if keypoints.scale is None or keypoints.orientation is None:
        raise InputError("overlaps are found from positions, scales and orientations: one of them is missing")
    first, second = _candidates(keypoints, neighbours)
    xy, scale = keypoints.xy.astype(np.float64), keypoints.scale.astype(np.float64)
    angle = np.deg2rad(keypoints.orientation.astype(np.float64))
    share, cells, weight = map_cells(
        xy[first] - xy[second], (scale[first], scale[second]), (angle[first], angle[second])
    )
    kept = _best(first, share, neighbours)
    turned = turn_bins(angle[first[kept]] - angle[second[kept]])
    return Overlaps(first[kept], second[kept], share[kept], cells[kept], turned, weight[kept])


def predict(values: Floats, overlaps: Overlaps) -> tuple[Float32, Float32]:
    """Descriptors (p, 128) of `overlaps.first` predicted from `values` (n, 128) at `overlaps.second`, and weights.

    Predictions have the norm that they come out with, which is not that of a descriptor: compare directions. Weights
    (p, 128) say how much of each component the other keypoint saw, from 0 to 1.
    """
    moved = carry(values[overlaps.second], overlaps.cells, overlaps.bins)
    return moved, np.repeat(overlaps.weight, BINS, axis=1)


def carry(values: Floats, cells: Float32, bins: Float32) -> Float32:
    """Descriptors (p, 128) as `cells` (p, 16, 16) and `bins` (p, 8, 8) map them."""
    moved = cells @ values.astype(np.float32).reshape(-1, CELLS, BINS) @ bins.transpose(0, 2, 1)
    return np.asarray(moved.reshape(-1, CELLS * BINS), np.float32)


def _candidates(keypoints: Keypoints, neighbours: int) -> tuple[Integers, Integers]:
    """Ordered pairs of similar scale whose windows touch: for each keypoint the nearest, with some to spare."""
    scale = np.asarray(keypoints.scale, np.float64)
    logs = np.log2(np.maximum(scale, 1e-3))
    # A step of one octave counts as much as a step of one window: both end the usefulness of a neighbour.
    first, second = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for level in np.unique(np.floor(2 * logs)):
        mine = np.flatnonzero(np.floor(2 * logs) == level)
        near = np.flatnonzero(np.abs(logs - (level / 2 + 0.25)) < 0.25 + np.log2(_RATIO))
        width = _CELL * 2 ** (level / 2 + 0.25)
        places = np.column_stack([keypoints.xy / width, logs * 2])
        count = min(3 * neighbours + 1, len(near))
        far, reached = cKDTree(places[near]).query(places[mine], k=np.arange(1, count + 1), distance_upper_bound=_SIDE)
        rows, columns = np.nonzero(np.isfinite(far))
        first.append(mine[rows])
        second.append(near[reached[rows, columns]])
    one, other = np.concatenate(first), np.concatenate(second)
    kept = (one != other) & (np.abs(logs[one] - logs[other]) <= np.log2(_RATIO))
    return one[kept], other[kept]


def map_cells(
    shift: Float64, scales: tuple[Float64, Float64], angles: tuple[Float64, Float64], steps: int = _STEPS
) -> tuple[Float32, Float32, Float32]:
    """Share (p,), cell maps (p, 16, 16) and weights (p, 16) of pairs of keypoints, the first predicted from the second.

    `shift` (p, 2) leads from the second to the first, in pixels; `scales` and `angles` (radians) are those of the first
    and of the second. `steps` samples are taken along a side of the window.
    """
    axis = np.linspace(-_REACH, _REACH, 2 * steps + 1)[1::2]
    samples = np.stack(np.meshgrid(axis, axis, indexing="xy"), axis=-1).reshape(-1, 2).astype(np.float32)
    mine = _readings(samples)
    own = (mine @ mine.T).astype(np.float64)
    inverse = np.linalg.inv(own + _RIDGE * own.max() * np.eye(CELLS)).astype(np.float32)
    power = own.diagonal().astype(np.float32)
    share = np.empty(len(shift), np.float32)
    cells = np.empty((len(shift), CELLS, CELLS), np.float32)
    weight = np.empty((len(shift), CELLS), np.float32)
    for start in range(0, len(shift), _CHUNK):
        part = slice(start, start + _CHUNK)
        ratio = (scales[0][part] / scales[1][part]).astype(np.float32)
        moved = _rotate(shift[part, None], -angles[1][part])[:, 0] / (_CELL * scales[1][part])[:, None]
        turned = _rotate(samples[None] * ratio[:, None, None], angles[0][part] - angles[1][part])
        theirs = _readings((turned + moved[:, None]).astype(np.float32))
        # A sample of the first's grid covers ratio^2 of the second's area: the second's own inner products, which are
        # taken on its own grid, are in those units.
        joint = (mine[None] @ theirs.transpose(0, 2, 1)) * (ratio**2)[:, None, None]
        cells[part] = joint @ inverse
        weight[part] = np.einsum("pab,pab->pa", cells[part], joint) / (power * ratio[:, None] ** 2)
        share[part] = weight[part] @ (power / power.sum())
    return share, cells, weight


def _rotate(places: Floats, angle: Float64) -> Floats:
    """`places` (p, s, 2) turned by `angle` (p,) from x towards y."""
    cosine, sine = np.cos(angle)[:, None], np.sin(angle)[:, None]
    x, y = places[..., 0], places[..., 1]
    return np.stack([cosine * x - sine * y, sine * x + cosine * y], axis=-1)


def _readings(places: Float32) -> Float32:
    """How much each cell reads of gradients at `places` (..., s, 2), in cells from the keypoint: (..., 16, s)."""
    centres = (np.arange(_SIDE) - (_SIDE - 1) / 2).astype(np.float32)
    tents = np.maximum(0, 1 - np.abs(places[..., None, :] - centres[:, None]))
    window = np.exp(-(places**2).sum(axis=-1) / (2 * _WINDOW**2))
    columns, rows = tents[..., 0], tents[..., 1] * window[..., None]
    read = rows[..., :, None] * columns[..., None, :]
    return np.moveaxis(read.reshape(*read.shape[:-2], CELLS), -1, -2)


def turn_bins(angle: Float64) -> Float32:
    """Matrices (p, 8, 8) that turn orientation bins by `angle` (p,) radians."""
    away = np.arange(BINS, dtype=np.float32)[:, None] - np.arange(BINS, dtype=np.float32)
    away = away - np.asarray(angle * (BINS / (2 * np.pi)), np.float32)[:, None, None]
    return np.asarray(np.maximum(0, 1 - np.abs((away + BINS / 2) % BINS - BINS / 2)))


def _best(first: Integers, share: Float32, neighbours: int) -> Integers:
    """Indices of the pairs with the largest share, at most `neighbours` for each feature, sorted by feature."""
    order = np.lexsort((-share, first))
    order = order[share[order] >= _LEAST]
    sorted_first = first[order]
    place = np.arange(len(order)) - np.searchsorted(sorted_first, sorted_first, side="left")
    return order[place < neighbours].astype(np.int64)
