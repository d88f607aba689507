"""Subset against metric mechanism, on random directions and small codebooks."""

import math
from itertools import combinations

import numpy as np
import pytest

from featveil.core import InputError, Points
from featveil.databases import Database, nearest_words
from featveil.defenses.metric import Metric
from featveil.defenses.subset import Subset
from featveil.lab.tradeoff_parts import calibration
from featveil.lab.tradeoff_parts.calibration import Outcome, Sample, calibrate, outcome, subset_success


def directions(n: int, d: int, seed: int) -> Points:
    return Points(np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32))


def codebook(words: int, d: int = 6) -> Database:
    return Database(directions(words, d, seed=1).values, "face", 1)


def measure(defense: Subset | Metric, points: Points, rng: np.random.Generator) -> Outcome:
    """Of one release."""
    assert defense.codebook is not None
    sets, words = defense.privatize(points, rng), nearest_words(points, defense.codebook)[0]
    return outcome(sets, points, words, defense.codebook)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_expected_success_is_that_of_enumeration(k: int) -> None:
    points, book = directions(7, 3, seed=0), codebook(8, d=3)
    shares = []
    for row in Metric(6.0, k, book).weights(points).astype(np.float64):
        largest = {chosen: row[list(chosen)].max() for chosen in combinations(range(8), k)}
        kept = sum(weight for chosen, weight in largest.items() if int(row.argmax()) in chosen)
        shares.append(kept / sum(largest.values()) / k)
    assert Sample.of(points, book).success(6.0, k) == pytest.approx(np.mean(shares), rel=1e-9)


@pytest.mark.parametrize("k", [1, 3])
def test_expected_success_is_what_releases_show(k: int) -> None:
    points, book = directions(4000, 6, seed=2), codebook(60)
    for defense, expected in (
        (Subset(3.0, k, book), subset_success(3.0, 60, k)),
        (Metric(9.0, k, book), Sample.of(points, book).success(9.0, k)),
    ):
        shown = measure(defense, points, np.random.default_rng(0)).contains
        assert shown == pytest.approx(k * expected, abs=0.035)


@pytest.mark.parametrize(("success", "k"), [(0.05, 1), (0.5, 1), (0.9, 1), (0.05, 4), (0.2, 4)])
def test_calibration_reaches_the_success_asked_for(success: float, k: int) -> None:
    points, book = directions(200, 6, seed=2), codebook(60)
    epsilon = calibrate(points, book, success, k)
    assert Sample.of(points, book).success(epsilon, k) == pytest.approx(success, rel=2e-3)


@pytest.mark.parametrize("success", [0.0, 0.01, 0.26, 1.0, math.nan])
def test_success_that_no_epsilon_has_is_refused(success: float) -> None:
    with pytest.raises(InputError, match="has a success of"):
        calibrate(directions(20, 6, seed=2), codebook(60), success, 4)


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("epsilon", [2.0, 4.0])
def test_metric_guesses_are_nearer_at_equal_success(k: int, epsilon: float) -> None:
    points, book = directions(1500, 6, seed=2), codebook(200)
    matched = calibrate(points, book, subset_success(epsilon, 200, k), k)
    rng = np.random.default_rng(0)
    subset, metric = (measure(defense, points, rng) for defense in (Subset(epsilon, k, book), Metric(matched, k, book)))
    assert metric.contains == pytest.approx(subset.contains, abs=0.06)
    assert metric.guess_distance < subset.guess_distance - 0.02
    assert metric.best_distance <= metric.guess_distance


def test_end_points() -> None:
    points, book = directions(800, 6, seed=2), codebook(200)
    rng = np.random.default_rng(0)
    sure, chance = (measure(Subset(epsilon, 1, book), points, rng) for epsilon in (math.inf, 1e-9))
    assert sure.contains == 1 and chance.contains < 0.03
    blind = measure(Metric(1e-9, 1, book), points, rng)
    assert blind.guess_distance == pytest.approx(chance.guess_distance, abs=0.05)
    assert sure.guess_distance < 0.7 * chance.guess_distance


def test_a_calibration_takes_a_spread_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    points, book = directions(90, 6, seed=2), codebook(60)
    monkeypatch.setattr(calibration, "SAMPLE", 30)
    assert Sample.of(points, book).success(5.0, 1) == Sample.of(points.take(np.arange(0, 90, 3)), book).success(5.0, 1)
    monkeypatch.setattr(calibration, "_ENTRIES", 600)
    assert Sample.of(points, book).success(5.0, 1) == Sample.of(points.take(np.arange(0, 90, 9)), book).success(5.0, 1)


def test_what_does_not_fit_is_refused() -> None:
    book = codebook(10)
    nothing = Points(np.empty((0, 6), np.float32))
    with pytest.raises(InputError, match="no descriptors"):
        calibrate(nothing, book, 0.5, 1)
    with pytest.raises(InputError, match="1 to 9, got 10"):
        calibrate(directions(3, 6, seed=0), book, 0.5, 10)
