"""Equal success of an attacker who wants the nearest word of a descriptor, whatever the mechanism.

The attacker names one of the k words at random: nothing is better against the subset mechanism if all words are
equally common; against the metric one something else may be, so its true success is at least this. Equal success
says nothing of near misses, in which the two differ: `guess_distance` shows them.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from featveil.core import InputError, Points, WordSets
from featveil.core.arrays import Float32, Integers
from featveil.core.resuming import Report
from featveil.databases import Database
from featveil.databases.entries import unit_rows
from featveil.datasets import HPatches
from featveil.defenses.metric import STEP, distance_steps
from featveil.defenses.subset import LARGEST_EPSILON, subset_coin
from featveil.extractors import extract
from featveil.lab.scene_studies import Settings

SAMPLE = 1000  # descriptors that a calibration uses, at most
_SMALLEST_EPSILON = 1e-3
_CLOSE = 1.001  # a calibrated epsilon is right within this factor
_ENTRIES = 2**24  # distances that a calibration holds, at most


@dataclass(frozen=True)
class Outcome:
    """The share of released sets that `contains` the nearest word of the descriptor, and two mean distances.

    They are from the descriptor, at norm 1, to the attacker's guess (lower leaks more) and to the nearest of the set.
    """

    contains: float
    guess_distance: float
    best_distance: float


def subset_success(epsilon: float, codebook_size: int, subset_size: int) -> float:
    """How often the attacker names the nearest word, against the subset mechanism."""
    return float(subset_coin(epsilon, codebook_size, subset_size).probability / subset_size)


def calibrate(points: Points, codebook: Database, success: float, subset_size: int) -> float:
    """The metric epsilon at which the attacker's expected success on `points` is `success`, within 0.1 percent.

    Uses at most SAMPLE of the points, fewer for a codebook of more than 16,384 words. Raises InputError when no epsilon
    up to LARGEST_EPSILON has that success.
    """
    return Sample.of(points, codebook).calibrate(success, subset_size)


def outcome(sets: WordSets, points: Points, nearest: Integers, codebook: Database) -> Outcome:
    """What the attacker has of released `sets` (n) of `points` whose words are `nearest` (n,); n is at least 1.

    The mean over the words of a set stands for the attacker's random choice.
    """
    contains = (sets.words == nearest[:, None]).any(axis=1).mean()
    values = unit_rows(points.values)
    # A column at a time: a set may have many words.
    columns = [np.linalg.norm(values - codebook.unit(words), axis=1) for words in sets.words.T]
    distances = np.stack(columns, axis=1)
    return Outcome(float(contains), float(distances.mean()), float(distances.min(axis=1).mean()))


@dataclass(frozen=True, eq=False)
class Sample:
    """Of some descriptors, how many steps farther than the nearest word the others are, in rising order (n, K)."""

    steps: NDArray[np.int32]

    @classmethod
    def of(cls, points: Points, codebook: Database) -> "Sample":
        """SAMPLE of the points, at most."""
        if len(points) == 0:
            raise InputError("there are no descriptors to calibrate with")
        n = min(len(points), SAMPLE, max(1, _ENTRIES // len(codebook)))
        chosen = points.take(np.arange(n) * len(points) // n)
        return cls(np.concatenate([np.sort(steps, axis=1) for _, steps in distance_steps(chosen, codebook)]))

    def success(self, epsilon: float, k: int) -> float:
        """How often the attacker names the nearest word, against the metric mechanism.

        Expected, without listing the sets: all those with the nearest word weigh 1, and for each one of them there
        are `led[i]` whose nearest is word i.
        """
        words = self.steps.shape[1]
        place = np.arange(1, words)
        led = np.concatenate([[1.0], np.cumprod(np.maximum(words - place - k + 1, 0) / (words - place))])
        # In floats: rounding and floor of the real weights hardly count (K F / 2^S in metric.md).
        weights = np.exp(np.arange(self.steps.max() + 1) * (-epsilon * STEP / 2))
        shares = [1 / (weights[row] @ led) for row in self.steps]
        return float(np.mean(shares)) / k

    def calibrate(self, success: float, k: int) -> float:
        """The epsilon with that success; raises InputError if there is none."""
        if not 1 <= k < self.steps.shape[1]:
            raise InputError(f"subset_size must be 1 to {self.steps.shape[1] - 1}, got {k}")
        low, high = _SMALLEST_EPSILON, LARGEST_EPSILON
        least, most = self.success(low, k), self.success(high, k)
        if not least <= success <= most:
            raise InputError(f"the metric mechanism has a success of {least:.2g} to {most:.2g} here, not {success:.2g}")
        while high > low * _CLOSE:
            middle = float(np.sqrt(low * high))
            low, high = (middle, high) if self.success(middle, k) < success else (low, middle)
        return float(np.sqrt(low * high))


def sample_descriptors(dataset: HPatches, settings: Settings, report: Report = lambda done, total: None) -> Points:
    """Every m-th descriptor of all private images, m so small that `calibrate` has enough of them.

    Raises InputError when there is none.
    """
    pairs = list(dataset.pairs())
    kept: list[Float32] = []
    seen, step = 0, 1
    for done, pair in enumerate(pairs, start=1):
        values = extract(pair.second, settings.kind, settings.max_features).descriptors.values
        kept += list(values[-seen % step :: step])
        seen += len(values)
        while len(kept) > 2 * SAMPLE:
            kept, step = kept[::2], 2 * step
        report(done, len(pairs))
    if not kept:
        raise InputError(f"the private images of {dataset.name} have no features: use other images")
    return Points(np.array(kept))
