from itertools import product

import numpy as np
import pytest

from featveil.attacks import Guess, Knowledge, attack
from featveil.attacks.overlap_parts.overlapping import find_overlaps
from featveil.attacks.posterior import Posterior
from featveil.attacks.posterior_overlap import WordOverlap, _as_sift, _fit, _from_sift
from featveil.attacks.posterior_parts.beliefs import propagate
from featveil.core import Guarantee, InputError, Keypoints, PrivateFeatures, WordSets
from featveil.core.arrays import Float64, Integers
from featveil.databases import Database, builtin, nearest_words
from featveil.defenses import Subset
from victims import picture, strangers


def release(mechanism: Subset, keep_geometry: bool, kind: str = "sift") -> tuple[PrivateFeatures, Integers]:
    """Picture 0 in the detector's order, so that features at one position can be told apart, and its true words."""
    features, ready = picture(0, kind), mechanism.for_kind(kind)
    assert features.keypoints is not None
    sets = ready.privatize(features.descriptors, np.random.default_rng(5))
    keypoints = features.keypoints if keep_geometry else features.keypoints.positions_only()
    private = PrivateFeatures(sets, kind, ready.spec(), ready.guarantee(), keypoints, features.image_size)
    return private, nearest_words(features.descriptors, builtin(kind))[0]


def run(private: PrivateFeatures, method: WordOverlap | Posterior) -> Guess:
    return attack(private, method, Knowledge(codebook=builtin(private.kind)), np.random.default_rng(0))


def right(guess: Guess, words: Integers) -> Float64:
    assert guess.words is not None
    return np.asarray(guess.words == words, np.float64)


def distances(guess: Guess) -> Float64:
    values = picture(0).descriptors.values
    return np.asarray(np.linalg.norm(guess.values - values / np.linalg.norm(values, axis=1, keepdims=True), axis=1))


@pytest.mark.parametrize("kind", ["sift", "rootsift"])
def test_neighbours_tell_the_true_word_from_random_ones(kind: str) -> None:
    private, words = release(Subset(12.0, 4), True, kind)
    alone, together = right(run(private, Posterior()), words), run(private, WordOverlap())
    assert alone.mean() < 0.35
    assert right(together, words).mean() > 0.75
    assert together.answered.mean() > 0.9
    order = np.random.default_rng(1).permutation(len(words))
    dealt = strangers(private, np.random.default_rng(1))
    assert right(run(dealt, WordOverlap()), words[order]).mean() < 0.35


def test_positions_alone_tell_of_features_that_share_one() -> None:
    private, words = release(Subset(12.0, 4), False)
    assert private.keypoints is not None
    _, place, count = np.unique(private.keypoints.xy, axis=0, return_inverse=True, return_counts=True)
    shares = count[place.reshape(-1)] > 1
    alone, guess = right(run(private, Posterior()), words), run(private, WordOverlap())
    np.testing.assert_array_equal(guess.answered, shares)
    assert right(guess, words)[shares].mean() > 0.75 > 0.35 > alone[shares].mean()
    assert right(guess, words)[~shares].mean() < 0.35


def test_words_that_were_never_sent_are_found() -> None:
    private, words = release(Subset(10.0, 1), True)
    alone, guess = run(private, Posterior()), run(private, WordOverlap())
    unsent = right(alone, words) == 0
    assert unsent.mean() > 0.3
    assert right(guess, words)[unsent].mean() > 0.05  # chance: one in 16,384
    assert distances(guess)[unsent].mean() < distances(alone)[unsent].mean() - 0.15
    assert right(guess, words).mean() > right(alone, words).mean()


def test_nothing_is_found_where_nothing_was_sent() -> None:
    private, words = release(Subset(0.01, 4), True)
    guess = run(private, WordOverlap())
    assert right(guess, words).mean() < 0.01
    assert (distances(guess) < 0.5).mean() < 0.02


def test_the_constants_hold_on_another_picture() -> None:
    """Pairs of true words fit, pairs with a random one do not, and by about as much as is claimed."""
    features, codebook = picture(1), builtin("sift")
    assert features.keypoints is not None
    words = nearest_words(features.descriptors, codebook)[0]
    random = np.random.default_rng(0).integers(0, len(codebook), len(words))
    overlaps = find_overlaps(features.keypoints)
    fits = _fit(overlaps, codebook.unit(np.stack([words, random], axis=1)))
    true, false = fits[:, 0, 0].astype(np.float64), fits[:, 1, 0].astype(np.float64)
    sure = [1 / (1 + np.exp(-logs)) for logs in (true, false)]
    assert (sure[0] > 0.5).mean() > 0.75 > 0.25 > (sure[1] > 0.5).mean()
    every = np.concatenate(sure)
    assert every.mean() == pytest.approx(0.5, abs=0.1)
    certain = every > 0.9
    assert np.repeat([1.0, 0.0], len(true))[certain].mean() > 0.85


def test_rootsift_is_read_as_sift() -> None:
    sift, root = picture(0).descriptors.values, picture(0, "rootsift").descriptors.values
    np.testing.assert_allclose(_as_sift(root, "rootsift"), sift, atol=1e-5)
    np.testing.assert_allclose(_from_sift(sift, "rootsift"), root, atol=1e-5)
    np.testing.assert_allclose(_as_sift(sift, "sift"), sift, atol=1e-6)


def test_beliefs_are_exact_on_a_tree() -> None:
    rng = np.random.default_rng(2)
    alone = np.log(rng.dirichlet(np.ones(3), 4))
    first, second = np.array([0, 2, 3]), np.array([1, 1, 1])
    fit = rng.normal(size=(3, 2, 2))
    expected = np.zeros((4, 3))
    for state in product(range(3), repeat=4):
        total = sum(alone[feature, choice] for feature, choice in enumerate(state))
        for pair in range(3):
            mine, theirs = state[first[pair]], state[second[pair]]
            total += fit[pair, mine, theirs] if max(mine, theirs) < 2 else 0.0
        for feature, choice in enumerate(state):
            expected[feature, choice] += np.exp(total)
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(propagate(alone, first, second, fit), expected, atol=2e-3)
    np.testing.assert_allclose(  # both orders of a pair: their mean
        propagate(
            alone,
            np.concatenate([first, second]),
            np.concatenate([second, first]),
            np.concatenate([fit + 1, fit.transpose(0, 2, 1) - 1]),
        ),
        expected,
        atol=2e-3,
    )


@pytest.mark.parametrize("keep_geometry", [True, False])
def test_alone_it_is_the_posterior(keep_geometry: bool) -> None:
    private, _ = release(Subset(10.0, 2), keep_geometry)
    one = private.take(np.array([7]))
    bare = PrivateFeatures(private.descriptors, "sift", private.defense, private.guarantee)
    for lonely in (one, bare):
        guess, alone = run(lonely, WordOverlap()), run(lonely, Posterior())
        assert not guess.answered.any()
        np.testing.assert_array_equal(guess.words, alone.words)
        np.testing.assert_array_equal(guess.values, alone.values)


@pytest.mark.parametrize("count", [2, 40])
def test_equal_features_and_a_small_codebook(count: int) -> None:
    rng = np.random.default_rng(0)
    codebook = Database(rng.random((5, 128), np.float32), "sift", 1)
    sets = WordSets(np.array([[0, 1, 3]] * count), codebook.digest, 5)
    ones = np.ones(count, np.float32)
    keypoints = Keypoints(np.stack([ones, ones], axis=1), ones, ones)
    for places in (keypoints, keypoints.positions_only()):
        seen = PrivateFeatures(sets, "sift", Subset(3.0, 3, codebook).spec(), Guarantee("local-dp", 3.0), places)
        guess = attack(seen, WordOverlap(), Knowledge(codebook=codebook))
        assert guess.words is not None and set(guess.words.tolist()) <= {0, 1, 3}


def test_refusals() -> None:
    codebook = Database(np.eye(4, dtype=np.float32), "tiny", 1)
    sets = WordSets(np.array([[1]]), codebook.digest, 4)
    seen = PrivateFeatures(sets, "tiny", Subset(1.0, 1, codebook).spec(), Guarantee("local-dp", 1.0))
    with pytest.raises(InputError, match="overlaps are known for sift and rootsift"):
        attack(seen, WordOverlap(), Knowledge(codebook=codebook))
    for wrong in ({"neighbours": 0}, {"neighbours": 2.0}, {"candidates": 1000}, {"smoothing": -1}):
        with pytest.raises(InputError, match="must be a"):
            WordOverlap(**wrong)
