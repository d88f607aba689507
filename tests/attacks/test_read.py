"""What the numbers of map points say of descriptors: as much as the map's own, and past decoys."""

from dataclasses import replace

import numpy as np
import pytest

from featveil.attacks import Attack, Chance, Knowledge, Overlap, Read, attack
from featveil.attacks.read_parts.map_descriptors import likeliest_points
from featveil.core import MapPoints, Points, PrivateFeatures
from featveil.core.arrays import Float64, Integers
from featveil.defenses import Subset
from featveil.defenses.subset import subset_coin
from featveil.gate.point_means import PointMeans
from featveil.metrics import align, guess_distances
from gated import COUNT, gated, place


def away(private: PrivateFeatures, method: Attack, size: int | None = None) -> Float64:
    """How far guesses at a release of the picture are from the truth."""
    guess = attack(private, method, Knowledge(sketch=place(size)), np.random.default_rng(0))
    return guess_distances(guess.values, align(private, gated()[1]).points)


def numbers(private: PrivateFeatures) -> MapPoints:
    assert isinstance(private.descriptors, MapPoints)
    return private.descriptors


def by_place(private: PrivateFeatures) -> Integers:
    """The features in an order that their geometry gives."""
    keypoints = private.keypoints
    assert keypoints is not None and keypoints.orientation is not None and keypoints.scale is not None
    return np.lexsort((*keypoints.xy.T, keypoints.orientation, keypoints.scale))


def test_means_of_points_are_those_of_their_entries() -> None:
    sketch = place(16)
    means = PointMeans.of(sketch)
    decoded = sketch.entries.decode(slice(None))
    for point in (0, 7, COUNT * 3 + 1):
        mean = decoded[sketch.points == point].mean(axis=0)
        np.testing.assert_allclose(means.at(np.array([point]))[0], mean / np.linalg.norm(mean), atol=1e-5)
    part = sketch.take(np.flatnonzero(sketch.points > 10))
    table = PointMeans.of(part).table(part.model_points)
    assert table.shape == (part.model_points, 128) and not table[:11].any()
    np.testing.assert_array_equal(table[11:], means.values[11:])
    assert not means.at(np.array([[-1]])).any()


@pytest.mark.parametrize("size", [None, 16])
def test_the_map_s_own_descriptor_is_near(size: int | None) -> None:
    private, _ = gated(size=size)
    assert len(private) > COUNT / 2
    assert np.median(away(private, Read(), size)) < 0.35
    assert np.mean(away(private, Read(), size) < 0.5) > 0.8


def test_numbers_dealt_to_other_features_say_nothing() -> None:
    private, _ = gated()
    dealt = replace(private, descriptors=private.descriptors.take(np.random.default_rng(3).permutation(len(private))))
    assert np.mean(away(dealt, Read()) < 0.5) < 0.1


def test_chance_draws_from_the_map() -> None:
    private, _ = gated()
    known = Knowledge(sketch=place())
    with pytest.raises(Exception, match="database"):
        attack(private, Chance(), known)
    distances = guess_distances(
        Chance().run(private, known, np.random.default_rng(0)).values, align(private, gated()[1]).points
    )
    assert np.mean(distances < 0.5) < 0.1


@pytest.mark.parametrize("subset_size", [2, 8])
def test_decoys_do_not_hide_which_points_go_together(subset_size: int) -> None:
    then = Subset(10.0, subset_size)
    private, _ = gated(then)
    alone, _ = gated(candidates=1)
    sent, known = numbers(private).points, place().known
    true = numbers(alone).points[:, 0]
    coin = float(subset_coin(10.0, len(known), subset_size).probability)
    sent, true = sent[by_place(private)], true[by_place(alone)]  # the same features pass
    inside = (sent == true[:, None]).any(axis=1).mean()
    assert abs(inside - coin) < 0.05
    right = (likeliest_points(sent, place()) == true).mean()
    assert right > 1.5 * coin / subset_size and right > coin - 0.35
    blind = sent[np.arange(len(sent)), np.random.default_rng(0).integers(subset_size, size=len(sent))]
    assert abs((blind == true).mean() - coin / subset_size) < 0.1


def test_decoys_of_a_map_that_all_images_see_are_as_likely_as_the_truth() -> None:
    sketch = place()
    flat = replace(sketch, images=np.arange(len(sketch)) % 3, model_images=3, calibration=None)
    rng = np.random.default_rng(0)
    true = rng.integers(3 * COUNT, 4 * COUNT, 400)
    others = rng.permutation(np.setdiff1d(sketch.known, np.arange(3 * COUNT, 4 * COUNT)))[:400]
    sets = np.sort(np.stack([true, others], axis=1), axis=1)
    assert (likeliest_points(sets, flat) == true).mean() < 0.75
    assert (likeliest_points(sets, sketch) == true).mean() > 0.95


def test_a_tile_that_lacks_points_answers_the_others() -> None:
    private, _ = gated(candidates=1)
    part = place().take(np.flatnonzero(place().points % 2 == 0))
    guess = attack(private, Read(), Knowledge(sketch=part))
    assert (guess.answered == (numbers(private).points[:, 0] % 2 == 0)).all()
    assert f"{int(guess.answered.sum())} of {len(private)}" in guess.note


def test_overlapping_neighbours_correct_a_map_that_is_far_off() -> None:
    """With the geometry in the release; dealt to other places, neighbours say nothing and the guesses get worse."""
    private, raw = gated(candidates=1, noise=0.045)
    known, truth = Knowledge(sketch=place(noise=0.045)), align(private, raw).points
    order = np.random.default_rng(3).permutation(len(private))
    dealt = replace(private, descriptors=private.descriptors.take(order)), truth.take(order)

    def mean(seen: PrivateFeatures, hidden: Points, method: Attack) -> float:
        return float(guess_distances(attack(seen, method, known).values, hidden).mean())

    assert mean(private, truth, Overlap()) < mean(private, truth, Read()) - 0.01
    assert mean(*dealt, Overlap()) > mean(*dealt, Read()) + 0.01


def test_without_orientations_neighbours_say_nothing() -> None:
    private, _ = gated(keep_geometry=False)
    known = Knowledge(sketch=place())
    guess = attack(private, Overlap(), known)
    assert not guess.answered.any() and "orientations" in guess.note
    np.testing.assert_array_equal(guess.values, attack(private, Read(), known).values)
