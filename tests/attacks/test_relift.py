"""Lifts of one descriptor meet in it; those of different ones, or copies of one lift, tell nothing."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from featveil.attacks import Knowledge, attack
from featveil.attacks.relift import Relift, meeting_points
from featveil.attacks.subspaces import central
from featveil.core import Features, InputError, Points, PrivateFeatures, Subspaces
from featveil.core.arrays import Integers
from featveil.databases import Database
from featveil.defenses import Lifting, Subset, privatize
from featveil.metrics.leakage import EXACT, guess_distances
from victims import lifted, picture, strangers, truth_of

Marks = NDArray[np.bool_]


def exact(private: PrivateFeatures, *repeats: PrivateFeatures) -> tuple[Marks, Marks]:
    """Which features were recovered exactly, and which were answered."""
    truth = truth_of(private).truth
    assert truth is not None
    guess = attack(private, Relift(), Knowledge(repeats=repeats))
    return np.asarray(guess_distances(guess.values, truth) < EXACT), guess.answered


@pytest.mark.parametrize("kind", ["sift", "rootsift"])
@pytest.mark.parametrize("strategy", ["random", "sub-hybrid", "adversarial"])
@pytest.mark.parametrize("dimension", [2, 8, 16])
def test_two_lifts_meet_in_the_descriptor(kind: str, strategy: str, dimension: int) -> None:
    releases = (lifted(strategy, dimension, kind=kind, seed=seed) for seed in (0, 1))
    right, answered = exact(*releases)
    assert answered.mean() > 0.95
    assert right[answered].all()


def test_features_at_one_position_are_told_apart() -> None:
    private = lifted()
    assert private.keypoints is not None
    _, place, times = np.unique(private.keypoints.xy, axis=0, return_inverse=True, return_counts=True)
    together = times[place] > 1
    right, answered = exact(private, lifted(seed=1))
    assert together.sum() > 50
    assert right[together & answered].all() and answered[together].mean() > 0.95


def test_lifts_of_different_dimensions_and_strategies_meet() -> None:
    right, answered = exact(lifted("sub-hybrid", 4), lifted("random", 16), lifted("adversarial", 2))
    assert answered.all() and right.all()


def test_a_feature_that_no_repeat_has_is_not_answered() -> None:
    private = lifted()
    kept = np.arange(0, 400, 2)
    right, answered = exact(private, lifted(seed=1).take(kept))
    assert 190 <= answered.sum() <= 200
    assert (right == answered).all()
    guess = attack(private, Relift(), Knowledge(repeats=(lifted(seed=1).take(kept),)))
    assert isinstance(private.descriptors, Subspaces)
    usual = central(private.descriptors, "sift")
    np.testing.assert_allclose(guess.values[~answered], usual[~answered], atol=1e-6)
    assert guess.note.startswith(f"features without a second release: {int((~answered).sum())}")


def test_a_release_with_fewer_features_than_its_repeat() -> None:
    right, answered = exact(lifted().take(np.arange(5)), lifted(seed=1))
    assert answered.all() and right.all()


def test_lifts_of_other_descriptors_are_no_repeats() -> None:
    """The same places, with descriptors dealt anew."""
    right, answered = exact(lifted(), strangers(lifted(seed=1), np.random.default_rng(0)))
    assert answered.mean() < 0.05
    assert right.sum() <= answered.sum()


def test_a_copy_tells_nothing_more() -> None:
    private = lifted()
    guess = attack(private, Relift(), Knowledge(repeats=(private, private)))
    assert not guess.answered.any()
    assert guess.note == "features whose releases share a direction: 400"


def test_lifts_that_share_a_confounder_are_not_answered() -> None:
    """A database of five entries: lifts by four of them always share some."""
    rng = np.random.default_rng(0)
    database = Database.from_array(picture(1).descriptors.values[:5], "sift", 1, rng=rng)
    releases = [privatize(picture(), Lifting("adversarial", 4, database=database), rng=rng) for _ in range(2)]
    guess = attack(releases[0], Relift(), Knowledge(repeats=(releases[1],)))
    assert not guess.answered.any()


def faces(count: int, noise: float) -> tuple[Points, list[PrivateFeatures]]:
    """Templates of 20 people without keypoints, and `count` releases, each of other photographs of them."""
    rng = np.random.default_rng(0)
    people = rng.standard_normal((20, 64))
    people /= np.linalg.norm(people, axis=1, keepdims=True)
    taken = [people + noise * rng.standard_normal(people.shape) / 8 for _ in range(count)]
    releases = [
        privatize(Features(Points(photo.astype(np.float32)), "face"), Lifting("random", 8), rng=rng) for photo in taken
    ]
    return Points(people.astype(np.float32)), releases


def test_photographs_of_one_person_meet_nearly() -> None:
    truth, releases = faces(6, 0.2)
    errors = [
        np.median(
            guess_distances(attack(releases[0], Relift(), Knowledge(repeats=tuple(releases[1:count]))).values, truth)
        )
        for count in (2, 6)
    ]
    assert errors[1] < errors[0] < 0.35
    assert errors[1] < 0.13, "the noise of one photograph is 0.2"


def test_the_meeting_point_is_the_least_squares_solution() -> None:
    """Against the normal equations written out in full, with releases left out."""
    rng = np.random.default_rng(0)
    lifts: list[tuple[Subspaces, Integers]] = []
    for m in (2, 3, 1):
        basis = np.linalg.qr(rng.standard_normal((6, 9, m))).Q.transpose(0, 2, 1)
        lift = Subspaces(rng.standard_normal((6, 9)).astype(np.float32), basis.astype(np.float32))
        lifts.append((lift, rng.permutation(6)))
    lifts[1][1][2] = -1
    lifts[2][1][4] = -1
    found, weakest = meeting_points(lifts)
    for i in range(6):
        left, right = np.zeros((9, 9)), np.zeros(9)
        for lift, rows in lifts:
            if rows[i] >= 0:
                basis = np.linalg.qr(lift.basis[rows[i]].T.astype(np.float64)).Q
                outside = np.eye(9) - basis @ basis.T
                left += outside
                right += outside @ lift.offset[rows[i]]
        np.testing.assert_allclose(found[i], np.linalg.solve(left, right), atol=1e-9)
        assert weakest[i] == pytest.approx(np.linalg.eigvalsh(left)[0], abs=1e-9)


def test_repeats_must_be_of_the_same_features() -> None:
    private = lifted()
    raw = picture(1)
    other = privatize(replace(raw, image_size=private.image_size), Lifting(), rng=np.random.default_rng(0))
    with pytest.raises(InputError, match="keypoints elsewhere"):
        attack(private, Relift(), Knowledge(repeats=(lifted(seed=1), other)))
    with pytest.raises(InputError, match="keypoints elsewhere"):
        attack(private, Relift(), Knowledge(repeats=(private.take(np.arange(0)),)))
    with pytest.raises(InputError, match="another size"):
        attack(private, Relift(), Knowledge(repeats=(replace(other, image_size=(7, 5)),)))
    with pytest.raises(InputError, match="only one of the releases has keypoints"):
        attack(private, Relift(), Knowledge(repeats=(replace(lifted(seed=1), keypoints=None),)))
    words = privatize(picture(), Subset(10.0), rng=np.random.default_rng(0))
    with pytest.raises(InputError, match="on subspaces"):
        attack(private, Relift(), Knowledge(repeats=(words,)))


def test_too_many_features_at_one_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("featveil.attacks.relift._MOST_PAIRS", 99)
    private = lifted().take(np.zeros(10, np.int64))
    with pytest.raises(InputError, match="too many features share one position"):
        attack(private, Relift(), Knowledge(repeats=(private,)))


def test_repeats_without_keypoints_have_as_many_features() -> None:
    _, releases = faces(2, 0.1)
    with pytest.raises(InputError, match="the same features: 20, not 19"):
        attack(releases[0], Relift(), Knowledge(repeats=(releases[1].take(np.arange(19)),)))
    short = privatize(
        Features(Points(np.eye(20, 32, dtype=np.float32)), "face"), Lifting("random", 2), rng=np.random.default_rng(0)
    )
    with pytest.raises(InputError, match="size 32, the private features 64"):
        attack(releases[0], Relift(), Knowledge(repeats=(short,)))
