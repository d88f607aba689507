"""Unlinkability, against the definition in plain loops, by hand, and at its ends."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from featveil.core import InputError
from featveil.core.arrays import Float64
from featveil.metrics.unlinkability import global_unlinkability


def bins_of(fewest: int) -> int:
    return min(100, max(2, fewest // 10))


def slow_unlinkability(mated: Float64, non_mated: Float64) -> float:
    """By likelihood ratios, bin by bin, as the paper has it."""
    low, high = min(mated.min(), non_mated.min()), max(mated.max(), non_mated.max())
    bins = bins_of(min(len(mated), len(non_mated)))
    edges = np.linspace(low, high, bins + 1)
    total = 0.0
    for place in range(bins):
        shares = []
        for scores in (mated, non_mated):
            inside = (scores >= edges[place]) & (scores < edges[place + 1])
            if place == bins - 1:
                inside |= scores == edges[-1]
            shares.append(inside.mean())
        if shares[0] == 0:
            continue
        ratio = shares[0] / shares[1] if shares[1] else math.inf
        link = 1.0 if math.isinf(ratio) else 2 * ratio / (1 + ratio) - 1
        total += shares[0] * (link if ratio > 1 else 0.0)
    return total


@settings(max_examples=60, deadline=None)
@given(st.integers(10, 300), st.integers(10, 300), st.floats(0, 3), st.integers(0, 10**6))
def test_equals_the_definition(mated: int, non_mated: int, apart: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, two = rng.normal(0, 1, mated), rng.normal(apart, 2, non_mated)
    linkability = global_unlinkability(one, two)
    assert linkability == pytest.approx(slow_unlinkability(one, two), abs=1e-12)
    assert 0 <= linkability <= 1


def test_by_hand() -> None:
    """Two bins: 0.6 against 0.2 links by a half, and the other bin links nothing."""
    mated, non_mated = [0.0] * 6 + [1.0] * 4, [0.0] * 2 + [1.0] * 8
    assert global_unlinkability(mated, non_mated) == pytest.approx(0.6 * 0.5)
    assert global_unlinkability(non_mated, mated) == pytest.approx(0.8 * (0.8 - 0.4) / 1.2)


@pytest.mark.parametrize("count", [10, 19, 200, 5000])
@pytest.mark.parametrize("sign", [1, -1])
def test_scores_that_lie_apart_link_every_pair(count: int, sign: int) -> None:
    rng = np.random.default_rng(count)
    assert global_unlinkability(sign * rng.random(count), sign * (10 + rng.random(2 * count))) == pytest.approx(1)


@pytest.mark.parametrize("count", [100, 1000, 20_000])
def test_one_distribution_links_as_little_as_its_bins_allow(count: int) -> None:
    rng = np.random.default_rng(count)
    root = math.sqrt(bins_of(count) / count)
    linkability = np.mean([global_unlinkability(*rng.normal(0, 1, (2, count))) for _ in range(10)])
    assert 0.15 * root < linkability < 0.4 * root
    assert global_unlinkability(*rng.normal(0, 1, (2, count))) < root


def test_the_same_scores_on_both_sides_link_nothing() -> None:
    scores = np.random.default_rng(0).random(500)
    assert global_unlinkability(scores, scores[::-1]) == 0
    assert global_unlinkability([2.0] * 10, [2.0] * 30) == 0


@pytest.mark.parametrize("apart", [0.0, 0.5, 2.0])
def test_which_end_stands_for_likeness_does_not_matter(apart: float) -> None:
    rng = np.random.default_rng(1)
    one, two = rng.normal(0, 1, 700), rng.normal(apart, 1, 900)
    linkability = global_unlinkability(one, two)
    assert global_unlinkability(-one, -two) == pytest.approx(linkability, abs=1e-9)
    assert global_unlinkability(3 - 8 * one, 3 - 8 * two) == pytest.approx(linkability, abs=0.01)


def test_farther_apart_links_more() -> None:
    rng = np.random.default_rng(2)
    one, two = rng.normal(0, 1, (2, 3000))
    linkability = [global_unlinkability(one, two + apart) for apart in (0, 0.5, 1, 2, 4, 20)]
    assert linkability == sorted(linkability) and linkability[0] < 0.1 and 0.9 < linkability[-2] < linkability[-1]


def test_one_outlier_far_away_blurs_the_bins_and_shows_nothing_else() -> None:
    """All others then share a bin: the measure sees too little, never more than there is."""
    rng = np.random.default_rng(3)
    one, two = rng.random(100), rng.random(100)
    one[0] = 1e12
    assert global_unlinkability(one, two) == pytest.approx(0.01, abs=1e-4)


@pytest.mark.parametrize(
    ("mated", "non_mated", "message"),
    [
        (np.ones(9), np.ones(100), "at least 10 scores of either sort"),
        (np.ones(100), np.ones(9), "at least 10 scores of either sort"),
        (np.empty(0), np.empty(0), "at least 10 scores of either sort"),
        (np.ones((10, 1)), np.ones(10), "mated scores must have shape"),
        (np.ones(10), [*np.ones(9), np.nan], "non-mated scores holds NaN"),
        ([*np.ones(9), np.inf], np.ones(10), "mated scores holds NaN"),
        (["a"] * 10, np.ones(10), "real numbers"),
    ],
)
def test_scores_that_cannot_be(mated: object, non_mated: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        global_unlinkability(mated, non_mated)
