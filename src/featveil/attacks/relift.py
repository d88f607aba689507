"""Re-lift attack: independent lifts of one descriptor meet in it.

Ours. The same photograph sent twice, or a person who authenticates again: the point nearest to all subspaces together,
by least squares over any number of releases.
Knows:      further releases of the same features.
Breaks:     lifting of every kind, with any database; faces too, whose photographs differ, approximately.
Fails:      where all releases of a feature share a direction, as when they drew one confounder, or are copies.
"""

from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numpy as np
from scipy.optimize import linear_sum_assignment

from featveil.attacks.knowledge import Guess, Knowledge
from featveil.attacks.subspaces import central, subspaces_of
from featveil.core import InputError, PrivateFeatures, Subspaces
from featveil.core.arrays import Float64, Integers
from featveil.distances import pair_distances
from featveil.distances.orthonormal import orthonormalise

_MEET = 0.01  # subspaces of one descriptor at one place are nearer, at half precision too; others never come so near
_DETERMINED = 1e-6  # smallest eigenvalue: about half the square of the smallest angle between subspaces
_UNRELATED = 0.5  # share of features at common places, below which two releases are those of two images
_MOST_PAIRS = 10_000_000  # at shared positions
_ROWS = 512  # of features whose bases are held at a time


@dataclass(frozen=True)
class Relift:
    """Take the point nearest to all lifts of a feature."""

    name: ClassVar[str] = "relift"
    summary: ClassVar[str] = "the point where several releases of the same feature meet"
    breaks: ClassVar[tuple[type, ...]] = (Subspaces,)
    needs: ClassVar[tuple[str, ...]] = ("repeats",)
    uses: ClassVar[tuple[str, ...]] = ()
    alone: ClassVar[bool] = False

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        """The meeting points; not answered where a feature has no second release or these share a direction.

        Raises InputError for repeats of another image or representation.
        """
        subspaces = subspaces_of(seen)
        lifts = [(subspaces, np.arange(len(seen)))]
        for repeat in knowledge.repeats:
            _check(seen, repeat)
            lifts.append((subspaces_of(repeat), _partners(seen, repeat)))
        repeated = np.logical_or.reduce([rows >= 0 for _, rows in lifts[1:]])
        values, answered = central(subspaces, seen.kind), np.zeros(len(seen), np.bool_)
        for start in range(0, len(seen), _ROWS):
            part = np.arange(start, min(start + _ROWS, len(seen)))[repeated[start : start + _ROWS]]
            met, weakest = meeting_points([(lift, rows[part]) for lift, rows in lifts])
            answered[part] = weakest > _DETERMINED
            values[part[answered[part]]] = met[answered[part]]
        shared, alone = int((repeated & ~answered).sum()), int((~repeated).sum())
        return Guess(values.astype(np.float32), answered, note=_note(shared, alone))


def meeting_points(lifts: list[tuple[Subspaces, Integers]]) -> tuple[Float64, Float64]:
    """The point (n, d) nearest to subspaces `rows[i]` of all lifts, and how well it is determined (n,), from 0.

    A row of -1 is left out. The normal equations are (count I - sum of projections) x = sum of offsets cleaned of
    their own directions; with all bases stacked in C, Woodbury's identity solves them by count I - C Ct alone, which
    is small. Its smallest eigenvalue is 0 where the subspaces share a direction.
    """
    n, d = len(lifts[0][1]), lifts[0][0].size
    stacked, upright, count = [], np.zeros((n, d)), np.zeros(n)
    for lift, rows in lifts:
        there = (rows >= 0).astype(np.float64)
        basis = lift.basis[rows].astype(np.float64)
        orthonormalise(basis)
        offset = lift.offset[rows].astype(np.float64)
        offset -= _through(basis, offset)
        stacked.append(basis * there[:, None, None])
        upright += offset * there[:, None]
        count += there
    bases = np.concatenate(stacked, axis=1)
    inner = count[:, None, None] * np.eye(bases.shape[1]) - bases @ bases.transpose(0, 2, 1)
    strengths, axes = np.linalg.eigh(inner)
    seen = axes.transpose(0, 2, 1) @ (bases @ upright[:, :, None])
    coordinates = axes @ (seen / np.maximum(strengths, _DETERMINED)[:, :, None])
    moved = (bases.transpose(0, 2, 1) @ coordinates)[:, :, 0]
    return (upright + moved) / count[:, None], strengths[:, 0]


def _through(basis: Float64, values: Float64) -> Float64:
    """The part of each of `values` (n, d) along its orthonormal basis (n, m, d)."""
    return np.asarray(((basis @ values[:, :, None]).transpose(0, 2, 1) @ basis)[:, 0])


def _check(seen: PrivateFeatures, repeat: PrivateFeatures) -> None:
    """Raise InputError unless `repeat` can be another release of the same features."""
    size, other = subspaces_of(seen).size, subspaces_of(repeat).size
    if size != other:
        raise InputError(f"a repeat has descriptors of size {other}, the private features {size}")
    if (seen.keypoints is None) != (repeat.keypoints is None):
        raise InputError("only one of the releases has keypoints: give repeats of the same features")
    if seen.image_size != repeat.image_size:
        raise InputError("a repeat is of an image of another size: give repeats of the same image")
    if seen.keypoints is None and len(seen) != len(repeat):
        raise InputError(f"without keypoints a repeat has the same features: {len(seen)}, not {len(repeat)}")


def _partners(seen: PrivateFeatures, repeat: PrivateFeatures) -> Integers:
    """The row (n,) of `repeat` that each feature has: by position, at one position by meeting; -1 for none."""
    if seen.keypoints is None or repeat.keypoints is None:
        return np.arange(len(seen))
    places: dict[bytes, tuple[list[int], list[int]]] = {}
    for side, xy in enumerate((seen.keypoints.xy, repeat.keypoints.xy)):
        for index, place in enumerate(xy):
            places.setdefault(place.tobytes(), ([], []))[side].append(index)
    shared = [(rows, columns) for rows, columns in places.values() if rows and columns]
    if not shared or sum(len(rows) for rows, _ in shared) < _UNRELATED * min(len(seen), len(repeat)):
        raise InputError("a repeat has its keypoints elsewhere: give further releases of the same features")
    if sum(len(rows) * len(columns) for rows, columns in shared) > _MOST_PAIRS:
        raise InputError("too many features share one position: which is which cannot be told")
    pairs = np.array([pair for rows, columns in shared for pair in product(rows, columns)])
    away = pair_distances(subspaces_of(seen), subspaces_of(repeat), pairs[:, 0], pairs[:, 1])
    partners, start = np.full(len(seen), -1), 0
    for rows, columns in shared:
        table = away[start : start + len(rows) * len(columns)].reshape(len(rows), len(columns))
        start += table.size
        # One to one: two features at one place may meet the same one, in a confounder that they share.
        for i, j in zip(*linear_sum_assignment(np.minimum(table, _MEET)), strict=True):
            if table[i, j] < _MEET:
                partners[rows[i]] = columns[j]
    return partners


def _note(shared: int, alone: int) -> str:
    parts = [f"features without a second release: {alone}"] * (alone > 0)
    parts += [f"features whose releases share a direction: {shared}"] * (shared > 0)
    return "; ".join(parts)
