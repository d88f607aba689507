"""Orientations of keypoints that a release does not tell, found from how their descriptors agree.

Features at one position give their descriptors first (twins.py). Each of these is turned as the subspaces around it
speak for most clearly; from then on placed features place their neighbours, and all are solved together again. What
speaks for an orientation by chance is measured at the same places with the subspaces dealt anew. Scales matter less: a
usual one does where they are not told.
"""

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import logsumexp

from featveil.attacks.overlap_parts.agreement import Agreement
from featveil.attacks.overlap_parts.evidence import Evidence
from featveil.attacks.overlap_parts.overlapping import find_overlaps
from featveil.attacks.overlap_parts.twins import Twins, find_twins
from featveil.core import Keypoints, Subspaces
from featveil.core.arrays import Float32, Float64, Integers

USUAL_SCALE = 1.6  # pixels; half of a photograph's keypoints are smaller
_ANGLES = np.arange(16) * (2 * np.pi / 16)  # tried
_FINER = np.array([-1, 0, 1]) * (np.pi / 16)  # tried around the best
_FAR = 2.6  # cells of 3 scales, beyond which windows hardly overlap
_OCTAVE = 1.5  # cells that a difference of one octave counts for
_NEIGHBOURS = 6
_SEEDS = 150  # features that the first orientations are sought for, at most
_MEASURED = 150  # features of which chance is measured
_CHANCE = 0.1  # share of those that would be placed
_CLEAR = 8.0  # the least evidence, and the least lead over another orientation
_APART = 2  # steps, from which on an orientation is another
_GROWING, _SOLVING = 6, 16  # rounds, and rounds of solving in each


class Placing:
    """What is known so far of n features.

    `values` (n, 128) are their descriptors: right for most that are `known` from twins or `placed`, a start for others;
    `angle` (n,) in radians is that of features that are `placed`.
    """

    def __init__(
        self, subspaces: Subspaces, kind: str, keypoints: Keypoints, start: Float32, sparse: bool = True
    ) -> None:
        self.subspaces, self.kind, self.sparse = subspaces, kind, sparse
        self.xy = keypoints.xy.astype(np.float64)
        scale = np.full(len(start), USUAL_SCALE) if keypoints.scale is None else keypoints.scale
        self.scale = scale.astype(np.float64)
        self.certain_scale = keypoints.scale is not None
        self.evidence = Evidence(subspaces, kind)
        self.values, self.angle = start.copy(), np.zeros(len(start))
        self.known, self.placed = np.zeros(len(start), np.bool_), np.zeros(len(start), np.bool_)

    def run(self, rng: np.random.Generator) -> None:
        """Place as many features as speak for themselves."""
        twins = find_twins(self.subspaces, self.kind, self.xy, self.values, self.sparse, rng)
        self.known = twins.leader >= 0
        self.values[self.known] = twins.values[self.known]
        self._place_twins(twins, rng)
        for _ in range(_GROWING):
            if not self.placed.any():
                return
            self._grow(rng)
            self._refine()
            self._solve()

    def _place_twins(self, twins: Twins, rng: np.random.Generator) -> None:
        """Turn each of the best groups of twins as most of the subspaces around allow, whatever their own angles."""
        leaders = twins.leaders[:_SEEDS]
        if not len(leaders):
            return
        near, distance = self._near(leaders, np.arange(len(self.xy)))
        pairs, columns = np.nonzero(distance < _FAR)
        rows, seeds = near[pairs, columns], leaders[pairs]
        own, theirs = (np.tile(grid.ravel(), (len(rows), 1)) for grid in np.meshgrid(_ANGLES, _ANGLES))

        def table(subjects: Integers) -> Float64:
            evidence = self._between(subjects, rows, seeds, own, theirs).reshape(len(rows), len(_ANGLES), len(_ANGLES))
            total = np.zeros((len(leaders), len(_ANGLES)))
            np.add.at(total, pairs, logsumexp(evidence, axis=2) - np.log(len(_ANGLES)))
            return total

        best, lead = _leading(table(rows))
        by_chance = _leading(table(rng.integers(0, len(self.xy), len(rows))))[1]
        for place in np.flatnonzero(lead > _limit(by_chance)):
            group = twins.leader == leaders[place]
            self.placed[group] = True
            self.angle[group] = _ANGLES[best[place]] + twins.turn[group]

    def _grow(self, rng: np.random.Generator) -> None:
        """Place features whose placed neighbours speak for one orientation."""
        rows = np.flatnonzero(~self.placed)
        angles = np.tile(_ANGLES, (len(rows), 1))
        best, lead = _leading(self._from_placed(rows, rows, angles))
        some = rng.permutation(len(rows))[:_MEASURED]
        dealt = rng.permutation(rows)[: len(some)]
        limit = _limit(_leading(self._from_placed(dealt, rows[some], angles[some]))[1])
        chosen = lead > limit
        self.placed[rows[chosen]] = True
        self.angle[rows[chosen]] = _ANGLES[best[chosen]]

    def _refine(self) -> None:
        """Turn placed features a little where that is better, and take back those that nothing speaks for."""
        rows = np.flatnonzero(self.placed)
        angles = self.angle[rows][:, None] + _FINER
        evidence = self._from_placed(rows, rows, angles)
        self.angle[rows] = np.take_along_axis(angles, evidence.argmax(axis=1)[:, None], axis=1)[:, 0]
        self.placed[rows[evidence.max(axis=1) <= _CLEAR]] = False

    def _solve(self) -> None:
        """All placed features together; with scales that are assumed, what twins say is better."""
        rows = np.flatnonzero(self.placed)
        turned = (np.rad2deg(self.angle[rows]) % 360).astype(np.float32)
        overlaps = find_overlaps(
            Keypoints(self.xy[rows].astype(np.float32), self.scale[rows].astype(np.float32), turned)
        )
        if not len(overlaps):
            return
        subspaces, start = self.subspaces.take(rows), self.values[rows]
        solved = Agreement(subspaces, overlaps, start, self.kind, self.sparse).solve(_SOLVING)
        kept = self.known[rows] & (not self.certain_scale)
        self.values[rows] = np.where(kept[:, None], start, solved)

    def _from_placed(self, subjects: Integers, rows: Integers, angles: Float64) -> Float64:
        """Evidence (r, h) of placed neighbours for `angles` (r, h) of `subjects`, were they where `rows` are."""
        total = np.zeros(angles.shape)
        near, distance = self._near(rows, np.flatnonzero(self.placed))
        pairs, columns = np.nonzero(distance < _FAR)
        neighbours = near[pairs, columns]
        theirs = np.repeat(self.angle[neighbours][:, None], angles.shape[1], axis=1)
        np.add.at(total, pairs, self._between(subjects[pairs], rows[pairs], neighbours, angles[pairs], theirs))
        return total

    def _between(
        self, subjects: Integers, rows: Integers, neighbours: Integers, own: Float64, theirs: Float64
    ) -> Float32:
        shift, values = self.xy[rows] - self.xy[neighbours], self.values[neighbours]
        return self.evidence.of_pairs(
            subjects, shift, values, (self.scale[rows], self.scale[neighbours]), (own, theirs)
        )

    def _near(self, rows: Integers, among: Integers) -> tuple[Integers, Float64]:
        """The best neighbours (r, k) of `rows` at other positions, and how far they are, in cells."""
        # Twins, and keypoints of another scale, are nearer than their use: look at more than are wanted.
        looked_at = np.arange(1, min(3 * _NEIGHBOURS, len(among)) + 1)
        pixels, neighbours = cKDTree(self.xy[among]).query(self.xy[rows], k=looked_at)
        near = among[neighbours]
        mine, theirs = self.scale[rows][:, None], self.scale[near]
        cells = pixels / (3 * np.sqrt(mine * theirs)) + _OCTAVE * np.abs(np.log2(theirs / mine))
        cells[pixels == 0] = np.inf
        order = np.argsort(cells, axis=1, kind="stable")[:, :_NEIGHBOURS]
        return np.take_along_axis(near, order, axis=1), np.take_along_axis(cells, order, axis=1)


def _leading(table: Float64) -> tuple[Integers, Float64]:
    """The best of (r, angles) and its lead over angles that are apart, or over none at all."""
    best = table.argmax(axis=1)
    steps = np.abs(np.arange(table.shape[1]) - best[:, None])
    apart = np.minimum(steps, table.shape[1] - steps) >= _APART
    other = np.where(apart, table, 0).max(axis=1)
    return best, table.max(axis=1) - np.maximum(other, 0)


def _limit(by_chance: Float64) -> float:
    """The lead that is clear."""
    return max(_CLEAR, float(np.quantile(by_chance, 1 - _CHANCE))) if len(by_chance) else _CLEAR
