import os

import numpy as np
import pytest

from featveil.core import InputError, SecureRandomness


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
