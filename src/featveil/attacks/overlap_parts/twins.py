"""Features at one position: one patch, read at two orientations.

Where the gradients of a patch have two strong directions, SIFT gives two features of one position and scale. Whatever
the scale, the turn between them alone says how their descriptors map to each other: a few dozen turns are tried, and
the one under which the two subspaces agree best gives both descriptors.
"""

from dataclasses import dataclass

import numpy as np

from featveil.attacks.overlap_parts.agreement import Agreement
from featveil.attacks.overlap_parts.overlapping import Overlaps, map_cells, turn_bins
from featveil.core import Subspaces
from featveil.core.arrays import Float32, Float64, Integers

_TURNS = np.arange(36) * (2 * np.pi / 36)  # tried
_ROUNDS = 40
_CHANCE = 0.25  # share of pairs of other positions that agree as well as the worst that is believed
_MEASURED = 100  # such pairs
_MOST = 4000  # pairs looked at


@dataclass(frozen=True, eq=False, repr=False)
class Twins:
    """Groups of features at one position whose subspaces agree.

    `leader` (n,) is the first feature of each feature's group, -1 for those without; `leaders` lists them, those first
    that agree best. `turn` (n,) is the angle from the leader's orientation, in radians; `values` (n, 128) are the
    descriptors.
    """

    leader: Integers
    leaders: Integers
    turn: Float64
    values: Float32


def find_twins(
    subspaces: Subspaces, kind: str, xy: Float64, start: Float32, sparse: bool, rng: np.random.Generator
) -> Twins:
    """Twins of all features, believed where they agree better than most pairs of other positions do."""
    leader, turn, values = np.full(len(xy), -1), np.zeros(len(xy)), start.copy()
    leaders: list[int] = []
    first, second = (side[:_MOST] for side in _same_position(xy))
    if len(first):
        turns, estimates, left = _agree(subspaces, kind, start, first, second, sparse)
        some, others = rng.permutation(first)[:_MEASURED], rng.permutation(second)[:_MEASURED]
        by_chance = _agree(subspaces, kind, start, some, others, sparse)[2]
        order = np.argsort(left, kind="stable")
        for q in order[left[order] < np.quantile(by_chance, _CHANCE)]:
            one, other, apart = int(first[q]), int(second[q]), turns[q]
            if leader[one] >= 0 and leader[other] >= 0:
                continue
            if leader[one] < 0 and leader[other] < 0:
                leaders.append(one)
                leader[one], values[one] = one, estimates[0, q]
            if leader[one] < 0:
                leader[one], values[one], turn[one] = leader[other], estimates[0, q], turn[other] + apart
            else:
                leader[other], values[other], turn[other] = leader[one], estimates[1, q], turn[one] - apart
    return Twins(leader, np.array(leaders, np.int64), turn, values)


def _same_position(xy: Float64) -> tuple[Integers, Integers]:
    """All pairs of features at exactly one position, the first with the lower index."""
    _, place, counts = np.unique(xy, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(place.reshape(-1), kind="stable").astype(np.int64)
    begins = np.cumsum(counts) - counts
    first, second = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for count in np.unique(counts[counts > 1]):
        members = order[begins[counts == count][:, None] + np.arange(count)]
        one, other = np.triu_indices(count, 1)
        first.append(members[:, one].ravel())
        second.append(members[:, other].ravel())
    return np.concatenate(first), np.concatenate(second)


def _agree(
    subspaces: Subspaces, kind: str, start: Float32, first: Integers, second: Integers, sparse: bool
) -> tuple[Float64, Float32, Float64]:
    """Turns (p,) under which pairs agree best, their descriptors (2, p, 128), and what is left between them (p,)."""
    rows = np.concatenate([first, second])
    flats, begin = subspaces.take(rows), start[rows]
    best, turns = np.full(len(first), np.inf), np.zeros(len(first))
    values = np.zeros((2, len(first), subspaces.size), np.float32)
    for turn in _TURNS:
        agreement = Agreement(flats, _facing(len(first), turn), begin, kind, sparse)
        estimates = agreement.solve(_ROUNDS)
        left = agreement.disagreement(estimates).reshape(2, -1).sum(axis=0)
        better = left < best
        best[better], turns[better] = left[better], turn
        values[:, better] = estimates.reshape(values.shape)[:, better]
    return turns, values, best


def _facing(count: int, turn: float) -> Overlaps:
    """Features 0 to count predicted from the next `count`, which are turned back by `turn`, and the other way round."""
    angles = np.array([turn, 0.0]), np.array([0.0, turn])
    share, cells, weight = map_cells(np.zeros((2, 2)), (np.ones(2), np.ones(2)), angles)
    order, side = np.arange(2 * count), np.repeat([0, 1], count)
    turned = turn_bins(angles[0] - angles[1])
    return Overlaps(order, np.roll(order, count), share[side], cells[side], turned[side], weight[side])
