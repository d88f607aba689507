"""Which confounders look like the descriptors that they hide.

Real descriptors of other photographs differ from those of this one in many small ways, and a ranker that knows what
photographs of the same sort look like adds them up. So does this: a linear score is fitted to tell the descriptors of
the photograph from those of the pool, and each descriptor is hidden among some of about its own score. Where that score
is equal, the statistics that it is made of are distributed alike (Rosenbaum and Rubin, 1983).
"""

from dataclasses import dataclass

import numpy as np

from featveil.core import Randomness
from featveil.core.arrays import Float32, Float64, Integers
from featveil.core.draws import distinct

_SIFT_KINDS = ("sift", "rootsift")
_ZERO = 1e-6
_WIDEST = 4.0  # standard deviations, beyond which a statistic says no more
_RIDGE = 0.01
_SAMPLE = 4096  # of the pool is enough to fit a score
_WINDOW = 0.25  # width in scores that confounders are drawn from, at first; widened until there are enough
_ENOUGH = 4  # times as many as are drawn
# Points from which on a score is fitted. One that is fitted to few is about each of them: its confounders resemble it
# more than each other, by which a ranker named one point of 1 in 72 %, of 8 in 36 %, of 24 in 21 % of trials (k = 4).
_FEWEST = 24


@dataclass(frozen=True)
class Balance:
    """Draws confounders for descriptors of one `kind`."""

    kind: str

    def choose(self, points: Float32, free: Float32, count: int, rng: Randomness) -> Integers:
        """Different rows (n, count) of `free` (s, d), at least n * count of them, for each of `points` (n, d).

        A window of scores around each point is laid at random, so that the point is as likely at its edge as in its
        middle: in windows centred on the points, the median would tell.
        """
        own, others = self._scores(points, free, rng)
        order = np.argsort(others, kind="stable")
        ordered = others[order]
        chosen = np.empty((len(points), count), np.int64)
        taken = np.zeros(len(free), np.bool_)
        offsets = np.maximum(
            rng.random((len(points),), dtype=np.float32), np.float32(2**-25)
        )  # 0 never widens downwards
        for row in np.argsort(rng.integers(0, 2**62, size=(len(points),)), kind="stable"):
            width = _WINDOW
            while True:
                low = own[row] - offsets[row] * width
                first, last = np.searchsorted(ordered, (low, low + width))
                near = order[first:last][~taken[order[first:last]]]
                if len(near) >= _ENOUGH * count or last - first == len(free):
                    break
                width *= 1.5
            chosen[row] = near[distinct(1, count, len(near), rng)[0]]
            taken[chosen[row]] = True
        # A smaller release takes the first of them: their order must not follow the scores.
        shuffled = np.argsort(rng.integers(0, 2**62, size=chosen.shape), axis=1, kind="stable")
        return np.take_along_axis(chosen, shuffled, axis=1)

    def _scores(self, points: Float32, free: Float32, rng: Randomness) -> tuple[Float64, Float64]:
        """Scores of both by the linear discriminant of their statistics and the squares of these; 0 for few points."""
        if len(points) < _FEWEST:
            return np.zeros(len(points)), np.zeros(len(free))
        sample = free[np.argsort(rng.integers(0, 2**62, size=(len(free),)), kind="stable")[:_SAMPLE]]
        own, others = self._statistics(points), self._statistics(sample)
        mean, spread = others.mean(axis=0), np.maximum(others.std(axis=0), 1e-9)

        def inputs(statistics: Float64) -> Float64:
            standard = np.clip((statistics - mean) / spread, -_WIDEST, _WIDEST)
            return np.concatenate([standard, standard**2 / (_WIDEST - 1)], axis=1)

        own_inputs, other_inputs = inputs(own), inputs(others)
        middle, other_middle = own_inputs.mean(axis=0), other_inputs.mean(axis=0)
        away, other_away = own_inputs - middle, other_inputs - other_middle
        covariance = (away.T @ away / len(away) + other_away.T @ other_away / len(other_away)) / 2
        covariance[np.diag_indices_from(covariance)] += _RIDGE
        weights = np.linalg.solve(covariance, middle - other_middle)
        return own_inputs @ weights, inputs(self._statistics(free)) @ weights

    def _statistics(self, rows: Float32) -> Float64:
        """Sparsity, how uneven the components are, and for SIFT how energy is laid out (n, f)."""
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        size = np.abs(unit)
        ranked = np.sort(size, axis=1)[:, ::-1]
        columns = [(size < _ZERO).sum(axis=1), unit.sum(axis=1), (size > 0.2).sum(axis=1)]
        columns += [ranked[:, place] for place in (0, rows.shape[1] // 16, rows.shape[1] // 4)]
        columns += [np.log(size + small).sum(axis=1) for small in (0.003, 0.03)]
        if self.kind in _SIFT_KINDS and rows.shape[1] == 128:
            cells = unit.reshape(-1, 4, 4, 8)
            energy = (cells**2).sum(axis=3)
            columns += [np.abs(cells - np.roll(cells, 1, axis=3)).sum(axis=(1, 2, 3))]
            columns += [np.abs(np.diff(cells, axis=axis)).sum(axis=(1, 2, 3)) for axis in (1, 2)]
            columns += [*energy.reshape(-1, 16).T, *cells.sum(axis=(1, 2)).T]
        return np.stack(columns, axis=1).astype(np.float64)
