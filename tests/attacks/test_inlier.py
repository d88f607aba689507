"""Inlier: whatever both images show is revealed, in every representation; the rest is left alone."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from featveil.attacks import Guess, Knowledge, attack
from featveil.attacks.inlier import Inlier
from featveil.core import Features, Guarantee, InputError, Keypoints, Points, PrivateFeatures, WordSets
from featveil.core.arrays import Float64
from featveil.databases import Database, builtin, nearest_words
from featveil.defenses import Lifting, Subset, privatize
from featveil.extractors import extract
from featveil.metrics import Truth, align, guess_distances
from victims import lifted, picture, strangers

COUNT = 800


@cache
def words(view: int = 0, epsilon: float = 10.0, subset_size: int = 4) -> PrivateFeatures:
    """One of the demo's pictures in words."""
    return privatize(picture(view, count=COUNT), Subset(epsilon, subset_size), rng=np.random.default_rng(view))


def noised(view: int, strength: float) -> PrivateFeatures:
    """One of the demo's pictures, each descriptor with noise of norm `strength`."""
    raw = picture(view)
    noise = np.random.default_rng(view).standard_normal(raw.descriptors.values.shape)
    noise *= strength / np.linalg.norm(noise, axis=1, keepdims=True)
    sent = Points((raw.descriptors.values + noise).astype(np.float32))
    return PrivateFeatures(sent, raw.kind, {"name": "noise"}, Guarantee("none"), raw.keypoints, raw.image_size)


def stranger() -> Features:
    """Real descriptors, of no place, at random positions."""
    rng = np.random.default_rng(5)
    places = Keypoints(rng.uniform(0, 600, (COUNT, 2)).astype(np.float32))
    return Features(Points(builtin().unit(rng.permutation(16384)[:COUNT])), "sift", places, (800, 600))


def guess_words(reference: Any, seen: PrivateFeatures | None = None) -> tuple[Guess, Truth, Float64]:
    private = words() if seen is None else seen
    truth = align(private, picture(0, count=COUNT))
    guess = attack(private, Inlier(), Knowledge(reference=reference), np.random.default_rng(0))
    return guess, truth, guess_distances(guess.values, truth.points)


@pytest.mark.parametrize("hidden", [False, True])
def test_subspaces_of_inliers_are_revealed(hidden: bool) -> None:
    other = privatize(picture(1), Lifting(), rng=np.random.default_rng(9)) if hidden else picture(1)
    guess = attack(lifted(), Inlier(), Knowledge(reference=other))
    away = guess_distances(guess.values, align(lifted(), picture(0)).points)
    assert guess.answered.mean() > 0.2
    assert (away[guess.answered] < 0.3).mean() > 0.95
    assert (away[~guess.answered] < 0.3).mean() < 0.05
    assert guess.note.startswith(f"{guess.answered.sum()} of ")


def test_words_of_inliers_are_revealed_by_a_raw_reference() -> None:
    guess, truth, away = guess_words(picture(1, count=COUNT))
    assert guess.words is not None
    found = guess.answered & truth.certain
    assert found.sum() > 60
    assert (guess.words == nearest_words(truth.points, builtin())[0])[found].mean() > 0.9
    as_words = guess_distances(builtin().unit(guess.words), truth.points)
    assert away[found].mean() < 0.7 * as_words[found].mean()  # the other view says more than the word
    assert "candidate matches" in guess.note


def test_words_of_inliers_are_revealed_by_other_words() -> None:
    guess, truth, _ = guess_words(words(1))
    assert guess.words is not None
    found, right = guess.answered & truth.certain, guess.words == nearest_words(truth.points, builtin())[0]
    assert found.sum() > 50
    assert right[found].mean() > 0.9
    assert right[~guess.answered].mean() < 0.4  # one of four words, the right one not always among them
    np.testing.assert_array_equal(guess.values, builtin().unit(guess.words))


def test_unanswered_word_sets_get_one_of_their_words() -> None:
    guess, _, _ = guess_words(stranger())
    sets = words().descriptors
    assert isinstance(sets, WordSets) and guess.words is not None
    assert not guess.answered.any()
    assert (sets.words == guess.words[:, None]).any(axis=1).all()
    assert len(np.unique(np.argmax(sets.words == guess.words[:, None], axis=1))) == 4


@pytest.mark.parametrize("made", ["lifted", "words", "noised"])
def test_a_stranger_and_wrong_places_reveal_nothing(made: str) -> None:
    private = {"lifted": lifted(), "words": words(), "noised": noised(0, 0.8)}[made]
    assert not attack(private, Inlier(), Knowledge(reference=stranger())).answered.any()
    moved = strangers(private, np.random.default_rng(0))
    assert not attack(moved, Inlier(), Knowledge(reference=picture(1))).answered.any()


def test_noise_is_no_help_where_a_match_is_found() -> None:
    private, truth = noised(0, 0.8), picture(0).descriptors
    lifted_view = privatize(picture(1), Lifting("random", 4), rng=np.random.default_rng(0))
    for other in (picture(1), lifted_view):
        guess = attack(private, Inlier(), Knowledge(reference=other))
        away = guess_distances(guess.values, truth)
        assert guess.answered.mean() > 0.2
        assert np.median(away[guess.answered]) < 0.3
        np.testing.assert_allclose(away[~guess.answered], 0.8, atol=1e-4)


def test_positions_reveal_what_epsilon_hides() -> None:
    """One word in seven is the true one, and yet: the matches tell the view, and the view tells what is where."""
    private, raw, other = words(0, 8.0, 1), picture(0, count=COUNT), picture(1, count=COUNT)
    plain = attack(private, Inlier(), Knowledge(reference=other), np.random.default_rng(0))
    wide = attack(private, Inlier(by_position=True), Knowledge(reference=other), np.random.default_rng(0))
    truth = align(private, raw)
    added = wide.answered & ~plain.answered & truth.certain
    assert added.sum() > 4 * plain.answered.sum() > 0
    away = guess_distances(wide.values, truth.points)
    assert np.median(away[added]) < 0.3
    np.testing.assert_array_equal(wide.values[plain.answered], plain.values[plain.answered])
    assert (
        wide.note == f"{plain.note}, {(wide.answered & ~plain.answered).sum()} more lie on a feature of the reference"
    )
    assert not attack(private, Inlier(by_position=True), Knowledge(reference=stranger())).answered.any()


def test_positions_reveal_more_of_every_representation() -> None:
    hidden = privatize(picture(1), Lifting(dimension=16), rng=np.random.default_rng(2))
    for private, other in ((lifted(dimension=16), hidden), (noised(0, 0.8), picture(1))):
        plain, wide = (attack(private, Inlier(wider), Knowledge(reference=other)) for wider in (False, True))
        truth = align(private, picture(0)) if private.defense["name"] == "lifting" else None
        points = picture(0).descriptors if truth is None else truth.points
        near = [(guess_distances(guess.values, points)[guess.answered] < 0.3).sum() for guess in (plain, wide)]
        assert wide.answered.sum() > 1.2 * plain.answered.sum()
        assert near[1] > 1.1 * near[0]


def test_what_only_one_image_shows_stays_hidden() -> None:
    """A foreground that the reference does not have: its features are not matched."""
    raw = picture(0)
    assert raw.keypoints is not None
    values, front = raw.descriptors.values.copy(), raw.keypoints.xy[:, 0] < 400
    values[front] = builtin().unit(np.random.default_rng(0).permutation(16384)[: front.sum()])
    scene = Features(Points(values), raw.kind, raw.keypoints, raw.image_size)
    private = privatize(scene, Lifting(), rng=np.random.default_rng(1))
    assert private.keypoints is not None
    guess = attack(private, Inlier(), Knowledge(reference=picture(1)))
    front = private.keypoints.xy[:, 0] < 400
    assert guess.answered[front].mean() < 0.02
    assert guess.answered[~front].mean() > 0.2


def test_needs_keypoints_and_the_right_codebook() -> None:
    bare = Features(picture(1).descriptors, "sift")
    for private in (lifted(), words(), noised(0, 0.1)):
        with pytest.raises(InputError, match="needs keypoints in the private features and in the reference"):
            attack(private, Inlier(), Knowledge(reference=bare))
    other = Database.from_array(builtin().points()[:500], "sift", 1, rng=np.random.default_rng(0))
    with pytest.raises(InputError, match="both sides need the same codebook"):
        attack(words(), Inlier(), Knowledge(reference=picture(1), codebook=other))
    with pytest.raises(InputError, match="not with subspaces"):
        attack(words(), Inlier(), Knowledge(reference=lifted()))
    for private in (lifted(), noised(0, 0.1)):
        with pytest.raises(InputError, match="reference of word sets can be compared with word sets only"):
            attack(private, Inlier(), Knowledge(reference=words(1)))


def test_by_position_where_all_matched() -> None:
    private, same = noised(0, 0.0), picture(0)
    guess = attack(private, Inlier(by_position=True), Knowledge(reference=same))
    assert guess.answered.all()
    np.testing.assert_allclose(guess_distances(guess.values, same.descriptors), 0, atol=1e-6)


def test_refuses_positions_of_word_sets_and_other_parameters() -> None:
    with pytest.raises(InputError, match="by_position needs a reference that is not in word sets"):
        attack(words(), Inlier(by_position=True), Knowledge(reference=words(1)))
    with pytest.raises(InputError, match="by_position is true or false"):
        Inlier(by_position=1)  # type: ignore[arg-type]


def test_a_codebook_of_its_own_serves() -> None:
    own = Database.from_array(builtin().points()[:4000], "sift", 1, rng=np.random.default_rng(0))
    private = privatize(picture(0, count=COUNT), Subset(10.0, 4, own), rng=np.random.default_rng(0))
    knowledge = Knowledge(reference=picture(1, count=COUNT), codebook=own)
    guess, truth = attack(private, Inlier(), knowledge), align(private, picture(0, count=COUNT))
    found = guess.answered & truth.certain
    assert guess.words is not None and found.sum() > 60
    assert (guess.words == nearest_words(truth.points, own)[0])[found].mean() > 0.9


@pytest.mark.parametrize("made", ["lifted", "words", "noised"])
def test_few_features_are_left_unanswered(made: str) -> None:
    private = {"lifted": lifted(), "words": words(), "noised": noised(0, 0.8)}[made]
    for rows in ([5], [5, 5, 5], [5] * 40):
        guess = attack(private.take(np.array(rows)), Inlier(by_position=True), Knowledge(reference=picture(1)))
        assert guess.values.shape == (len(rows), 128) and not guess.answered.any()
    nothing = picture(1).take(np.empty(0, np.int64))
    assert not attack(private, Inlier(), Knowledge(reference=nothing)).answered.any()


def test_real_views_of_one_place(real_data: Path) -> None:
    folder = real_data / "homography_seqs"
    raw, same = (extract(folder / "oxford_leuven" / f"{view}.jpg", "sift", 500) for view in (2, 1))
    elsewhere = extract(folder / "oxford_bark" / "1.jpg", "sift", 500)
    private = privatize(raw, Lifting("sub-hybrid", 8), rng=np.random.default_rng(0))
    guess = attack(private, Inlier(), Knowledge(reference=same))
    away = guess_distances(guess.values, align(private, raw).points)
    assert guess.answered.mean() > 0.3
    assert (away[guess.answered] < 0.3).mean() > 0.95
    assert not attack(private, Inlier(), Knowledge(reference=elsewhere)).answered.any()
