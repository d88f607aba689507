"""Overlapping keypoints give each other away; dealt to other places, they do not."""

import numpy as np
import pytest

from featveil.attacks import Knowledge, attack
from featveil.attacks.overlap import Overlap
from featveil.core import InputError, Keypoints, Points, PrivateFeatures
from featveil.metrics import align, guess_distances
from victims import lifted, picture, strangers

COUNT = 800


def near(private: PrivateFeatures, truth: Points, sparse: bool) -> float:
    """The share of guesses below 0.3."""
    guess = attack(private, Overlap(sparse=sparse), Knowledge())
    return float((guess_distances(guess.values, truth) < 0.3).mean())


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


def test_positions_alone_are_refused() -> None:
    with pytest.raises(InputError, match="needs positions, scales and orientations"):
        attack(lifted("sub-hybrid", 4), Overlap(), Knowledge())
    with pytest.raises(InputError, match="rounds must be"):
        Overlap(rounds=0)
