import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from executions import executions
from featveil.core import InputError, SecureRandomness
from featveil.core.draws import Coin, below, distinct


@pytest.mark.parametrize("heads", [0, 1, 2**31, 2**32 - 1, 2**32])
def test_a_coin_of_one_digit_has_exactly_its_probability(heads: int) -> None:
    coin = Coin(heads, 32)
    runs = executions(lambda tape: bool(coin.flip(1, tape)[0]), coin)
    assert sum((weight for shown, weight in runs if shown), Fraction(0)) == Fraction(heads, 2**32)


@pytest.mark.parametrize("heads", [1, 2**32, 2**63 + 12345, 2**96 - 1, 5**40])
def test_a_coin_of_three_digits_has_exactly_its_probability(heads: int) -> None:
    coin = Coin(heads, 96)
    runs = list(executions(lambda tape: bool(coin.flip(1, tape)[0]), coin))
    assert sum((weight for _, weight in runs), Fraction(0)) == 1
    assert sum((weight for shown, weight in runs if shown), Fraction(0)) == coin.probability == Fraction(heads, 2**96)


def test_many_flips_come_out_as_often_as_they_should() -> None:
    shown = Coin(3 << 62, 64).flip(40_000, SecureRandomness()).mean()
    assert abs(shown - 0.75) < 0.02
    assert Coin(1 << 64, 64).flip(1000, SecureRandomness()).all()
    assert not Coin(0, 64).flip(1000, SecureRandomness()).any()


@pytest.mark.parametrize(("heads", "bits"), [(-1, 32), (2**32 + 1, 32), (1, 33)])
def test_impossible_coins_are_refused(heads: int, bits: int) -> None:
    with pytest.raises(InputError):
        Coin(heads, bits)


@pytest.mark.parametrize(("count", "high"), [(1, 1), (1, 5), (2, 5), (3, 5), (5, 5), (4, 7)])
def test_small_sets_are_exactly_uniform(count: int, high: int) -> None:
    runs = executions(lambda tape: frozenset(distinct(1, count, high, tape)[0].tolist()))
    share: Counter[frozenset[int]] = Counter()
    for members, weight in runs:
        share[members] += weight  # type: ignore[assignment]
    assert set(share.values()) == {Fraction(1, math.comb(high, count))}
    assert len(share) == math.comb(high, count)
    assert all(len(members) == count for members in share)


def test_sets_that_are_drawn_again_are_uniform_too() -> None:
    n, count, high = 60_000, 2, 9  # 9 words: repetitions occur in one row of nine
    drawn = np.sort(distinct(n, count, high, np.random.default_rng(0)), axis=1)
    assert (drawn[:, 0] < drawn[:, 1]).all()
    counts = np.bincount(drawn[:, 0] * high + drawn[:, 1], minlength=high * high)
    seen = counts[counts > 0]
    assert len(seen) == math.comb(high, count)
    expected = n / len(seen)
    assert ((seen - expected) ** 2 / expected).sum() < 70  # chi-square with 35 degrees of freedom: 0.04 %


def test_no_set_of_nothing_and_no_rows() -> None:
    assert distinct(3, 0, 5, SecureRandomness()).shape == (3, 0)
    assert distinct(0, 4, 5, SecureRandomness()).shape == (0, 4)


def test_numbers_below_each_high_are_uniform() -> None:
    highs = np.tile(np.array([1, 2, 3, 2**62]), 6000)
    drawn = below(highs, np.random.default_rng(0)).reshape(-1, 4)
    assert (drawn[:, 0] == 0).all()
    assert abs(drawn[:, 1].mean() - 0.5) < 0.03
    assert np.abs(np.bincount(drawn[:, 2]) / 6000 - 1 / 3).max() < 0.03
    assert drawn[:, 3].max() > 2**61


def test_numbers_past_the_last_full_multiple_are_drawn_again() -> None:
    class Late:
        draws = 0

        def integers(self, low: int, high: int, /, size: tuple[int, ...]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
            self.draws += 1
            return np.full(size, high - 1 if self.draws == 1 else 7)

    late = Late()
    assert below(np.array([3]), late) == 7 % 3  # type: ignore[arg-type]
    assert late.draws == 2
