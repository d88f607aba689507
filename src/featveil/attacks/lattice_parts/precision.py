"""How exactly subspaces were stored: attacks on exact numbers allow for it, and find out which of two it is."""

from collections.abc import Callable
from typing import TypeVar

from featveil.core import InputError

SINGLE, HALF = 2.0**-24, 2.0**-11  # of float32 and float16, relative
_TRIED = 16  # features that show what is worth trying on the others

Found = TypeVar("Found")


def check_precision(precision: float | None) -> None:
    """Raise InputError unless it is None or a precision that numbers in float32 can have."""
    if precision is not None and not SINGLE <= precision < 0.01:
        raise InputError(f"precision must be from 2^-24, that of float32, to below 0.01, got {precision}")


def search(count: int, precision: float | None, find: Callable[[int, float], Found | None]) -> list[Found | None]:
    """`find(row, precision)` for each of `count` features.

    Without a precision it is the one that finds more in the first features, of single and half. Nothing there means
    nothing anywhere, so that hopeless searches end soon.
    """
    first = range(min(count, _TRIED))
    best: list[Found | None] = [None] * len(first)
    chosen = SINGLE
    for level in (SINGLE, HALF) if precision is None else (precision,):
        answers = [find(row, level) for row in first]
        if _hits(answers) > _hits(best):
            best, chosen = answers, level
        if _hits(best) > len(first) / 2:
            break
    if _hits(best) == 0:
        return [None] * count
    return best + [find(row, chosen) for row in range(len(first), count)]


def _hits(answers: list[Found | None]) -> int:
    return sum(one is not None for one in answers)
