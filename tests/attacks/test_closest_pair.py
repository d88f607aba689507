"""Closest pair: the point is the one of the paper's equations, and matched features are revealed, others are not."""

from functools import cache

import numpy as np
import pytest

from featveil.attacks import Knowledge, attack
from featveil.attacks.closest_pair import ClosestPair, own_side, verify
from featveil.attacks.subspaces import central
from featveil.core import Features, InputError, Keypoints, Points, PrivateFeatures, Subspaces
from featveil.core.arrays import Float64, Integers
from featveil.databases import Database, builtin
from featveil.defenses import Lifting, Subset, privatize
from featveil.metrics import align, guess_distances
from victims import lifted, picture, strangers, truth_of


@cache
def reference(strategy: str = "sub-hybrid", dimension: int = 4) -> PrivateFeatures:
    """The board from the other place, lifted by itself."""
    return privatize(picture(1), Lifting(strategy, dimension), rng=np.random.default_rng([7, dimension]))


def errors(private: PrivateFeatures, values: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> Float64:
    truth = truth_of(private).truth
    assert truth is not None
    return guess_distances(values, truth)


def random_subspaces(n: int, m: int, rng: np.random.Generator, d: int = 24) -> Subspaces:
    basis = np.linalg.qr(rng.standard_normal((n, d, m)))[0].transpose(0, 2, 1)
    return Subspaces(rng.standard_normal((n, d)).astype(np.float32), basis.astype(np.float32))


def by_equation_8(own: Subspaces, other: Subspaces, i: int, j: int) -> Float64:
    """x* with alpha = N^-1 (D + M E)(e0 - d0), as the paper writes it."""
    D, E = own.basis[i].astype(np.float64), other.basis[j].astype(np.float64)
    across = other.offset[j].astype(np.float64) - own.offset[i]
    M = -D @ E.T
    alpha = np.linalg.inv(np.eye(len(D)) - M @ M.T) @ (D @ across + M @ (E @ across))
    return np.asarray(own.offset[i] + alpha @ D)


def stranger(count: int = 400) -> Features:
    """Real descriptors, of no place, at random positions."""
    rng = np.random.default_rng(5)
    places = Keypoints(rng.uniform(0, 600, (count, 2)).astype(np.float32))
    return Features(Points(builtin().unit(rng.permutation(16384)[:count])), "sift", places, (800, 600))


@pytest.mark.parametrize(("m1", "m2"), [(1, 1), (2, 2), (5, 3), (3, 5)])
def test_the_point_is_that_of_equation_8(m1: int, m2: int) -> None:
    rng = np.random.default_rng(m1)
    own, other = random_subspaces(700, m1, rng), random_subspaces(9, m2, rng)  # more pairs than are held at a time
    pairs: Integers = np.stack([rng.permutation(700), rng.integers(0, 9, 700)], axis=1)
    found = own_side(own, other, pairs, central(own, "other")[pairs[:, 0]])
    slow = np.stack([by_equation_8(own, other, i, j) for i, j in pairs])
    np.testing.assert_allclose(found, slow, atol=1e-4)


@pytest.mark.parametrize("tilt", [0.0, 1e-7, 1e-3])
def test_along_shared_directions_the_start_decides(tilt: float) -> None:
    """Lines that are almost parallel meet far away, or wherever rounding wants."""
    rng = np.random.default_rng(0)
    own = random_subspaces(50, 3, rng)
    shared = own.basis[:, :1] + tilt * rng.standard_normal((50, 1, 24))
    frames = np.concatenate([shared, rng.standard_normal((50, 2, 24))], axis=1).transpose(0, 2, 1)
    basis = np.linalg.qr(frames)[0].transpose(0, 2, 1).astype(np.float32)
    other = Subspaces(rng.standard_normal((50, 24)).astype(np.float32), basis)
    start, each = central(own, "other"), np.repeat(np.arange(50)[:, None], 2, axis=1)
    step = own_side(own, other, each, start) - start
    along = np.einsum("nd,nd->n", step, own.basis[:, 0])
    assert np.abs(along).max() < 0.05
    assert np.median(np.linalg.norm(step, axis=1)) > 0.5  # in the other directions it does move
    np.testing.assert_allclose(own_side(own, own, each, start), start, atol=1e-3)


@pytest.mark.parametrize("dimension", [2, 4, 16])
def test_matched_features_of_two_lifted_views_are_revealed(dimension: int) -> None:
    private = lifted(dimension=dimension)
    guess = attack(private, ClosestPair(verified=True), Knowledge(reference=reference(dimension=dimension)))
    away, chance = errors(private, guess.values), errors(private, central(private.descriptors, "sift"))  # type: ignore[arg-type]
    assert guess.answered.mean() > 0.1
    assert (away[guess.answered] < 0.3).mean() > 0.75
    assert (chance[guess.answered] < 0.3).mean() < 0.1
    np.testing.assert_allclose(away[~guess.answered], chance[~guess.answered], atol=1e-6)


def test_a_raw_reference_reveals_more_than_a_lifted_one() -> None:
    private = lifted(dimension=16)
    raw = attack(private, ClosestPair(), Knowledge(reference=picture(1)))
    hidden = attack(private, ClosestPair(), Knowledge(reference=reference(dimension=16)))
    raw_close, hidden_close = ((errors(private, guess.values)[guess.answered] < 0.3).mean() for guess in (raw, hidden))
    assert raw_close > 0.85
    assert 0.1 < hidden_close < 0.6
    assert raw.note == f"{raw.answered.sum()} matches"


def test_a_stranger_reveals_nothing() -> None:
    private = lifted()
    for other in (stranger(), privatize(stranger(), Lifting(), rng=np.random.default_rng(3))):
        careless = attack(private, ClosestPair(), Knowledge(reference=other))
        assert careless.answered.any()
        assert (errors(private, careless.values)[careless.answered] < 0.3).mean() < 0.1
        careful = attack(private, ClosestPair(verified=True), Knowledge(reference=other))
        assert not careful.answered.any()
        assert careful.note.startswith("none of ")


def test_descriptors_at_other_places_do_not_agree() -> None:
    moved = strangers(lifted(), np.random.default_rng(0))
    guess = attack(moved, ClosestPair(verified=True), Knowledge(reference=picture(1)))
    assert not guess.answered.any()


def test_one_database_for_both_hides_the_match() -> None:
    few = Database.from_array(builtin().points()[:300], "sift", 1, rng=np.random.default_rng(0))
    private, other = (
        privatize(picture(view), Lifting("adversarial", 4, database=few), rng=np.random.default_rng(view))
        for view in (0, 1)
    )
    knowledge = Knowledge(reference=other)
    careless = attack(private, ClosestPair(), knowledge)
    away = guess_distances(careless.values, align(private, picture(0)).points)
    assert np.median(away[careless.answered]) > 0.5  # subspaces meet in the entries that they share
    assert attack(private, ClosestPair(verified=True), knowledge).answered.sum() < 0.1 * careless.answered.sum()


def test_works_without_keypoints_unless_verified() -> None:
    bare = Features(picture(1).descriptors, "sift")
    guess = attack(lifted(), ClosestPair(), Knowledge(reference=bare))
    assert (errors(lifted(), guess.values)[guess.answered] < 0.3).mean() > 0.8
    with pytest.raises(InputError, match="needs keypoints in the private features and in the reference"):
        attack(lifted(), ClosestPair(verified=True), Knowledge(reference=bare))


@pytest.mark.parametrize("verified", [False, True])
def test_few_features_and_empty_references(verified: bool) -> None:
    method, one = ClosestPair(verified), np.array([3])
    single = attack(lifted().take(one), method, Knowledge(reference=picture(1)))
    assert single.answered.tolist() == [not verified]
    nothing = picture(1).take(np.empty(0, np.int64))
    assert not attack(lifted(), method, Knowledge(reference=nothing)).answered.any()
    repeated = lifted().take(np.repeat(one, 20))
    assert attack(repeated, method, Knowledge(reference=repeated)).answered.sum() <= 1


def test_shared_places_count_once_and_answer_all() -> None:
    rng = np.random.default_rng(0)
    xy = np.repeat(rng.uniform(0, 500, (30, 2)), 2, axis=0).astype(np.float32)
    seen = PrivateFeatures(
        lifted(count=60).descriptors, "sift", {"name": "lifting"}, lifted().guarantee, Keypoints(xy), (500, 500)
    )
    pairs = np.stack([np.arange(60), np.arange(60)], axis=1)
    assert verify(seen, seen, pairs, several=True).all()


def test_refuses_what_it_cannot_compare() -> None:
    words = privatize(picture(1), Subset(10.0), rng=np.random.default_rng(0))
    with pytest.raises(InputError, match="reference of word sets can be compared with word sets only"):
        attack(lifted(), ClosestPair(), Knowledge(reference=words))
    with pytest.raises(InputError, match="attack closest-pair is on subspaces"):
        attack(words, ClosestPair(), Knowledge(reference=picture(1)))
    with pytest.raises(InputError, match="attack closest-pair needs reference"):
        attack(lifted(), ClosestPair(), Knowledge())
    with pytest.raises(InputError, match="verified is true or false"):
        ClosestPair(verified="yes")  # type: ignore[arg-type]
