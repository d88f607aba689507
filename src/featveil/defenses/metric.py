"""Metric privacy on a codebook: words near the descriptor are likelier (beyond the paper; metric.md has the proof).

Hides:          which of several similar descriptors it was: their outputs differ by at most e^(epsilon distance).
From:           anyone, whatever they know or compute: the bound needs no assumption on the attacker.
Does not hide:  what the descriptor roughly looks like, by design; keypoint positions, the number of features.
Known breaks:   none of the bound, but it is weak far away: as local privacy epsilon counts twice (square root of two
                times where no component is negative, as in SIFT), so an epsilon that is useful bounds little there.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from featveil.core import Guarantee, InputError, NotFittedError, Points, Randomness, Spec, WordSets
from featveil.core.arrays import Float64, Integers
from featveil.core.draws import below, distinct
from featveil.core.options import option
from featveil.databases import Database
from featveil.databases.codebooks import check_codebook, check_comparable
from featveil.defenses.subset import (
    CODEBOOK,
    EPSILON,
    check_epsilon,
    check_subset_size,
    codebook_for,
    exponential_from_below,
)

SLACK = 2.0**-15  # what rounding adds to every distance in the claim
STEP = 2.0**-16  # distances are rounded down to multiples of this
_STEPS = 2**17  # in the largest distance, 2
_ROUNDING = Fraction(1, 2**17)  # the part of SLACK that rounded weights may use
_LARGEST_SIZE = 2**14  # up to here float64 distances err by less than 2^-18
_PRECISION = 128  # bits of the powers that weights are rounded from
_ENTRIES = 2**22  # distances that are held at a time
_NUMBERS = 2**21  # of words as float64, likewise


@dataclass(frozen=True)
class Metric:
    """Replace each descriptor by `subset_size` words, the likelier the nearer one of them is.

    For any descriptors of distance D after both have norm 1, and any output, probabilities differ by a factor of at
    most e^(epsilon (D + SLACK)). `codebook` holds the words (default: the built-in database of the descriptor's kind).
    Drawing takes time in proportion to the codebook for each descriptor, where that of Subset hardly depends on it.
    """

    epsilon: float = option(**EPSILON)
    subset_size: int = option(1, help="words sent for each descriptor.")
    codebook: Database | None = option(None, **CODEBOOK)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        if math.isinf(self.epsilon):
            raise InputError("epsilon must be finite: metric privacy without a bound is Subset(math.inf)")
        object.__setattr__(self, "subset_size", check_subset_size(self.subset_size))
        if self.codebook is None:
            return
        check_codebook(self.codebook)
        if self.subset_size >= (words := len(self.codebook)):
            raise InputError(f"subset_size must be below the {words} words of the codebook, got {self.subset_size}")

    def for_kind(self, kind: str) -> Self:
        """This mechanism with the built-in codebook of `kind`, unless it has its own."""
        return replace(self, codebook=codebook_for(self.codebook, kind))

    def guarantee(self) -> Guarantee:
        """Metric differential privacy of each descriptor, per unit of distance at norm 1."""
        return Guarantee("metric-dp", float(self.epsilon))

    def spec(self) -> Spec:
        """Epsilon, subset size and the digest of the codebook."""
        return {
            "name": "metric",
            "epsilon": float(self.epsilon),
            "subset_size": self.subset_size,
            "codebook": None if self.codebook is None else self.codebook.digest,
        }

    def privatize(self, points: Points, rng: Randomness, labels: Integers | None = None) -> WordSets:
        """The word set of each point; a set weighs as much as the nearest of its words."""
        codebook, table = self._words, self._table
        sets = np.empty((len(points), self.subset_size), np.int64)
        for part, steps in distance_steps(points, codebook):
            sets[part] = _draw_sets(steps, table, self.subset_size, rng)
        return WordSets(sets, codebook.digest, len(codebook))

    def weights(self, points: Points) -> Integers:
        """The whole numbers (n, K) that the words of each point are drawn in proportion to."""
        weights = np.empty((len(points), len(self._words)), np.int64)
        for part, steps in distance_steps(points, self._words):
            np.take(self._table, steps, mode="clip", out=weights[part])
        return weights

    def probabilities(self, points: Points) -> Float64:
        """The probability (n, K) of each word, for `subset_size` 1; for larger sets, that it is proposed."""
        weights = self.weights(points)
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    @property
    def _table(self) -> Integers:
        return weight_table(float(self.epsilon), len(self._words))

    @property
    def _words(self) -> Database:
        if self.codebook is None:
            raise NotFittedError("this mechanism has no codebook: call for_kind(kind), or give one")
        return self.codebook


@lru_cache(maxsize=8)
def weight_table(epsilon: float, codebook_size: int) -> Integers:
    """Weights of words that are 0, 1, 2, ... steps farther than the nearest; the last holds for all beyond.

    Entry t is 2^S e^(-epsilon STEP t / 2) rounded up, down to a floor that keeps the relative error of rounding below
    epsilon / 2^18; 2^S is the largest power of two of which `codebook_size` still add up to at most 2^62.
    """
    top = 1 << (62 - (codebook_size - 1).bit_length())
    floor = min(top, math.ceil(4 / (_ROUNDING * Fraction(epsilon))))
    one = 1 << _PRECISION
    ratio = math.ceil(one / exponential_from_below(epsilon * STEP / 2))  # so it is from above
    levels, power = [top], one
    while levels[-1] > floor and len(levels) <= _STEPS:
        power = -(-power * ratio >> _PRECISION)
        levels.append(max(floor, -(-power * top >> _PRECISION)))
    table = np.array(levels, np.int64)
    table.setflags(write=False)
    return table


def distance_steps(points: Points, codebook: Database) -> Iterator[tuple[slice, NDArray[np.int32]]]:
    """For a few points at a time, how many steps (rows, K) each word is farther than the nearest one.

    Bounded memory, about 130 MB beside the codebook up to four million words. Raises InputError for descriptors of
    another size, a very large one or norm zero.
    """
    check_comparable(points, codebook)
    if points.size > _LARGEST_SIZE:
        raise InputError(f"metric privacy serves descriptors of size up to {_LARGEST_SIZE}, got {points.size}")
    rows, words = max(1, _ENTRIES // len(codebook)), max(1, _NUMBERS // points.size)
    for start in range(0, len(points), rows):
        part = slice(start, start + rows)
        values = _unit(points.values[part])
        steps = np.empty((len(values), len(codebook)), np.int32)
        for first in range(0, len(codebook), words):
            product = values @ _unit(codebook.values[first : first + words]).T
            product *= -2
            product += 2
            np.maximum(product, 0, out=product)
            np.sqrt(product, out=product)
            product /= STEP
            steps[:, first : first + words] = product  # rounded down
        steps -= steps.min(axis=1, keepdims=True)
        yield part, steps


def _draw_sets(steps: NDArray[np.int32], table: Integers, k: int, rng: Randomness) -> Integers:
    """One set for each row of `steps` (n, K), rising (n, k): its probability is proportional to its largest weight.

    A word drawn by weight is joined by k - 1 uniform others. The set stands if the drawn word is its nearest (of words
    equally near, the first): each set then has one way to come about, in proportion to its largest weight.
    """
    cumulative = np.take(table, steps, mode="clip")
    np.cumsum(cumulative, axis=1, out=cumulative)
    sets = np.empty((len(steps), k), np.int64)
    open_rows = np.arange(len(steps))
    while len(open_rows):
        targets = below(cumulative[open_rows, -1], rng)
        places = [cumulative[row].searchsorted(t, "right") for row, t in zip(open_rows, targets, strict=True)]
        drawn = np.array(places, np.int64)[:, None]
        others = distinct(len(open_rows), k - 1, steps.shape[1] - 1, rng)
        others += others >= drawn  # stepping over the drawn word
        joined = np.sort(np.concatenate([drawn, others], axis=1), axis=1)
        nearest = steps[open_rows[:, None], joined].argmin(axis=1)[:, None]
        sets[open_rows] = joined
        open_rows = open_rows[(np.take_along_axis(joined, nearest, axis=1) != drawn)[:, 0]]
    return sets


def _unit(rows: NDArray[Any]) -> Float64:
    """`rows` (n, d), none of them zero, as float64 rows of norm 1."""
    unit = rows.astype(np.float64)
    unit /= np.sqrt(np.einsum("ij,ij->i", unit, unit))[:, None]
    return unit
