import os

import numpy as np
import pytest

from featveil.core import InputError, SecureRandomness
from featveil.core.entropy import RandomBytes


class Given(RandomBytes):
    """Bytes that a test chose; says how many were taken."""

    def __init__(self, content: bytes) -> None:
        self.content, self.taken = content, 0

    def take(self, count: int) -> bytes:
        self.taken += count
        given, self.content = self.content[:count], self.content[count:]
        assert len(given) == count, "more was taken than is needed"
        return given


def test_random_is_uniform_in_the_unit_interval() -> None:
    drawn = SecureRandomness().random((200, 500))
    assert drawn.dtype == np.float32
    assert drawn.min() >= 0
    assert drawn.max() < 1
    counts = np.histogram(drawn, bins=20, range=(0, 1))[0]
    assert np.abs(counts - 5000).max() < 6 * np.sqrt(5000)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 7), (-3, 4), (0, 2**40), (5, 5 + 2**62)])
def test_integers_stay_in_range(low: int, high: int) -> None:
    drawn = SecureRandomness().integers(low, high, size=(50, 3))
    assert drawn.shape == (50, 3)
    assert drawn.min() >= low
    assert drawn.max() < high


def test_integers_are_uniform() -> None:
    counts = np.bincount(SecureRandomness().integers(0, 7, size=(70_000,)))
    assert np.abs(counts - 10_000).max() < 6 * np.sqrt(10_000)


def test_words_that_would_bias_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last word, 2^64 - 1, lies past the last full multiple of 7 and must not be used."""
    answers = iter([b"\xff" * 8, (6).to_bytes(8, "little")])
    monkeypatch.setattr(os, "urandom", lambda count: next(answers))
    assert SecureRandomness().integers(0, 7, size=(1,)).tolist() == [6]


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(InputError, match="whole number"):
        SecureRandomness().integers(3, 3, size=(1,))


def words(*values: int) -> bytes:
    return b"".join(value.to_bytes(8, "little") for value in values)


def test_numbers_are_the_first_24_of_32_bits() -> None:
    """On the grid of 2^-24, which float32 holds exactly: nothing is rounded up to 1."""
    given = Given(b"".join(value.to_bytes(4, "little") for value in (0, 255, 256, 2**31, 2**32 - 1, 2**32 - 256)))
    drawn = given.random((2, 3))
    assert drawn.shape == (2, 3) and drawn.dtype == np.float32
    assert drawn.ravel().tolist() == [0, 0, 2**-24, 0.5, 1 - 2**-24, 1 - 2**-24]


@pytest.mark.parametrize("span", [1, 3, 7, 1000, 2**32, 2**62 - 1, 2**63 - 1])
def test_every_number_stands_for_as_many_words(span: int) -> None:
    """The last word that is used ends a full round of the span, and the one after it is drawn again."""
    full = 2**64 // span * span
    assert Given(words(full - 1)).integers(0, span, size=(1,)).tolist() == [span - 1]
    if full < 2**64:
        for late in (full, 2**64 - 1):
            given = Given(words(late, late, 0))
            assert given.integers(0, span, size=(1,)).tolist() == [0]
            assert given.taken == 24


def test_only_late_words_are_drawn_again_and_others_keep_their_place() -> None:
    given = Given(words(0, 2**64 - 1, 2, 2**64 - 1, 4, 5))
    assert given.integers(10, 17, size=(2, 2)).tolist() == [[10, 14], [12, 15]]
    assert given.content == b""


def test_draws_of_nothing_take_nothing() -> None:
    given = Given(b"")
    assert given.random((0, 5)).shape == (0, 5)
    assert given.integers(0, 7, size=(3, 0)).shape == (3, 0)


@pytest.mark.parametrize(("low", "high"), [(0, 0), (5, 4), (0, 2**63), (-(2**62), 2**62)])
def test_ranges_that_are_empty_or_too_long_are_refused_before_a_draw(low: int, high: int) -> None:
    with pytest.raises(InputError, match=r"cannot draw a whole number from \["):
        Given(b"").integers(low, high, size=(1,))
