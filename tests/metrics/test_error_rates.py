"""Error rates and accuracies of verification, against plain loops over every threshold."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from featveil.core import InputError
from featveil.metrics.error_rates import best_threshold, error_rates, fold_accuracies

Labelled = tuple[list[float], list[bool]]


@st.composite
def labelled(draw: st.DrawFn, most: int = 25) -> Labelled:
    """Distances with many ties, of both sorts."""
    distances = draw(st.lists(st.integers(0, 8).map(float), min_size=2, max_size=most))
    same = draw(st.lists(st.booleans(), min_size=len(distances), max_size=len(distances)))
    same[0], same[1] = True, False
    return distances, same


def slow_rates(distances: list[float], same: list[bool]) -> list[tuple[float, float, float]]:
    """Threshold, FAR and FRR, from the strictest."""
    rates = []
    for threshold in [-math.inf, *sorted(set(distances))]:
        accepted = [one for one, away in zip(same, distances, strict=True) if away <= threshold]
        far = sum(not one for one in accepted) / sum(not one for one in same)
        frr = sum(same) / sum(same) - sum(accepted) / sum(same)
        rates.append((threshold, far, frr))
    return rates


def slow_equal_error_rate(rates: list[tuple[float, float, float]]) -> float:
    """Walk along the straight lines between the points (FAR, FRR) until they meet FAR = FRR."""
    for (_, far1, frr1), (_, far2, frr2) in itertools.pairwise(rates):
        if far2 >= frr2:
            share = (frr1 - far1) / ((far2 - far1) - (frr2 - frr1))
            return far1 + share * (far2 - far1)
    raise AssertionError("the last point accepts everything")


def slow_fold_accuracies(distances: list[float], same: list[bool], folds: list[int]) -> list[float]:
    """Try every threshold between two distances of the other folds, the strictest first."""
    accuracies = []
    for held_out in sorted(set(folds)):
        others = [(d, s) for d, s, f in zip(distances, same, folds, strict=True) if f != held_out]
        own = [(d, s) for d, s, f in zip(distances, same, folds, strict=True) if f == held_out]
        levels = sorted({d for d, _ in others})
        between = [(low + high) / 2 for low, high in itertools.pairwise(levels)]
        best, most = math.nan, -1
        for threshold in [math.nextafter(levels[0], -math.inf), *between, levels[-1]]:
            right = sum((d <= threshold) == s for d, s in others)
            if right > most:
                best, most = threshold, right
        accuracies.append(sum((d <= best) == s for d, s in own) / len(own))
    return accuracies


@settings(max_examples=150, deadline=None)
@given(labelled())
def test_rates_equal_a_plain_loop(case: Labelled) -> None:
    rates, expected = error_rates(*case), slow_rates(*case)
    np.testing.assert_array_equal(rates.thresholds, [threshold for threshold, _, _ in expected])
    np.testing.assert_allclose(rates.far, [far for _, far, _ in expected], atol=1e-12)
    np.testing.assert_allclose(rates.frr, [frr for _, _, frr in expected], atol=1e-12)
    assert (rates.far[0], rates.frr[0], rates.far[-1], rates.frr[-1]) == (0, 1, 1, 0)


@settings(max_examples=150, deadline=None)
@given(labelled())
def test_the_equal_error_rate_equals_a_plain_loop(case: Labelled) -> None:
    assert error_rates(*case).equal_error_rate == pytest.approx(slow_equal_error_rate(slow_rates(*case)), abs=1e-12)


@settings(max_examples=150, deadline=None)
@given(labelled(), st.one_of(st.floats(0, 1), st.fractions(0, 1, max_denominator=25).map(float)))
def test_rates_at_a_false_accept_rate_equal_a_plain_loop(case: Labelled, far: float) -> None:
    allowed = [rates for rates in slow_rates(*case) if rates[1] <= far + 1e-12]
    rates = error_rates(*case)
    assert rates.true_accept_rate(far) == pytest.approx(max(1 - frr for _, _, frr in allowed), abs=1e-12)
    assert rates.threshold(far) == max(threshold for threshold, _, _ in allowed)


def test_a_share_that_is_no_binary_number_is_reached_exactly() -> None:
    """One of ten strangers is 0.1 of them, however it is rounded."""
    rates = error_rates([*range(10), 2.5, 0.5], [False] * 10 + [True, True])
    assert 1 - 0.9 < 0.1
    assert rates.threshold(1 - 0.9) == rates.threshold(0.1) == 0.5
    assert rates.threshold(1 - 0.7) == rates.threshold(0.3) == 2.5
    assert rates.threshold(0.299) == 1


def test_rates_by_hand() -> None:
    rates = error_rates([0.1, 0.2, 0.3, 0.4, 0.25, 0.5, 0.6, 0.7, 0.8], [True] * 4 + [False] * 5)
    assert rates.true_accept_rate(0) == 0.5 and rates.threshold(0) == 0.2
    assert rates.true_accept_rate(0.2) == 1 and rates.threshold(0.2) == 0.4
    assert rates.true_accept_rate(0.39) == 1 and rates.threshold(1) == 0.8
    # From (0.2, 0.5) to (0.2, 0.25) and on to (0.2, 0): FAR is 0.2 where the lines meet.
    assert rates.equal_error_rate == pytest.approx(0.2)


def test_perfect_scores() -> None:
    rates = error_rates([0.1, 0.2, 0.3, 0.9, 0.8], [True, True, True, False, False])
    assert rates.equal_error_rate == 0 and rates.true_accept_rate(0) == 1 and rates.threshold(0) == 0.3
    far, frr = rates.curve()
    assert (far.tolist(), frr.tolist()) == ([0.5, 1], [0, 0])


def test_scores_the_wrong_way_round() -> None:
    rates = error_rates([0.9, 0.8, 0.1, 0.2], [True, True, False, False])
    assert rates.equal_error_rate == 1 and rates.true_accept_rate(0.5) == 0
    assert rates.threshold(0) == -np.inf and rates.true_accept_rate(1) == 1


def test_useless_scores_are_at_chance() -> None:
    rng = np.random.default_rng(0)
    distances, same = rng.random(8000), rng.random(8000) < 0.5
    rates = error_rates(distances, same)
    assert rates.equal_error_rate == pytest.approx(0.5, abs=0.03)
    for far in (0.1, 0.5, 0.9):
        assert rates.true_accept_rate(far) == pytest.approx(far, abs=0.04)
    assert fold_accuracies(distances, same, np.arange(8000) % 4).mean() == pytest.approx(0.5, abs=0.03)


def test_equal_distances_are_accepted_or_refused_together() -> None:
    rates = error_rates([1.0] * 6, [True, False, True, False, False, True])
    assert rates.thresholds.tolist() == [-np.inf, 1]
    assert rates.equal_error_rate == 0.5
    assert rates.true_accept_rate(0.99) == 0 and rates.threshold(0.99) == -np.inf
    assert rates.true_accept_rate(1) == 1 and rates.threshold(1) == 1


def test_order_and_scale_of_the_pairs_change_nothing() -> None:
    rng = np.random.default_rng(1)
    distances, same = rng.integers(0, 30, 60) / 8, rng.random(60) < 0.4
    shuffled = rng.permutation(60)
    one, two = error_rates(distances, same), error_rates(1024 * distances[shuffled], same[shuffled])
    np.testing.assert_array_equal(one.far, two.far)
    np.testing.assert_array_equal(one.frr, two.frr)
    np.testing.assert_array_equal(1024 * one.thresholds, two.thresholds)


@settings(max_examples=60, deadline=None)
@given(labelled(60), st.integers(1, 70))
def test_the_curve_falls_and_consists_of_true_points(case: Labelled, points: int) -> None:
    rates = error_rates(*case)
    far, frr = rates.curve(points)
    assert 1 <= len(far) <= points
    assert (np.diff(far) >= 0).all() and (np.diff(frr) <= 0).all() and far.min() > 0
    assert set(zip(far, frr, strict=True)) <= set(zip(rates.far, rates.frr, strict=True))
    assert far[0] == rates.far[rates.far > 0].min()
    if points > 1:
        assert (far[-1], frr[-1]) == (1, 0)


def test_the_curve_of_many_pairs_is_spread_over_the_logarithm() -> None:
    rng = np.random.default_rng(2)
    same = np.arange(20_000) % 2 == 0
    far, _ = error_rates(rng.random(20_000) + ~same, same).curve(40)
    assert 30 <= len(far) <= 40
    steps = np.diff(np.log10(far[far > 0.01]))  # where there are points enough
    assert steps.max() < 1.1 * 4 / 39 and far[0] == 1e-4


@settings(max_examples=150, deadline=None)
@given(labelled(), st.data())
def test_accuracies_of_folds_equal_a_plain_loop(case: Labelled, data: st.DataObject) -> None:
    distances, same = case
    folds = data.draw(st.lists(st.integers(-2, 3), min_size=len(same), max_size=len(same)))
    folds[0], folds[1] = 7, 5
    rates = fold_accuracies(distances, same, np.array(folds))
    assert rates.tolist() == pytest.approx(slow_fold_accuracies(distances, same, folds))


def test_accuracies_of_folds_by_hand() -> None:
    """The others of fold 3 are best split at 0.5, those of fold 8 at 0.25, and those of fold 9 at 0.55."""
    distances = [0.1, 0.4, 0.6, 0.9, 0.2, 0.7, 0.3, 0.8]
    same = [True, True, False, False, True, False, False, False]
    folds = [3, 3, 3, 3, 8, 8, 9, 9]
    assert fold_accuracies(distances, same, folds).tolist() == pytest.approx([0.75, 1, 0.5])
    assert best_threshold(np.array([0.2, 0.7, 0.3, 0.8]), np.array([True, False, False, False])) == 0.25
    assert best_threshold(np.array([0.1, 0.4, 0.6, 0.9]), np.array([True, True, False, False])) == 0.5


def test_of_equally_good_thresholds_the_strictest_counts() -> None:
    assert best_threshold(np.array([1.0, 2, 3]), np.array([True, False, True])) == 1.5
    below = best_threshold(np.array([1.0, 2]), np.array([False, True]))
    assert below < 1 and below == np.nextafter(1, 0)
    assert best_threshold(np.array([1.0, 2]), np.array([True, True])) == 2
    assert best_threshold(np.array([1.0, 2]), np.array([False, False])) < 1


@pytest.mark.parametrize("low", [1.0, np.nextafter(1, 2), 0.1, 3e307])
def test_neighbouring_numbers_are_told_apart(low: float) -> None:
    high = np.nextafter(low, np.inf)
    assert low <= best_threshold(np.array([high, low]), np.array([False, True])) < high
    accuracies = fold_accuracies([low, high] * 2, [True, False] * 2, [0, 0, 1, 1])
    assert accuracies.tolist() == [1, 1]


def test_a_perfect_score_is_right_in_every_fold_and_its_threshold_comes_from_the_others() -> None:
    rng = np.random.default_rng(3)
    same = rng.random(100) < 0.5
    folds = np.arange(100) % 5
    distances = rng.random(100) + 2 * ~same
    assert fold_accuracies(distances, same, folds).tolist() == [1] * 5
    shifted = distances + 100 * (folds == 2)  # the others cannot know that fold 2 lies elsewhere
    assert fold_accuracies(shifted, same, folds)[2] == pytest.approx((~same)[folds == 2].mean())


@pytest.mark.parametrize("far", [-0.1, 1.1, np.nan, np.inf])
def test_rates_that_cannot_be(far: float) -> None:
    rates = error_rates([1.0, 2], [True, False])
    for ask in (rates.true_accept_rate, rates.threshold):
        with pytest.raises(InputError, match="between 0 and 1"):
            ask(far)


@pytest.mark.parametrize(
    ("distances", "same", "message"),
    [
        ([1.0, 2], [True, True], "both pairs of one person and pairs of two"),
        ([1.0, 2], [False, False], "both pairs of one person and pairs of two"),
        ([1.0, 2], [True], "2 distances need as many labels"),
        ([1.0, 2], [1, 0], "true or false"),
        ([1.0, 2], [[True, False]], "as many labels"),
        ([[1.0, 2]], [True, False], "distances must have shape"),
        ([1.0, np.nan], [True, False], "NaN"),
        ([1.0, np.inf], [True, False], "infinite"),
        (["a", "b"], [True, False], "real numbers"),
        ([], [], "labels"),
    ],
)
def test_pairs_that_cannot_be(distances: object, same: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        error_rates(distances, same)
    with pytest.raises(InputError, match=message):
        fold_accuracies(distances, same, [0, 1])


def test_folds_that_cannot_be() -> None:
    distances, same = [1.0, 2], [True, False]
    with pytest.raises(InputError, match="at least two"):
        fold_accuracies(distances, same, [4, 4])
    with pytest.raises(InputError, match="folds must have shape"):
        fold_accuracies(distances, same, [0])
    with pytest.raises(InputError, match="folds must hold whole numbers"):
        fold_accuracies(distances, same, [0.0, 1.0])
