"""Every execution of a randomised function, with its exact probability: a tape that takes each branch in turn."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from featveil.core.arrays import Float32, Integers
from featveil.core.draws import Coin

Result = TypeVar("Result")
_DIGIT = 1 << 32


def executions(run: Callable[["Tape"], Result], coin: Coin | None = None) -> Iterator[tuple[Result, Fraction]]:
    """Call `run` once for each sequence of draws it can see; weights add up to 1.

    Draws of 32 bits are digits of the one `coin` that is flipped: below, equal and above its digit stand for all.
    """
    path: list[int] = []
    while True:
        tape = Tape(path, coin)
        result = run(tape)
        yield result, tape.weight
        taken = tape.taken
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        if not taken:
            return
        path = [choice for choice, _ in taken[:-1]] + [taken[-1][0] + 1]


class Tape:
    """Randomness that follows `path`, then always takes the first branch."""

    def __init__(self, path: list[int], coin: Coin | None) -> None:
        self.path, self.coin = path, coin
        self.weight = Fraction(1)
        self.taken: list[tuple[int, int]] = []
        self._digits = 0

    def random(self, size: tuple[int, ...], /, dtype: type[np.float32]) -> Float32:
        raise AssertionError("an exact mechanism draws whole numbers only")

    def integers(self, low: int, high: int, /, size: tuple[int, ...]) -> Integers:
        count = int(np.prod(size))
        return np.array([self._one(low, high) for _ in range(count)], np.int64).reshape(size)

    def _one(self, low: int, high: int) -> int:
        options = self._digit() if high - low == _DIGIT else [(value, high - low, 1) for value in range(low, high)]
        place = self.path[len(self.taken)] if len(self.taken) < len(self.path) else 0
        self.taken.append((place, len(options)))
        value, of, weight = options[place]
        self.weight *= Fraction(weight, of)
        return value

    def _digit(self) -> list[Any]:
        assert self.coin is not None, "this function must not flip coins"
        shift = self.coin.bits - 32 * (self._digits + 1)
        self._digits += 1
        digit = (self.coin.heads >> shift) % _DIGIT
        cases = [(digit - 1, digit), (digit, 1), (digit + 1, _DIGIT - digit - 1)]
        return [(value, _DIGIT, weight) for value, weight in cases if weight]
