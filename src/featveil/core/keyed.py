"""Uniform draws that follow from a secret: the same thing is hidden in the same way each time."""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from featveil.core.arrays import Float64
from featveil.core.entropy import RandomBytes

SECRET_BYTES = 32
_UNIT = 2.0**-24


def tags_of(secret: bytes, rows: NDArray[np.float32]) -> list[bytes]:
    """One tag for each of `rows` (n, d), by HMAC-SHA256: equal rows have equal tags, which say nothing of the rows."""
    return [hmac.digest(secret, row.astype("<f4").tobytes(), "sha256") for row in rows]


@dataclass(frozen=True)
class KeyedDraws:
    """Draws for n things, each named by one of `tags` under a `secret`."""

    secret: bytes = field(repr=False)
    tags: Sequence[bytes] = field(repr=False)

    def uniform(self, purpose: str, rows: int, size: int) -> Float64:
        """Uniform in [-1, 1) (n, rows, size), on a grid of 2^-23, unrelated for different purposes.

        Each thing's rows depend on its tag alone, and a draw of more rows begins with those of a draw of fewer.
        """
        values = np.empty((len(self.tags), rows, size))
        for place, tag in enumerate(self.tags):
            seed = hmac.digest(self.secret, purpose.encode() + b"\0" + tag, "sha256")
            stream = hashlib.shake_256(seed).digest(4 * rows * size)
            values[place] = (np.frombuffer(stream, "<u4") >> np.uint32(8)).reshape(rows, size)
        values *= 2 * _UNIT
        values -= 1
        return values


class KeyedRandomness(RandomBytes):
    """Draws that are the same whenever the same thing `purpose` is drawn for under the same `secret`."""

    def __init__(self, secret: bytes, purpose: str) -> None:
        self._seed = hmac.digest(secret, purpose.encode(), "sha256")
        self._calls = 0

    def take(self, count: int) -> bytes:
        """The next `count` bytes, by SHAKE-256."""
        self._calls += 1
        return hashlib.shake_256(self._seed + self._calls.to_bytes(8, "little")).digest(count)
