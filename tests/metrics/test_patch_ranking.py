"""FPR@95 and average precision, beside plain loops and the definition of HPatches."""

import numpy as np
import pytest

from featveil.core import InputError
from featveil.metrics import average_precision, false_positive_rate


def test_rate_by_counting() -> None:
    # 20 matching pairs at 1 to 20: the 19th completes 95 %. Of four others, one is nearer and one just as near.
    distances = [*range(1, 21), 18.5, 19, 19.5, 40]
    match = [True] * 20 + [False] * 4
    assert false_positive_rate(np.array(distances), np.array(match)) == 0.5
    assert false_positive_rate(np.array(distances), np.array(match), recall=0.5) == 0
    assert false_positive_rate(np.array(distances), np.array(match), recall=1) == 0.75


def test_perfect_useless_and_wrong_distances() -> None:
    match = np.repeat([True, False], 1000)
    rng = np.random.default_rng(0)
    assert false_positive_rate(np.where(match, 0.1, 0.9), match) == 0
    assert false_positive_rate(np.where(match, 0.9, 0.1), match) == 1
    assert false_positive_rate(np.ones(2000), match) == 1
    assert 0.92 < false_positive_rate(rng.random(2000), match) < 0.98


def reference_precision(distances: list[float], right: list[bool], positives: int) -> float:
    """The area by HPatches: trapezoids between the points (recall, precision), from (0, 1) on, nearest first."""
    order = sorted(range(len(distances)), key=lambda place: (distances[place], right[place]))
    area, hits, before = 0.0, 0, (0.0, 1.0)
    for rank, place in enumerate(order, start=1):
        hits += right[place]
        now = (hits / positives, hits / rank)
        area += (now[0] - before[0]) * (now[1] + before[1]) / 2
        before = now
    return area


def test_precision_equals_the_plain_loop() -> None:
    rng = np.random.default_rng(1)
    for _ in range(30):
        distances, right = rng.integers(0, 20, 40) / 10, rng.random(40) < 0.3
        if right.any():
            wanted = int(right.sum()) + int(rng.integers(0, 5))
            expected = reference_precision(distances.tolist(), right.tolist(), wanted)
            assert average_precision(distances, right, wanted) == pytest.approx(expected)


def test_precision_of_the_best_and_the_worst() -> None:
    right = np.repeat([True, False], [5, 95])
    assert average_precision(np.arange(100), right) == 1
    assert average_precision(-np.arange(100), right) < 0.04
    assert average_precision(np.arange(100), right, positives=10) == 0.5
    assert average_precision(np.ones(100), right) < 0.04  # all alike: the wrong ones go first
    assert average_precision(np.arange(5), np.zeros(5, np.bool_), positives=3) == 0


def test_what_cannot_be_measured() -> None:
    some = np.array([True, False])
    with pytest.raises(InputError, match="both matching and"):
        false_positive_rate(np.ones(2), np.ones(2, np.bool_))
    with pytest.raises(InputError, match="both matching and"):
        false_positive_rate(np.ones(0), np.ones(0, np.bool_))
    with pytest.raises(InputError, match="recall"):
        false_positive_rate(np.ones(2), some, recall=0)
    with pytest.raises(InputError, match="NaN"):
        false_positive_rate(np.array([np.nan, 1]), some)
    with pytest.raises(InputError, match="as many labels"):
        average_precision(np.ones(3), some)
    with pytest.raises(InputError, match="as many labels"):
        average_precision(np.ones(2), np.array([1, 0]))
    with pytest.raises(InputError, match="more than the 0"):
        average_precision(np.ones(2), some, positives=0)
