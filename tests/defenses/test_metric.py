"""Metric privacy, checked in exact fractions on codebooks small enough to list every output."""

import math
from collections import Counter
from fractions import Fraction
from itertools import combinations, pairwise, permutations

import numpy as np
import pytest

from featveil.core import InputError, NotFittedError, Points, SecureRandomness
from featveil.core.arrays import Float32, Float64, Integers
from featveil.databases import Database, builtin, nearest_words
from featveil.defenses import metric
from featveil.defenses.metric import SLACK, STEP, Metric, distance_steps, weight_table
from featveil.defenses.subset import exponential_from_below

Distribution = dict[tuple[int, ...], Fraction]


def directions(n: int, d: int, seed: int) -> Points:
    return Points(np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32))


def codebook(points: Points) -> Database:
    return Database(points.values, "face", 1)


def distribution(weights: Integers, k: int) -> Distribution:
    """The probability of every set of `k` words, from the definition."""
    largest = {chosen: max(int(weights[word]) for word in chosen) for chosen in combinations(range(len(weights)), k)}
    total = sum(largest.values())
    return {chosen: Fraction(weight, total) for chosen, weight in largest.items()}


def unit(points: Points) -> Float64:
    values = points.values.astype(np.float64)
    return np.asarray(values / np.linalg.norm(values, axis=1, keepdims=True))


def close_and_far(d: int, words: Points) -> Points:
    """Inputs: words themselves, their opposites, random ones, and pairs that nearly coincide."""
    loose = directions(4, d, seed=5).values
    return Points(np.concatenate([words.values[:3], -words.values[:2], loose, loose * np.float32(1.0001) + 1e-5]))


@pytest.mark.parametrize("epsilon", [1e-12, 0.1, 1.0, 7.5, 60.0, 1000.0])
@pytest.mark.parametrize(("words", "d", "k"), [(6, 2, 1), (8, 3, 1), (6, 3, 2), (8, 4, 2), (7, 2, 3), (8, 4, 3)])
def test_no_output_tells_inputs_apart_by_more_than_the_claim(epsilon: float, words: int, d: int, k: int) -> None:
    entries = directions(words, d, seed=words)
    inputs = close_and_far(d, entries)
    weights = Metric(epsilon, k, codebook(entries)).weights(inputs)
    made = [distribution(row, k) for row in weights]
    assert all(sum(row.values()) == 1 for row in made)
    places = unit(inputs)
    for one, other in permutations(range(len(inputs)), 2):
        distance = float(np.linalg.norm(places[one] - places[other])) - 1e-12  # surely from below
        bound = exponential_from_below(epsilon * (distance + SLACK))
        assert all(made[one][chosen] <= bound * made[other][chosen] for chosen in made[one])


def test_the_claim_is_not_far_from_what_happens() -> None:
    # Seven words here and one there: both the weight of a word and the normaliser change, so half of epsilon would lie.
    words = Points(np.array([[1, 0.001 * i] for i in range(7)] + [[-1, 0]], np.float32))
    epsilon = math.log(7)
    here, there = Metric(epsilon, 1, codebook(words)).probabilities(Points(words.values[[0, 7]]))
    assert there[7] / here[7] > math.exp(0.75 * 2 * epsilon)


@pytest.mark.parametrize("epsilon", [2.0**-23, 0.5, 20.0, 300.0, 1000.0])
@pytest.mark.parametrize("words", [2, 8, 16_384, 10**6])
def test_the_table_falls_as_the_exponential_does(epsilon: float, words: int) -> None:
    table = [int(weight) for weight in weight_table(epsilon, words)]
    assert 2**62 // 2 < words * table[0] <= 2**62
    assert all(late <= early for early, late in pairwise(table))
    rate, floor = Fraction(epsilon) * Fraction(STEP) / 2, Fraction(table[-1])
    tolerance = 1 + Fraction(epsilon) / 2**18
    for t in {0, 1, 2, len(table) // 3, len(table) // 2, len(table) - 2} & set(range(len(table) - 1)):
        power = exponential_from_below(float(rate * t), 10)  # the product is exact: few bits
        above = table[0] / power
        below = above * (1 - Fraction(1, 10**50))
        assert max(below, floor) <= table[t] <= max(above, floor) * tolerance
    if 1 < len(table) <= 2**17:  # it ended because the floor was reached
        assert floor >= 2**18 / epsilon and table[-2] > floor


def test_words_farther_than_the_table_reaches_keep_its_last_weight() -> None:
    words = Points(np.array([[1, 0], [0.8, 0.6], [-1, 0]], np.float32))
    weights = Metric(1000.0, 1, codebook(words)).weights(Points(words.values[:1]))
    assert weights[0, 0] == weight_table(1000.0, 3)[0]
    assert weights[0, 1] == weights[0, 2] == weight_table(1000.0, 3)[-1] > 0


def chi_square(seen: Counter[tuple[int, ...]], expected: Distribution, n: int) -> float:
    return sum((seen[chosen] - n * float(share)) ** 2 / (n * float(share)) for chosen, share in expected.items())


@pytest.mark.parametrize(("words", "d", "k"), [(8, 3, 1), (6, 3, 2), (7, 3, 3)])
def test_sets_come_out_as_often_as_enumeration_says(words: int, d: int, k: int) -> None:
    mechanism = Metric(3.0, k, codebook(directions(words, d, seed=2)))
    n, point = 20_000, directions(1, d, seed=3)
    weights = mechanism.weights(point)[0]
    sets = mechanism.privatize(Points(np.repeat(point.values, n, axis=0)), np.random.default_rng(0)).words
    seen = Counter(tuple(row) for row in sets.tolist())
    expected = distribution(weights, k)
    limit = len(expected) + 4 * math.sqrt(2 * len(expected))
    assert set(seen) <= set(expected)
    assert chi_square(seen, expected, n) < limit
    if k > 1:  # without the rejection, sets would come in proportion to the sum of their weights
        sums = {chosen: Fraction(int(weights[list(chosen)].sum())) for chosen in expected}
        total = sum(sums.values())
        assert chi_square(seen, {chosen: weight / total for chosen, weight in sums.items()}, n) > 3 * limit


class Scripted:
    """Whole numbers 0, 1, 2, ... in place of uniform ones."""

    def random(self, size: tuple[int, ...], /, dtype: type[np.float32] = np.float32) -> Float32:
        raise AssertionError("a draw must not use floats")

    def integers(self, low: int, high: int, /, size: tuple[int, ...]) -> Integers:
        return np.arange(math.prod(size), dtype=np.int64).reshape(size)


def test_of_all_draws_each_word_gets_exactly_its_weight() -> None:
    steps = np.tile(np.array([1, 0, 2, 1], np.int32), (9, 1))
    drawn = metric._draw_sets(steps, np.array([4, 2, 1]), 1, Scripted())
    assert drawn[:, 0].tolist() == [0, 0, 1, 1, 1, 1, 2, 3, 3]


@pytest.mark.parametrize("k", [1, 2, 4])
def test_with_words_all_equally_far_it_is_the_subset_mechanism(k: int) -> None:
    words, epsilon = 8, 3.0
    mechanism = Metric(epsilon, k, codebook(Points(np.eye(words, dtype=np.float32))))
    row = distribution(mechanism.weights(Points(np.eye(words, dtype=np.float32)[:1]))[0], k)
    local = math.exp(epsilon * math.sqrt(2) / 2)
    expected = k * local / (k * local + words - k)
    assert float(sum(share for chosen, share in row.items() if 0 in chosen)) == pytest.approx(expected, rel=1e-4)


def test_a_codebook_in_blocks_has_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    # Components that are halves make every product exact, so that not even rounding may differ.
    signs = np.array([[(i >> bit) % 2 - 0.5 for bit in range(4)] for i in range(16)], np.float32)
    words = Points(np.concatenate([signs, np.eye(4, dtype=np.float32)]))
    mechanism, points = Metric(5.0, 3, codebook(words)), Points(np.tile(words.values, (3, 1)))
    whole = mechanism.weights(points)
    whole_sets = mechanism.privatize(points, np.random.default_rng(0)).words
    monkeypatch.setattr(metric, "_NUMBERS", 28)  # seven words at a time
    assert (mechanism.weights(points) == whole).all()
    assert (mechanism.privatize(points, np.random.default_rng(0)).words == whole_sets).all()
    monkeypatch.setattr(metric, "_ENTRIES", 40)  # two points at a time
    assert len(list(distance_steps(points, codebook(words)))) == 30
    assert (mechanism.weights(points) == whole).all()
    assert mechanism.privatize(points, np.random.default_rng(0)).words.shape == whole_sets.shape


def test_steps_are_distances_beyond_the_nearest_word() -> None:
    points = directions(20, 128, seed=4)
    book = builtin("sift")
    [(part, steps)] = list(distance_steps(points, book))
    assert part.start == 0 and steps.shape == (20, len(book))
    exact = np.linalg.norm(unit(points)[:, None] - unit(Points(book.points()))[None, :500], axis=2)
    nearest, distances = nearest_words(points, book)
    assert (steps[np.arange(20), nearest] == 0).all()
    assert np.abs(exact - distances[:, None] - steps[:, :500] * STEP).max() < 1.1 * STEP


def test_descriptors_of_any_length_are_one_direction() -> None:
    words = directions(50, 8, seed=1)
    points = directions(10, 8, seed=2)
    mechanism = Metric(4.0, 1, codebook(words))
    for factor in (2.0**-100, 2.0**30):
        scaled = Points(points.values * np.float32(factor))
        assert (mechanism.weights(scaled) == mechanism.weights(points)).all()


@pytest.mark.parametrize("k", [1, 2, 5, 49])
def test_sets_are_rising_and_name_their_codebook(k: int) -> None:
    book = codebook(directions(50, 8, seed=1))
    made = Metric(2.0, k, book).privatize(directions(30, 8, seed=2), SecureRandomness())
    assert made.words.shape == (30, k)
    assert (np.diff(made.words, axis=1) > 0).all()
    assert (made.codebook, made.codebook_size) == (book.digest, 50)


def test_large_epsilon_sends_the_nearest_word_and_a_tiny_one_any() -> None:
    book, points = builtin("sift"), Points(builtin("sift").points()[:40] + np.float32(0.001))
    nearest, _ = nearest_words(points, book)
    assert (Metric(1000.0, 1, book).privatize(points, SecureRandomness()).words[:, 0] == nearest).mean() > 0.9
    near_set = Metric(1000.0, 4, book).privatize(points, SecureRandomness()).words
    assert (near_set == nearest[:, None]).any(axis=1).mean() > 0.9
    for epsilon in (5e-324, 1e-300, 1e-12):
        assert (Metric(epsilon, 1, book).probabilities(points) == 1 / len(book)).all()


def test_probabilities_add_up_and_fall_with_distance() -> None:
    mechanism = Metric(10.0, 1, builtin("sift"))
    made = mechanism.probabilities(directions(3, 128, seed=0))
    assert made.sum(axis=1) == pytest.approx(1)
    for row, (_, steps) in zip(made, distance_steps(directions(3, 128, seed=0), builtin("sift")), strict=False):
        assert (np.diff(row[np.argsort(steps[0], kind="stable")]) <= 0).all()


def test_claim_and_spec_are_those_of_the_parameters() -> None:
    mechanism = Metric(8, 2).for_kind("sift")
    claim = mechanism.guarantee()
    assert (claim.kind, claim.epsilon, claim.unit) == ("metric-dp", 8.0, "descriptor")
    digest = builtin("sift").digest
    assert mechanism.spec() == {"name": "metric", "epsilon": 8.0, "subset_size": 2, "codebook": digest}
    assert Metric(8).spec()["codebook"] is None


def test_no_descriptors_no_sets() -> None:
    made = Metric(2.0, 3).for_kind("sift").privatize(Points(np.empty((0, 128), np.float32)), SecureRandomness())
    assert made.words.shape == (0, 3)


@pytest.mark.parametrize("epsilon", [math.nan, -1.0, 0.0, math.inf, 1e6, True, "2"])
def test_epsilon_must_be_a_bound(epsilon: float) -> None:
    with pytest.raises(InputError, match="epsilon must be"):
        Metric(epsilon)


@pytest.mark.parametrize("k", [0, -1, 2.0, True])
def test_subset_size_is_a_whole_number(k: int) -> None:
    with pytest.raises(InputError, match="whole number"):
        Metric(1.0, k)


@pytest.mark.parametrize("k", [6, 7])
def test_a_set_leaves_words_out(k: int) -> None:
    with pytest.raises(InputError, match="below the 6 words"):
        Metric(1.0, k, codebook(directions(6, 3, seed=0)))


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = Metric(1.0, 1, codebook(directions(6, 3, seed=0)))
    rng = SecureRandomness()
    with pytest.raises(InputError, match="size 3, descriptors 4"):
        mechanism.privatize(directions(2, 4, seed=0), rng)
    with pytest.raises(InputError, match="zero norm"):
        mechanism.privatize(Points(np.zeros((1, 3), np.float32)), rng)
    with pytest.raises(InputError, match="use a sift codebook"):
        mechanism.for_kind("sift")
    with pytest.raises(InputError, match="must be a Database"):
        Metric(1.0, 1, "sift")  # type: ignore[arg-type]
    with pytest.raises(NotFittedError, match="no codebook"):
        Metric(1.0).privatize(directions(2, 4, seed=0), rng)
    monkeypatch.setattr(metric, "_LARGEST_SIZE", 2)
    with pytest.raises(InputError, match="size up to 2"):
        mechanism.privatize(directions(2, 3, seed=0), rng)
