"""The ranker tells real descriptors from what is not one, and not from other real ones."""

import numpy as np
import pytest

from featveil.attacks.discriminator_parts.ranking import Ranker, Statistics, distinguish, probabilities
from featveil.core import InputError
from featveil.core.arrays import Float32, Float64
from featveil.databases import builtin
from featveil.databases.entries import unit_rows
from victims import picture

CONFOUNDERS = 3
CHANCE = 1 / (CONFOUNDERS + 1)


def real(number: int, kind: str = "sift") -> Float32:
    """Descriptors of one of the demo's pictures in random order."""
    values = picture(number, kind, 2000).descriptors.values
    return values[np.random.default_rng(number).permutation(len(values))]


def lists(number: int, pool: Float32, averaged: int = 1, kind: str = "sift") -> Float32:
    """300 descriptors of a picture, each before its confounders: means of `averaged` random members of `pool`."""
    rng = np.random.default_rng([number, averaged])
    drawn = pool[rng.integers(0, len(pool), size=(300, CONFOUNDERS, averaged))]
    return np.concatenate([real(number, kind)[:300, None], unit_rows(drawn.mean(axis=2))], axis=1)


def success(tested: Float32, examples: Float32, kind: str = "sift") -> float:
    found = distinguish(tested, examples, real(1, kind)[900:], kind, np.random.default_rng(0))
    assert found.chance == CHANCE and found.count == len(tested)
    return found.success


@pytest.mark.parametrize("kind", ["sift", "rootsift"])
@pytest.mark.parametrize("averaged", [2, 3])
def test_mixed_confounders_are_told_apart(kind: str, averaged: int) -> None:
    tested, examples = (lists(number, real(number, kind)[300:900], averaged, kind) for number in (0, 1))
    assert success(tested, examples, kind) > 0.95


@pytest.mark.parametrize("kind", ["sift", "rootsift"])
def test_cluster_centres_are_told_apart(kind: str) -> None:
    centres = builtin(kind).points()
    tested, examples = lists(0, centres[:8000], kind=kind), lists(1, centres[8000:], kind=kind)
    assert success(tested, examples, kind) > 0.95


@pytest.mark.parametrize("kind", ["sift", "rootsift"])
def test_exchangeable_ones_are_not(kind: str) -> None:
    tested, examples = (lists(number, real(number, kind)[300:900], kind=kind) for number in (0, 1))
    # 300 lists: three standard deviations of pure chance are 0.075.
    assert abs(success(tested, examples, kind) - CHANCE) < 0.1


def test_a_tie_is_no_success() -> None:
    copies = np.repeat(real(0)[:300, None], CONFOUNDERS + 1, axis=1)
    assert abs(success(copies, lists(1, real(1)[300:900], 2)) - CHANCE) < 0.1


def test_the_ranker_finds_what_was_planted() -> None:
    rng = np.random.default_rng(0)
    statistics, places = rng.normal(size=(600, 5, 4)), rng.integers(0, 5, size=600)
    rows = np.arange(600)
    statistics[rows, places, 1] += 3
    valid = rng.random((600, 5)) < 0.9
    valid[rows, places] = True
    ranker = Ranker.fit(statistics[:300], valid[:300], places[:300])
    picked = ranker.scores(statistics[300:], valid[300:]).argmax(axis=1)
    assert (picked == places[300:]).mean() > 0.9
    blind = Ranker.fit(statistics[:300], valid[:300], np.where(valid[:300], rng.random((300, 5)), -1).argmax(axis=1))
    assert (blind.scores(statistics[300:], valid[300:]).argmax(axis=1) == places[300:]).mean() < 0.4


def test_the_ranker_is_the_most_likely_one() -> None:
    rng = np.random.default_rng(1)
    statistics, real_ones = rng.normal(size=(80, 3, 2)), rng.integers(0, 3, size=80)
    valid = np.ones((80, 3), np.bool_)
    ranker = Ranker.fit(statistics, valid, real_ones)

    def loss(weights: Float64) -> float:
        total = float(weights @ weights) / 2
        for row in range(80):
            scores = Ranker(ranker.mean, ranker.spread, weights).scores(statistics[row : row + 1], valid[:1])[0]
            total += float(np.log(np.exp(scores).sum()) - scores[real_ones[row]])
        return total

    best = loss(ranker.weights)
    for step in 0.05 * np.concatenate([np.eye(4), -np.eye(4)]):
        assert loss(ranker.weights + step) > best


def test_what_is_not_there_is_never_picked() -> None:
    rng = np.random.default_rng(0)
    statistics, valid = rng.normal(size=(50, 4, 3)), rng.random((50, 4)) < 0.5
    valid[:, 2] = True
    scores = Ranker.fit(statistics, valid, np.full(50, 2)).scores(statistics, valid)
    assert valid[np.arange(50), scores.argmax(axis=1)].all()
    assert probabilities(scores).sum(axis=1) == pytest.approx(1)
    assert (probabilities(scores)[~valid] < 1e-12).all()


def test_rounding_is_seen() -> None:
    values = real(0)[:50]
    noised = unit_rows(np.maximum(values + np.random.default_rng(0).normal(0, 2e-3, values.shape), 0))
    statistics = Statistics.of(real(1), "sift")
    assert np.median(statistics(values)[:, -2]) < 0.01
    assert np.median(statistics(noised)[:, -2]) > 0.1


def test_statistics_do_not_depend_on_how_points_are_listed() -> None:
    values = real(0)[:60]
    statistics = Statistics.of(real(1), "sift")
    assert statistics(values.reshape(12, 5, 128)).reshape(60, -1) == pytest.approx(statistics(values))


def test_other_sizes_have_general_statistics_only() -> None:
    values = unit_rows(np.abs(np.random.default_rng(0).normal(size=(40, 16))))
    general = Statistics.of(values, "other")(values)
    assert general.shape[1] < Statistics.of(real(1), "sift")(real(0)[:2]).shape[1]
    assert np.isfinite(general).all()


def test_no_descriptor_at_all_is_described() -> None:
    odd = np.stack([np.zeros(128), -np.ones(128), np.eye(128)[0]])
    for kind in ("sift", "rootsift"):
        assert np.isfinite(Statistics.of(real(1, kind), kind)(odd)).all()


def test_bad_input() -> None:
    good = lists(0, real(0)[300:])
    rng = np.random.default_rng(0)
    for bad in (good[:, 0], good[:0], good[:, :1], good[..., :64]):
        with pytest.raises(InputError, match="lists are"):
            distinguish(bad, good, real(1), "sift", rng)
        with pytest.raises(InputError, match="examples are"):
            distinguish(good, bad, real(1), "sift", rng)
    with pytest.raises(InputError, match="at least one descriptor"):
        distinguish(good, good, real(1)[:0], "sift", rng)
    with pytest.raises(InputError, match="at least one list"):
        Ranker.fit(np.empty((0, 3, 2)), np.empty((0, 3), np.bool_), np.empty(0, np.int64))
