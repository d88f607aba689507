"""How well distances verify people: accuracy over folds, and error rates over all thresholds.

A pair is accepted when its distance is at most the threshold. FAR is the share of pairs of two people that are
accepted, TAR that of pairs of one person, FRR = 1 - TAR. Equal distances are accepted or refused together.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from featveil.core import InputError
from featveil.core.arrays import Float64, Integers, floats, integers

DET_POINTS = 64  # of a stored curve


@dataclass(frozen=True, eq=False)
class ErrorRates:
    """At each threshold that can matter, from the strictest: `far` and `frr` (k,), both between 0 and 1."""

    thresholds: Float64
    far: Float64
    frr: Float64

    @property
    def equal_error_rate(self) -> float:
        """Where both rates are equal, by a straight line between the two thresholds around it."""
        gap = self.far - self.frr  # rises from -1 to 1
        after = int(np.argmax(gap >= 0))
        low, high = gap[after - 1], gap[after]
        share = -low / (high - low)
        return float(self.far[after - 1] + share * (self.far[after] - self.far[after - 1]))

    def true_accept_rate(self, far: float) -> float:
        """TAR at the loosest threshold whose FAR is at most `far`."""
        return float(1 - self.frr[self._last(far)])

    def threshold(self, far: float) -> float:
        """The loosest threshold whose FAR is at most `far`; minus infinity where nothing may be accepted."""
        return float(self.thresholds[self._last(far)])

    def curve(self, points: int = DET_POINTS) -> tuple[Float64, Float64]:
        """About `points` of the curve (FAR, FRR), spread evenly over the logarithm of FAR."""
        lowest = self.far[self.far > 0].min()
        wanted = np.geomspace(lowest, 1.0, points)
        places = np.unique([self._last(far) for far in wanted])
        return self.far[places], self.frr[places]

    def _last(self, far: float) -> int:
        if not 0 <= far <= 1:
            raise InputError(f"a false accept rate is between 0 and 1, got {far}")
        return int(np.searchsorted(self.far, far + 1e-12, side="right")) - 1


def error_rates(distances: object, same: object) -> ErrorRates:
    """Error rates of `distances` (k,) between pairs of which `same` (k,) are one person.

    Raises InputError unless there are both sorts of pairs.
    """
    values, mated = _checked(distances, same)
    levels, place = np.unique(values, return_inverse=True)
    accepted = np.cumsum(np.bincount(place[mated], minlength=len(levels)))
    false = np.cumsum(np.bincount(place[~mated], minlength=len(levels)))
    far = np.concatenate([[0.0], false / false[-1]])
    frr = 1 - np.concatenate([[0.0], accepted / accepted[-1]])
    return ErrorRates(np.concatenate([[-np.inf], levels]), far, frr)


def fold_accuracies(distances: object, same: object, folds: object) -> Float64:
    """The share of pairs of each fold that are told right with the best threshold of the others, in their order.

    The threshold lies half-way between two distances; of equally good ones the strictest counts.
    """
    values, mated = _checked(distances, same)
    fold: Integers = integers("folds", folds, (len(values),))
    accuracies = []
    for held_out in np.unique(fold):
        others = fold != held_out
        if not others.any():
            raise InputError("accuracy over folds needs at least two of them")
        threshold = best_threshold(values[others], mated[others])
        accuracies.append(float(((values[~others] <= threshold) == mated[~others]).mean()))
    return np.array(accuracies)


def best_threshold(distances: Float64, same: NDArray[np.bool_]) -> float:
    """The threshold that tells most of the pairs right."""
    levels, place = np.unique(distances, return_inverse=True)
    right = np.cumsum(np.bincount(place[same], minlength=len(levels)))
    wrong = np.cumsum(np.bincount(place[~same], minlength=len(levels)))
    gain = np.concatenate([[0], right - wrong])
    best = int(np.argmax(gain))
    bounds = np.concatenate([[levels[0]], levels, [levels[-1]]])
    if best == 0:
        return float(np.nextafter(levels[0], -np.inf))
    low, high = bounds[best : best + 2]
    middle = low + (high - low) / 2
    return float(middle if middle < high else low)  # there is no number between two neighbours


def _checked(distances: object, same: object) -> tuple[Float64, NDArray[np.bool_]]:
    values: Float64 = floats("distances", distances, (None,), np.float64)
    labels = np.asarray(same)
    if labels.dtype != np.bool_ or labels.shape != values.shape:
        raise InputError(f"{len(values)} distances need as many labels, true or false")
    if labels.all() or not labels.any():
        raise InputError("verification needs both pairs of one person and pairs of two")
    return values, labels
