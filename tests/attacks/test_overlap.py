"""Overlapping keypoints give each other away; dealt to other places, they do not."""

from dataclasses import replace

import numpy as np
import pytest

from featveil.attacks import Knowledge, attack
from featveil.attacks.overlap import Overlap
from featveil.attacks.overlap_parts.twins import find_twins
from featveil.attacks.subspaces import central, subspaces_of
from featveil.core import InputError, Keypoints, Points, PrivateFeatures
from featveil.metrics import align, guess_distances
from victims import lifted, picture, strangers

COUNT = 800


def near(private: PrivateFeatures, truth: Points, sparse: bool) -> float:
    """The share of guesses below 0.3."""
    guess = attack(private, Overlap(sparse=sparse), Knowledge(), np.random.default_rng(0))
    return float((guess_distances(guess.values, truth) < 0.3).mean())


def part_of_the_picture(scales: bool, orientations: bool) -> tuple[PrivateFeatures, Points]:
    """The left quarter of the picture at m = 8, told with some of its geometry, and the truth.

    Twins alone give half of it.
    """
    whole = lifted("sub-hybrid", 8, count=COUNT, keep_geometry=True)
    truth = align(whole, picture(0, "sift", COUNT)).points
    assert whole.keypoints is not None and whole.image_size is not None
    rows = np.flatnonzero(whole.keypoints.xy[:, 0] < whole.image_size[0] / 4)
    private = whole.take(rows)
    assert private.keypoints is not None
    told = Keypoints(
        private.keypoints.xy,
        private.keypoints.scale if scales else None,
        private.keypoints.orientation if orientations else None,
    )
    return replace(private, keypoints=told), truth.take(rows)


@pytest.mark.parametrize(("kind", "together", "neighbours"), [("sift", 0.7, 0.6), ("rootsift", 0.6, 0.2)])
def test_dense_keypoints_give_each_other_away(kind: str, together: float, neighbours: float) -> None:
    private = lifted("sub-hybrid", 8, kind=kind, count=COUNT, keep_geometry=True)
    truth = align(private, picture(0, kind, COUNT)).points
    assert near(private, truth, sparse=True) > together
    assert near(private, truth, sparse=False) > neighbours


def test_dealt_to_other_places_they_do_not() -> None:
    private = lifted("sub-hybrid", 8, count=COUNT, keep_geometry=True)
    order = np.random.default_rng(0).permutation(len(private))
    truth = align(private, picture(0, "sift", COUNT)).points.take(order)
    moved = strangers(private, np.random.default_rng(0))
    assert near(moved, truth, sparse=False) < 0.02
    assert near(moved, truth, sparse=True) < 0.45  # zeros tell something without any neighbour


def test_features_without_neighbours_are_not_answered() -> None:
    private = lifted("sub-hybrid", 4, count=COUNT, keep_geometry=True)
    assert private.keypoints is not None
    far = Keypoints(
        np.arange(2 * len(private), dtype=np.float32).reshape(-1, 2) * 1000,
        private.keypoints.scale,
        private.keypoints.orientation,
    )
    apart = PrivateFeatures(private.descriptors, "sift", private.defense, private.guarantee, far, None)
    guess = attack(apart, Overlap(), Knowledge())
    assert not guess.answered.any()
    assert guess.note == f"0 of {len(private)} features overlap with others"
    one = attack(private.take(np.array([3])), Overlap(), Knowledge())
    assert len(one) == 1 and not one.answered.any()


@pytest.mark.parametrize(
    ("scales", "orientations", "together", "dealt"),
    [(False, False, 0.55, 0.15), (True, False, 0.6, 0.15), (False, True, 0.7, 0.5)],
)
def test_what_a_release_does_not_tell_is_found(scales: bool, orientations: bool, together: float, dealt: float) -> None:
    private, truth = part_of_the_picture(scales, orientations)
    order = np.random.default_rng(0).permutation(len(private))
    moved = strangers(private, np.random.default_rng(0))
    assert near(private, truth, sparse=True) > together
    guess = attack(moved, Overlap(), Knowledge(), np.random.default_rng(0))
    assert np.mean(guess_distances(guess.values, truth.take(order)) < 0.3) < dealt
    assert orientations or guess.answered.mean() < 0.4  # most of half of them, which have twins, are not believed


def test_features_at_one_position_turn_as_their_orientations_do() -> None:
    private, truth = part_of_the_picture(False, True)
    assert private.keypoints is not None and private.keypoints.orientation is not None
    subspaces, orientation = subspaces_of(private), private.keypoints.orientation
    xy, start = private.keypoints.xy.astype(np.float64), central(subspaces, "sift").astype(np.float32)
    twins = find_twins(subspaces, "sift", xy, start, True, np.random.default_rng(0))
    followers = np.flatnonzero((twins.leader >= 0) & (twins.leader != np.arange(len(private))))
    assert len(followers) > 20
    leaders = twins.leader[followers]
    assert (xy[followers] == xy[leaders]).all()
    told = orientation[followers] - orientation[leaders]
    away = np.abs((np.rad2deg(twins.turn[followers]) - told + 180) % 360 - 180)
    assert np.mean(away < 10) > 0.8
    found = guess_distances(twins.values, truth)[twins.leader >= 0]
    assert np.mean(found < 0.3) > 0.8


def test_positions_alone_that_none_shares_tell_nothing() -> None:
    private, _ = part_of_the_picture(False, False)
    assert private.keypoints is not None
    _, first = np.unique(private.keypoints.xy, axis=0, return_index=True)
    guess = attack(private.take(np.sort(first)), Overlap(), Knowledge())
    assert not guess.answered.any()
    assert guess.note == f"0 of {len(first)} features could be oriented"


def test_bad_settings_and_releases_without_positions() -> None:
    private = lifted("sub-hybrid", 4)
    bare = PrivateFeatures(private.descriptors, "sift", private.defense, private.guarantee)
    with pytest.raises(InputError, match="needs the positions"):
        attack(bare, Overlap(), Knowledge())
    with pytest.raises(InputError, match="rounds must be"):
        Overlap(rounds=0)
