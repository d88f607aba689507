import numpy as np
import pytest

from featveil.core.arrays import Float32
from featveil.geometry import agreeing, agreeing_by_chance, agreeing_candidates

RNG = np.random.default_rng(0)
SHIFT = np.array([12, -7], np.float32)


def scattered(count: int) -> Float32:
    return RNG.uniform(0, 600, (count, 2)).astype(np.float32)


def test_right_candidates_are_found_among_many_wrong_ones() -> None:
    right, wrong = scattered(60), (scattered(1200), scattered(1200))
    a, b = np.concatenate([right, wrong[0]]), np.concatenate([right + SHIFT, wrong[1]])
    agree = agreeing_candidates(a, b, 100_000)
    assert agree[:60].sum() >= 58
    assert agree[60:].sum() <= 5


def test_several_candidates_at_one_place_count_once() -> None:
    right = scattered(50)
    a, b = np.tile(right, (3, 1)), np.tile(right + SHIFT, (3, 1))
    assert agreeing(a, b).sum() == 150
    assert agreeing_candidates(a, b, 10_000).sum() == 50


def test_a_view_squeezed_onto_one_spot_is_no_agreement() -> None:
    """300 places with a candidate at one spot outnumber 40 right ones, but are six places there."""
    right, crowd = scattered(40), scattered(300)
    spots = (321 + RNG.uniform(-1.5, 1.5, (6, 2))).astype(np.float32)
    spot = spots[RNG.integers(0, 6, 300)]
    a, b = np.concatenate([right, crowd]), np.concatenate([right + SHIFT, spot])
    assert agreeing(a, b)[:40].sum() < 10  # what a plain count falls for
    agree = agreeing_candidates(a, b, 100_000)
    assert agree[:40].sum() >= 38
    assert agree[40:].sum() <= 6


def test_chance_is_far_below_what_is_right() -> None:
    right, wrong = scattered(80), (scattered(800), scattered(800))
    a, b = np.concatenate([right, wrong[0]]), np.concatenate([right + SHIFT, wrong[1]])
    chance = agreeing_by_chance(a, b, 20_000)
    assert 4 <= chance <= 20 < agreeing_candidates(a, b, 20_000).sum()


@pytest.mark.parametrize("count", [0, 1, 3])
def test_too_few_never_agree(count: int) -> None:
    assert agreeing_candidates(scattered(count), scattered(count), 100).tolist() == [False] * count
    assert agreeing_by_chance(scattered(count), scattered(count), 100) == 0


def test_all_on_one_spot() -> None:
    same = np.ones((30, 2), np.float32)
    assert agreeing_candidates(same, same, 100).sum() <= 1
