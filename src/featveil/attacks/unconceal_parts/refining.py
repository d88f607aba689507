"""A search for raw descriptors x by what a network f made of them, with Gauss-Newton steps through the network.

What was seen is f(x) itself, or a subspace that holds it. Minimised over the unit sphere is, for a sigma that goes down
to the precision of float32,

    (distance of f(x) from what was seen)^2 / sigma^2  +  (x - centre)^T precision (x - centre)  +  zeros(x)

where zeros(x) keeps x from being negative and, where that is all there is to go by, rewards exact zeros, as
candidates.py does. A network without a bottleneck loses only the length of its output, so that almost every descriptor
whose f(x) was seen can be found exactly; what a network does lose stays as it is at the centre.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from featveil.core import ConcealingNetwork, Flats, Points
from featveil.core.arrays import Float64
from featveil.distances.threads import each_stripe

# Sigma, of points and of subspaces. Measured with random networks of 256 and 512 hidden values: points are found more
# often from 3e-3 than from 3e-2 or 1e-3.
_FIRST_OF_POINTS, _FIRST_OF_SUBSPACES, _LAST = 3e-3, 3e-2, 1e-6
# A negative component as large counts like one usual error. With 3e-3 a search of 60 steps finds 53 % of the points
# exactly (random network, 512 hidden values), with 1e-3 93 %.
_TINY = 1e-3
_WIDEST, _NARROWEST = 3e-2, 1e-4  # what counts as zero, at first and in the end, where zeros are rewarded
_EASED, _TIGHTENED, _LEAST, _MOST = 0.3, 5.0, 1e-9, 1e2  # how damping follows from steps that gain, or do not
_ROWS = 64  # descriptors whose systems are held at a time
_ROUNDING = 1e-7  # of what was sent: a better fit tells no more
_SMALLEST = 1e-12


@dataclass(frozen=True, eq=False)
class Expected:
    """What is expected of n descriptors: `centre` (n, d), from which they differ by errors of `precision` (d, d).

    Only `signed` ones may be negative; `sparse` ones have exact zeros, which are sought.
    """

    centre: Float64
    precision: Float64
    signed: bool
    sparse: bool = False

    def rows(self, part: slice) -> Self:
        """The same of some of them."""
        return type(self)(self.centre[part], self.precision, self.signed, self.sparse)

    def energy(self, points: Float64, zero: float) -> Float64:
        """How unexpected points (n, d) are; `zero` is what counts as such."""
        away = points - self.centre
        usual = ((away @ self.precision) * away).sum(axis=1)
        below = np.minimum(points, 0) ** 2
        if self.signed:
            return np.asarray(usual)
        if not self.sparse:
            return np.asarray(usual + below.sum(axis=1) / _TINY**2)
        return np.asarray(usual + (np.log(np.maximum(points, 0) ** 2 + zero**2) + below / zero**2).sum(axis=1))

    def weights(self, points: Float64, zero: float) -> Float64:
        """The quadratic of each component (n, d) that touches the part of the energy about zeros from above."""
        if self.signed:
            return np.zeros(points.shape)
        return np.asarray(1 / (np.maximum(points, 0) ** 2 + zero**2) if self.sparse else (points < 0) / _TINY**2)


def refine(network: ConcealingNetwork, seen: Flats, start: Float64, expected: Expected, steps: int) -> Float64:
    """Where searches from `start` (n, d), of norm 1, for what became `seen` end after `steps`: (n, d), of norm 1."""
    refined = np.empty(start.shape)

    def work(part: slice) -> None:
        target = _Target.of(seen.take(np.arange(part.start, part.stop)))
        refined[part] = _Search(network, target, expected.rows(part)).run(start[part], steps)

    # Each search solves many small systems, for which BLAS with threads of its own takes many times as long.
    parts = [slice(first, min(first + _ROWS, len(start))) for first in range(0, len(start), _ROWS)]
    each_stripe(parts, start.size * start.shape[1], work)
    return refined


@dataclass(frozen=True, eq=False)
class _Target:
    """Subspaces `offset` (n, d) + span of `basis` (n, m, d); points have no basis."""

    offset: Float64
    basis: Float64

    @classmethod
    def of(cls, seen: Flats) -> Self:
        if isinstance(seen, Points):
            return cls(seen.values.astype(np.float64), np.zeros((len(seen), 0, seen.size)))
        return cls(seen.offset.astype(np.float64), seen.basis.astype(np.float64))

    @property
    def first(self) -> float:
        """The sigma that a search begins with."""
        return _FIRST_OF_SUBSPACES if self.basis.shape[1] else _FIRST_OF_POINTS

    def misfit(self, outputs: Float64) -> Float64:
        """From the subspaces to `outputs` (n, d), at right angles: (n, d)."""
        return self.across((outputs - self.offset)[:, :, None])[:, :, 0]

    def across(self, columns: Float64) -> Float64:
        """The part of `columns` (n, d, c) at right angles to the subspaces."""
        return np.asarray(columns - self.basis.transpose(0, 2, 1) @ (self.basis @ columns))


@dataclass(frozen=True, eq=False)
class _Place:
    """Points (n, d) of a search, what the network makes of them, its length before it is normalised, active units."""

    points: Float64
    outputs: Float64
    lengths: Float64
    active: NDArray[np.bool_]


class _Search:
    """A few searches at a time."""

    def __init__(self, network: ConcealingNetwork, target: _Target, expected: Expected) -> None:
        self.network, self.target, self.expected = network, target, expected
        self.first, self.second = network.hidden_weight.astype(np.float64), network.output_weight.astype(np.float64)

    def run(self, start: Float64, steps: int) -> Float64:
        """Points (n, d) of norm 1."""
        here = self._at(start)
        damping = np.full(len(start), 1e-3)
        zeros = np.geomspace(_WIDEST, _NARROWEST, steps)
        for sigma, zero in zip(np.geomspace(self.target.first, _LAST, steps), zeros, strict=True):
            there = self._at(here.points + self._step(here, sigma, zero, damping))
            gains = self._energy(there, sigma, zero) < self._energy(here, sigma, zero)
            here = _chosen(gains, there, here)
            fits = np.abs(self.target.misfit(here.outputs)).max(initial=0) < _ROUNDING
            if fits and not self.expected.sparse:
                break
            damping = np.clip(damping * np.where(gains, _EASED, _TIGHTENED), _LEAST, _MOST)
        return here.points

    def _at(self, points: Float64) -> _Place:
        unit = points / np.maximum(np.linalg.norm(points, axis=1, keepdims=True), _SMALLEST)
        hidden = unit @ self.first.T + self.network.hidden_bias
        concealed = np.maximum(hidden, 0) @ self.second.T + self.network.output_bias
        lengths = np.maximum(np.linalg.norm(concealed, axis=1), _SMALLEST)
        return _Place(unit, concealed / lengths[:, None], lengths, hidden > 0)

    def _energy(self, place: _Place, sigma: float, zero: float) -> Float64:
        misfit = (self.target.misfit(place.outputs) ** 2).sum(axis=1) / sigma**2
        return np.asarray(misfit + self.expected.energy(place.points, zero))

    def _step(self, place: _Place, sigma: float, zero: float, damping: Float64) -> Float64:
        """The damped Gauss-Newton step (n, d) of each search."""
        slopes = self.target.across(self._slopes(place))
        across, weights = slopes.transpose(0, 2, 1), self.expected.weights(place.points, zero)
        pull = (across @ self.target.misfit(place.outputs)[:, :, None])[:, :, 0] / sigma**2
        pull += (place.points - self.expected.centre) @ self.expected.precision + weights * place.points
        curvature = across @ slopes / sigma**2 + self.expected.precision
        diagonal = np.arange(place.points.shape[1])
        curvature[:, diagonal, diagonal] += weights
        usual = np.trace(curvature, axis1=1, axis2=2) / len(diagonal)
        curvature[:, diagonal, diagonal] += (damping * usual)[:, None]
        return np.asarray(-np.linalg.solve(curvature, pull[:, :, None])[:, :, 0])

    def _slopes(self, place: _Place) -> Float64:
        """How outputs of norm 1 change (n, d, d) with points of norm 1."""
        first, second = self.network.hidden_weight, self.network.output_weight
        through = np.stack([(second * active) @ first for active in place.active]).astype(np.float64)
        outputs, points = place.outputs, place.points
        through -= outputs[:, :, None] * (outputs[:, None] @ through)
        through /= place.lengths[:, None, None]
        through -= (through @ points[:, :, None]) * points[:, None]
        return through


def _chosen(gains: NDArray[np.bool_], there: _Place, here: _Place) -> _Place:
    """`there` where that `gains`, else `here`."""
    rows = gains[:, None]
    return _Place(
        np.where(rows, there.points, here.points),
        np.where(rows, there.outputs, here.outputs),
        np.where(gains, there.lengths, here.lengths),
        np.where(rows, there.active, here.active),
    )
