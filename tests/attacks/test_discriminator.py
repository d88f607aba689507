"""Discriminator: lifting with confounders that are not real is undone; real ones, each used once, hold."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from featveil.attacks import Knowledge, attack
from featveil.attacks.discriminator import Discriminator
from featveil.core import Features, Guarantee, InputError, Points, PrivateFeatures, Spec, Subspaces
from featveil.core.arrays import Float32, Float64
from featveil.databases import Database, builtin
from featveil.databases.entries import unit_rows
from featveil.defenses import Lifting, privatize
from featveil.extractors import extract, image_files
from featveil.metrics import align, guess_distances
from victims import lifted, own_database, picture

QUICK = Discriminator(examples=150, starts=25)
ALONE = Discriminator(examples=150, starts=25, context=False)
TINY = Discriminator(examples=30, starts=8)
COUNT, CONFOUNDERS = 120, 4


def found(
    private: PrivateFeatures, raw: Features, method: Discriminator = QUICK, lifting_database: Database | None = None
) -> Float64:
    """Errors of the guesses for a release of `raw`."""
    knowledge = Knowledge(database=own_database(private.kind), lifting_database=lifting_database)
    guess = attack(private, method, knowledge, np.random.default_rng(0))
    return guess_distances(guess.values, align(private, raw).points)


def real_confounders(shared: int = 0, crowded: bool = False) -> tuple[PrivateFeatures, Features, Float32]:
    """Some features of picture 0, lifted (m = 8) through four others of it each; those are returned (n, 4, d).

    Every confounder is used once; with `shared`, all features draw theirs from that many. `crowded` features are those
    around one place.
    """
    rng = np.random.default_rng(4)
    features = picture(0, count=2000)
    order = rng.permutation(len(features))
    if crowded and features.keypoints is not None:
        xy = features.keypoints.xy
        order = np.argsort(np.linalg.norm(xy - np.median(xy, axis=0), axis=1))
        order[COUNT:] = rng.permutation(order[COUNT:])
    raw, pool = features.take(order[:COUNT]), features.descriptors.values[order[COUNT:]]
    drawn = np.arange(CONFOUNDERS * COUNT).reshape(COUNT, CONFOUNDERS)
    if shared:
        drawn = np.stack([rng.permutation(shared)[:CONFOUNDERS] for _ in range(COUNT)])
    lifts = [
        Lifting("hybrid", 8, database=Database(pool[drawn[row]], "sift", 1)).privatize(
            raw.descriptors.take(np.array([row])), rng
        )
        for row in range(COUNT)
    ]
    sent = Subspaces(np.concatenate([lift.offset for lift in lifts]), np.concatenate([lift.basis for lift in lifts]))
    defense: Spec = {"name": "lifting", "strategy": "hybrid", "dimension": 8, "random_directions": 4}
    private = PrivateFeatures(sent, "sift", defense, Guarantee("empirical"), raw.keypoints, raw.image_size)
    return private, raw, pool[drawn]


@cache
def release(strategy: str, dimension: int, kind: str = "sift") -> PrivateFeatures:
    rng = np.random.default_rng(dimension)
    return privatize(picture(0, kind, COUNT), Lifting(strategy, dimension), rng=rng)


@pytest.mark.parametrize(
    ("strategy", "dimension"), [("sub-hybrid", 2), ("sub-hybrid", 8), ("adversarial", 4), ("random", 8)]
)
def test_confounders_that_are_no_descriptors_hide_nothing(strategy: str, dimension: int) -> None:
    errors = found(release(strategy, dimension), picture(0, count=COUNT), ALONE)
    assert (errors < 0.3).mean() > 0.85


def test_rootsift_is_no_better() -> None:
    errors = found(release("sub-hybrid", 4, "rootsift"), picture(0, "rootsift", COUNT), ALONE)
    assert (errors < 0.3).mean() > 0.85


@pytest.mark.parametrize("method", [ALONE, QUICK])
def test_real_confounders_used_once_hold(method: Discriminator) -> None:
    private, raw, confounders = real_confounders()
    unplaced = PrivateFeatures(private.descriptors, "sift", private.defense, private.guarantee)
    knowledge = Knowledge(database=own_database())
    guess = attack(unplaced, method, knowledge, np.random.default_rng(0)).values
    members = np.concatenate([raw.descriptors.values[:, None], confounders], axis=1)
    away = np.linalg.norm(guess[:, None] - members, axis=2)
    assert (away.min(axis=1) < 0.3).mean() > 0.9  # it finds them
    # and cannot choose: of 120 lists of five, three standard deviations are 0.11.
    assert abs((away.argmin(axis=1) == 0).mean() - 0.2) < 0.11


def test_confounders_of_a_known_database_are_left_out() -> None:
    private, raw, confounders = real_confounders()
    pool = Database(confounders.reshape(-1, 128), "sift", 1)
    assert (found(private, raw, ALONE, pool) < 0.3).mean() > 0.85


def test_confounders_that_come_back_are_left_out() -> None:
    private, raw, _ = real_confounders(shared=40)
    assert (found(private, raw, ALONE) < 0.3).mean() > 0.7


def test_overlapping_features_give_their_real_confounders_away() -> None:
    private, raw, _ = real_confounders(crowded=True)
    assert (found(private, raw) < 0.3).mean() > 0.75
    assert private.keypoints is not None
    order = np.random.default_rng(0).permutation(COUNT)
    elsewhere = replace(private, keypoints=private.keypoints.take(order))
    guess = attack(elsewhere, QUICK, Knowledge(database=own_database()), np.random.default_rng(0))
    assert (guess_distances(guess.values, raw.descriptors) < 0.3).mean() < 0.5


def test_descriptors_without_zeros_hold() -> None:
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(128, 128)))[0].astype(np.float32)
    raw = Features(Points(picture(0, count=COUNT).descriptors.values @ turn), "turned")
    rng = np.random.default_rng(0)
    own = Database.from_array(own_database().points() @ turn, "turned", 1, rng=rng)
    centres = Database.from_array(builtin().points() @ turn, "turned", rng=rng)
    private = privatize(raw, Lifting("sub-hybrid", 8, database=centres), rng=rng)
    guess = attack(private, QUICK, Knowledge(database=own), rng)
    assert (guess_distances(guess.values, raw.descriptors) < 0.3).mean() < 0.1


def test_another_lifting_database_says_nothing() -> None:
    private, raw = release("sub-hybrid", 8), picture(0, count=COUNT)
    other = Database(unit_rows(np.abs(np.random.default_rng(0).normal(size=(3, 128)))), "sift", 1)
    assert (found(private, raw, ALONE, other) < 0.3).mean() > 0.85


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_features(count: int) -> None:
    private = lifted(keep_geometry=True).take(np.arange(count))
    guess = attack(private, TINY, Knowledge(database=own_database()), np.random.default_rng(0))
    assert guess.values.shape == (count, 128)
    assert guess.answered.all()


def test_repeated_features() -> None:
    private = lifted(keep_geometry=True).take(np.zeros(4, np.int64))
    guess = attack(private, TINY, Knowledge(database=own_database()), np.random.default_rng(0))
    assert guess.values.shape == (4, 128)


@pytest.mark.parametrize("size", [1, 2, 30])
def test_a_small_database_ranks_by_sparsity(size: int) -> None:
    private, raw = release("sub-hybrid", 2), picture(0, count=COUNT)
    own = Database(own_database().values[:size], "sift", 1)
    guess = attack(private, QUICK, Knowledge(database=own), np.random.default_rng(0))
    assert "too small to learn from" in guess.note
    assert (guess_distances(guess.values, align(private, raw).points) < 0.3).mean() > 0.9


def test_the_same_generator_gives_the_same_guess() -> None:
    private, knowledge = release("sub-hybrid", 2), Knowledge(database=own_database())
    one, other = (attack(private, TINY, knowledge, np.random.default_rng(5)).values for _ in range(2))
    assert (one == other).all()


def test_signed_descriptors_of_another_size() -> None:
    rng = np.random.default_rng(0)
    values: Float32 = unit_rows(rng.normal(size=(400, 24)))
    private = privatize(
        Features(Points(values[:10]), "face"), Lifting("hybrid", 4, database=Database(values[200:], "face")), rng=rng
    )
    guess = attack(private, TINY, Knowledge(database=Database(values[10:200], "face")), rng)
    assert guess.values.shape == (10, 24) and np.isfinite(guess.values).all()


def test_a_line_can_be_attacked() -> None:
    rng = np.random.default_rng(0)
    private = privatize(picture(0, count=COUNT), Lifting("adversarial", 1, allow_line=True), rng=rng)
    assert (found(private, picture(0, count=COUNT), ALONE) < 0.3).mean() > 0.85


def test_a_database_of_one_descriptor_many_times() -> None:
    own = Database(unit_rows(np.repeat(own_database().values[:1], 200, axis=0)), "sift", 1)
    guess = attack(release("sub-hybrid", 2), TINY, Knowledge(database=own), np.random.default_rng(0))
    assert "too small to learn from" in guess.note


def test_bad_parameters() -> None:
    for bad in (0, -1, 2.5, True):
        with pytest.raises(InputError, match="examples must be"):
            Discriminator(examples=bad)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="starts must be"):
            Discriminator(starts=bad)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="context is true or false"):
        Discriminator(context=1)  # type: ignore[arg-type]


def test_a_release_that_does_not_say_how_it_was_made_is_refused() -> None:
    private = release("sub-hybrid", 2)
    silent = PrivateFeatures(private.descriptors, "sift", {"name": "other"}, private.guarantee)
    with pytest.raises(InputError, match="does not say how many directions are random"):
        attack(silent, TINY, Knowledge(database=own_database()))


def test_photographs(real_data: Path) -> None:
    files = image_files(real_data / "photos" / "bsds500_val")[:12]
    own = np.concatenate([extract(path, "sift", 200).descriptors.values for path in files])
    raw = extract(image_files(real_data / "photos" / "urban100")[0], "sift", COUNT)
    rng = np.random.default_rng(0)
    private = privatize(raw, Lifting("sub-hybrid", 8), rng=rng)
    guess = attack(private, QUICK, Knowledge(database=Database.from_array(own, "sift", 1, rng=rng)), rng)
    assert (guess_distances(guess.values, align(private, raw).points) < 0.3).mean() > 0.85
