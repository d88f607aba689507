"""The nearest entry gives random lifting away, not lifting among confounders; chance gives nothing away."""

import numpy as np
import pytest

from featveil.attacks import Guess, Knowledge, attack
from featveil.attacks.chance import Chance
from featveil.attacks.nearest import NearestNeighbour
from featveil.core import Points, PrivateFeatures, Subspaces
from featveil.core.arrays import Float64
from featveil.databases import builtin
from featveil.defenses import Identity, Subset, privatize
from featveil.metrics import guess_distances
from reference import reference_matrix
from victims import lifted, own_database, picture, truth_of


def guessed(private: PrivateFeatures, method: NearestNeighbour | Chance, near_victim: bool = True) -> Guess:
    known = Knowledge(database=own_database(near_victim=near_victim))
    return attack(private, method, known, np.random.default_rng(0))


def errors(private: PrivateFeatures, guess: Guess) -> Float64:
    truth = truth_of(private).truth
    assert truth is not None
    return guess_distances(guess.values, truth)


@pytest.mark.parametrize("dimension", [2, 8])
def test_random_lifting_is_broken(dimension: int) -> None:
    private = lifted("random", dimension)
    assert np.median(errors(private, guessed(private, NearestNeighbour()))) < 0.4
    assert np.median(errors(private, guessed(private, NearestNeighbour(), near_victim=False))) < 0.6
    assert np.median(errors(private, guessed(private, Chance()))) > 0.9


@pytest.mark.parametrize("dimension", [4, 8])
def test_confounders_are_taken_for_the_hidden_descriptor(dimension: int) -> None:
    """Among entries that lifting drew from, the nearest is mostly a confounder: no better than chance."""
    private = lifted("sub-hybrid", dimension)
    nearest = guessed(private, NearestNeighbour(), near_victim=False)
    chance = guessed(private, Chance(), near_victim=False)
    assert np.median(errors(private, nearest)) > np.median(errors(private, chance)) - 0.1
    assert nearest.answered.all()


def test_is_the_nearest_in_plain_loops() -> None:
    private = lifted("sub-hybrid", 4).take(np.arange(8))
    assert isinstance(private.descriptors, Subspaces)
    entries = own_database().points()
    expected = reference_matrix(private.descriptors, Points(entries)).argmin(axis=1)
    np.testing.assert_array_equal(guessed(private, NearestNeighbour()).values, entries[expected])


def test_chance_does_not_look_at_what_was_sent() -> None:
    one, other = lifted("random", 2), privatize(picture(0), Identity(), rng=np.random.default_rng(3))
    np.testing.assert_array_equal(guessed(one, Chance()).values, guessed(other, Chance()).values)
    assert len(np.unique(guessed(one, Chance()).values, axis=0)) > 300


def test_chance_draws_words_of_the_codebook() -> None:
    codebook = builtin("sift")
    defense = Subset(epsilon=10, subset_size=2, codebook=codebook)
    private = privatize(picture(0), defense, rng=np.random.default_rng(0))
    known = Knowledge(database=own_database(), codebook=codebook)
    guess = attack(private, Chance(), known, np.random.default_rng(0))
    assert guess.words is not None
    np.testing.assert_array_equal(guess.values, codebook.unit(guess.words))
    without = attack(private, Chance(), Knowledge(database=own_database()), np.random.default_rng(0))
    assert without.words is None


def test_one_feature_and_one_entry() -> None:
    private = lifted("sub-hybrid", 4).take(np.array([0]))
    assert len(guessed(private, NearestNeighbour())) == len(guessed(private, Chance())) == 1
