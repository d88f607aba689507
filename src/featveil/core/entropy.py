"""Where randomness comes from.

A release draws every bit from the operating system's secure generator: a seeded or merely well-mixed generator can
be replayed or run backwards from its outputs, and the outputs are what we publish. Studies that must repeat pass
`numpy.random.default_rng(seed)` instead, which offers the same two methods.
"""

import os
from typing import Protocol

import numpy as np

from featveil.core.arrays import Float64, Integers
from featveil.core.errors import InputError

_UNIT = 2.0**-53


class Randomness(Protocol):
    """The draws that defenses need; `SecureRandomness` and `numpy.random.Generator` both provide them."""

    def random(self, size: tuple[int, ...], /) -> Float64:
        """Uniform float64 in [0, 1)."""
        ...

    def integers(self, low: int, high: int, /, size: tuple[int, ...]) -> Integers:
        """Uniform int64 in [low, high)."""
        ...


class SecureRandomness:
    """Uniform draws from `os.urandom`, without any state that could be recovered."""

    def random(self, size: tuple[int, ...], /) -> Float64:
        """Uniform float64 in [0, 1), on the grid of multiples of 2^-53."""
        bits = self._words(size)
        bits >>= np.uint64(11)
        return bits.astype(np.float64) * _UNIT

    def integers(self, low: int, high: int, /, size: tuple[int, ...]) -> Integers:
        """Uniform int64 in [low, high), without modulo bias: words past the last full multiple are redrawn."""
        span = high - low
        if not 0 < span < 2**63:
            raise InputError(f"cannot draw a whole number from [{low}, {high})")
        limit = np.uint64((2**64 // span) * span - 1)
        words = self._words(size)
        while (late := words > limit).any():
            words[late] = self._words((int(late.sum()),))
        return (words % np.uint64(span)).astype(np.int64) + low

    @staticmethod
    def _words(size: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]]:
        count = int(np.prod(size, dtype=np.int64))
        return np.frombuffer(bytearray(os.urandom(8 * count)), dtype=np.uint64).reshape(size)
