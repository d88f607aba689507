"""Where randomness comes from.

A release draws every bit from the operating system's secure generator: a seeded or merely well-mixed generator can
be replayed or run backwards from its outputs, and the outputs are what we publish. Studies that must repeat pass
`numpy.random.default_rng(seed)` instead, which offers the same two methods.
"""

import os
from abc import ABC, abstractmethod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from featveil.core.arrays import Float32, Integers
from featveil.core.errors import InputError

_UNIT = np.float32(2.0**-24)


class Randomness(Protocol):
    """The draws that defenses need; `SecureRandomness` and `numpy.random.Generator` both provide them."""

    def random(self, size: tuple[int, ...], /, dtype: type[np.float32]) -> Float32:
        """Uniform float32 in [0, 1)."""
        ...

    def integers(self, low: int, high: int, /, size: tuple[int, ...]) -> Integers:
        """Uniform int64 in [low, high)."""
        ...


class RandomBytes(ABC):
    """Uniform draws from a source of uniform bytes."""

    @abstractmethod
    def take(self, count: int) -> bytes:
        """The next `count` bytes."""

    def random(self, size: tuple[int, ...], /, dtype: type[np.float32] = np.float32) -> Float32:
        """Uniform float32 in [0, 1), on the grid of multiples of 2^-24."""
        count = int(np.prod(size, dtype=np.int64))
        bits = np.frombuffer(self.take(4 * count), dtype=np.dtype("<u4")) >> np.uint32(8)
        values = bits.astype(np.float32)
        values *= _UNIT
        return values.reshape(size)

    def integers(self, low: int, high: int, /, size: tuple[int, ...]) -> Integers:
        """Uniform int64 in [low, high), without modulo bias: words past the last full multiple are redrawn."""
        span = high - low
        if not 0 < span < 2**63:
            raise InputError(f"cannot draw a whole number from [{low}, {high})")
        limit = np.uint64((2**64 // span) * span - 1)
        words = self._words(int(np.prod(size, dtype=np.int64)))
        while (late := words > limit).any():
            words[late] = self._words(int(late.sum()))
        return (words % np.uint64(span)).astype(np.int64).reshape(size) + low

    def _words(self, count: int) -> NDArray[np.uint64]:
        return np.frombuffer(self.take(8 * count), dtype=np.dtype("<u8")).copy()


class SecureRandomness(RandomBytes):
    """Uniform draws from `os.urandom`, without any state that could be recovered."""

    def take(self, count: int) -> bytes:
        """Bytes of the operating system."""
        return os.urandom(count)
