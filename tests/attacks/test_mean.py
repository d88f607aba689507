"""The mean descriptor alone opens random lifting, and does not open lifting with confounders."""

import numpy as np

from featveil.attacks import Knowledge, attack
from featveil.attacks.mean import Mean
from featveil.core import PrivateFeatures, Subspaces
from featveil.metrics import align, guess_distances
from victims import lifted, picture


def away(private: PrivateFeatures) -> float:
    """Median distance of the guesses."""
    guess = attack(private, Mean(), Knowledge())
    return float(np.median(guess_distances(guess.values, align(private, picture(0)).points)))


def test_random_lifting_is_open_to_someone_who_knows_nothing() -> None:
    assert away(lifted("random", 2)) < 0.15
    assert away(lifted("random", 2)) < away(lifted("random", 16)) < 0.4


def test_confounders_hide_the_descriptor_from_it() -> None:
    assert away(lifted("sub-hybrid", 8)) > 0.6


def test_a_kind_without_a_database_falls_back_on_the_origin() -> None:
    seen = lifted("random", 2)
    unknown = PrivateFeatures(seen.descriptors, "ours", seen.defense, seen.guarantee, seen.keypoints, seen.image_size)
    values = attack(unknown, Mean(), Knowledge()).values
    assert isinstance(seen.descriptors, Subspaces)
    assert np.abs(np.einsum("nd,nmd->nm", values, seen.descriptors.basis)).max() < 1e-5
