"""Exact draws from uniform whole numbers: no floating point, so that a stated probability is the one that runs."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from featveil.core.arrays import Integers
from featveil.core.entropy import Randomness
from featveil.core.errors import InputError

_DIGIT = 32  # bits of a coin that are drawn at a time
_WIDE = 2**62


@dataclass(frozen=True)
class Coin:
    """A coin that shows heads with probability exactly `heads` / 2^`bits`."""

    heads: int
    bits: int

    def __post_init__(self) -> None:
        if self.bits % _DIGIT or not 0 <= self.heads <= 1 << self.bits:
            raise InputError(f"a coin has heads 0 to 2^bits and a multiple of {_DIGIT} bits")

    @property
    def probability(self) -> Fraction:
        """Of heads."""
        return Fraction(self.heads, 1 << self.bits)

    def flip(self, n: int, rng: Randomness) -> NDArray[np.bool_]:
        """`n` independent flips: a uniform number of `bits` bits is below `heads`.

        The number is drawn digit by digit from the top, and only as far as needed: one digit almost always.
        """
        if self.heads == 1 << self.bits:
            return np.ones(n, np.bool_)
        shown = np.zeros(n, np.bool_)
        open_flips = np.arange(n)
        for shift in range(self.bits - _DIGIT, -1, -_DIGIT):
            digit = (self.heads >> shift) % (1 << _DIGIT)
            drawn = rng.integers(0, 1 << _DIGIT, size=(len(open_flips),))
            shown[open_flips] = drawn < digit
            open_flips = open_flips[drawn == digit]
            if len(open_flips) == 0:
                break
        return shown


def below(highs: Integers, rng: Randomness) -> Integers:
    """For each of `highs` (n,), 1 to 2^62, a uniform whole number from 0 to it, exclusive."""
    limits = (_WIDE // highs) * highs
    drawn = rng.integers(0, _WIDE, size=highs.shape)
    while (late := drawn >= limits).any():
        drawn[late] = rng.integers(0, _WIDE, size=(int(late.sum()),))
    return drawn % highs


def distinct(n: int, count: int, high: int, rng: Randomness) -> Integers:
    """`n` uniform sets of `count` different whole numbers below `high` (n, count), in no particular order.

    Rows with a repetition are drawn again, which takes `count` draws a row. Where repetitions would be common, Floyd's
    method needs no second draw, but compares each number with those before it.
    """
    if 2 * count * count > high:
        return _floyd(n, count, high, rng)
    drawn = rng.integers(0, high, size=(n, count))
    while True:
        ordered = np.sort(drawn, axis=1)
        again = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
        if len(again) == 0:
            return drawn
        drawn[again] = rng.integers(0, high, size=(len(again), count))


def _floyd(n: int, count: int, high: int, rng: Randomness) -> Integers:
    """Number `place` is uniform up to high - count + place; if it is there already, that largest one joins instead."""
    drawn = np.empty((n, count), np.int64)
    for place in range(count):
        largest = high - count + place
        fresh = rng.integers(0, largest + 1, size=(n,))
        taken = (drawn[:, :place] == fresh[:, None]).any(axis=1)
        drawn[:, place] = np.where(taken, largest, fresh)
    return drawn
