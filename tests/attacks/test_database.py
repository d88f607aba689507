"""The database attack finds confounders exactly and what they hide nearly, with the database that was used only."""

from pathlib import Path

import numpy as np
import pytest

from featveil.attacks import Guess, Knowledge, attack
from featveil.attacks.database import DatabaseAttack
from featveil.core import Features, Guarantee, InputError, Points, PrivateFeatures, Spec, Subspaces
from featveil.core.arrays import Float64, Integers
from featveil.databases import Database, builtin
from featveil.defenses import Lifting, privatize
from featveil.extractors import extract
from featveil.metrics import align, guess_distances
from reference import random_descriptors, reference_matrix
from victims import lifted, own_database, truth_of

SOME = np.arange(0, 400, 4)


def broken(private: PrivateFeatures, method: DatabaseAttack | None = None, database: Database | None = None) -> Guess:
    known = Knowledge(lifting_database=database or builtin("sift"))
    return attack(private, method or DatabaseAttack(), known, np.random.default_rng(0))


def errors(private: PrivateFeatures, guess: Guess, chosen: Integers) -> Float64:
    truth = truth_of(private).truth
    assert truth is not None
    return guess_distances(guess.values, truth.take(chosen))


def small_release(
    strategy: str, dimension: int, count: int = 12, random_share: float | None = None
) -> tuple[PrivateFeatures, Database]:
    """A few descriptors of size 32, lifted with a database of 80 that has been quantized by nothing."""
    rng = np.random.default_rng(5)
    values = random_descriptors(80 + count, 0, rng)
    assert isinstance(values, Points)
    database = Database.from_array(np.abs(values.values[:80]), "toy", 2, rng=rng)
    features = Features(Points(np.abs(values.values[80:])), "toy")
    lifting = Lifting(strategy, dimension, random_share=random_share, database=database)
    return privatize(features, lifting, rng=rng), database


def slowly(subspaces: Subspaces, database: Database, confounders: int, neighbours: int, kept: int) -> Float64:
    """Section 4.1 step by step, for one subspace after the other."""
    entries = database.points().astype(np.float64)
    answers = []
    for i, row in enumerate(reference_matrix(subspaces, Points(database.points()))):
        order = sorted(range(len(row)), key=lambda index: row[index])
        known, near = order[:confounders], order[confounders : confounders + neighbours]
        if confounders:
            far = {v: min(np.linalg.norm(entries[a] - entries[v]) for a in known) for v in near}
            near = sorted(near, key=lambda v: -far[v])
        total, weight = np.zeros(subspaces.size), 0.0
        for u in near[:kept]:
            total, weight = total + entries[u] / row[u], weight + 1 / row[u]
        offset, basis = subspaces.offset[i].astype(np.float64), subspaces.basis[i].astype(np.float64)
        answers.append(offset + basis.T @ (basis @ (total / weight - offset)))
    return np.array(answers)


@pytest.mark.parametrize(
    ("strategy", "dimension", "share", "confounders"),
    [("sub-hybrid", 4, None, 2), ("hybrid", 4, 0.25, 3), ("adversarial", 2, None, 2), ("hybrid", 4, 0.75, 1)],
)
def test_is_the_attack_of_the_paper(strategy: str, dimension: int, share: float | None, confounders: int) -> None:
    private, database = small_release(strategy, dimension, random_share=share)
    assert isinstance(private.descriptors, Subspaces)
    expected = slowly(private.descriptors, database, confounders, 15, 4)
    guess = broken(private, DatabaseAttack(15, 4), database)
    assert guess.answered.all() and guess.note == ""
    np.testing.assert_allclose(guess.values, expected, atol=2e-4)


def test_without_confounders_the_nearest_entries_are_averaged() -> None:
    private, database = small_release("random", 4)
    assert isinstance(private.descriptors, Subspaces)
    guess = broken(private, DatabaseAttack(15, 4), database)
    assert guess.answered.all()
    np.testing.assert_allclose(guess.values, slowly(private.descriptors, database, 0, 15, 4), atol=2e-4)


@pytest.mark.parametrize(
    ("strategy", "dimension", "median"),
    [
        ("sub-hybrid", 2, 0.3),
        ("sub-hybrid", 8, 0.45),
        ("hybrid", 4, 0.4),
        ("adversarial", 4, 0.45),
        ("random", 4, 0.15),
    ],
)
def test_comes_near_the_hidden_descriptor(strategy: str, dimension: int, median: float) -> None:
    private = lifted(strategy, dimension)
    guess = broken(private.take(SOME))
    assert guess.answered.all()
    assert np.median(errors(private, guess, SOME)) < median
    others = np.roll(SOME, 7)  # the same guesses tell nothing of somebody else's descriptor
    assert np.median(errors(private, guess, others)) > 0.8


def test_works_on_another_kind() -> None:
    private = lifted("sub-hybrid", 4, kind="rootsift")
    guess = broken(private.take(SOME), database=builtin("rootsift"))
    assert guess.answered.all()
    assert np.median(errors(private, guess, SOME)) < 0.4


def test_descriptors_unlike_the_database_stay_hidden() -> None:
    rng = np.random.default_rng(0)
    signs = rng.standard_normal((60, 128)).astype(np.float32)
    strange = Features(Points(signs / np.linalg.norm(signs, axis=1, keepdims=True)), "sift")
    private = privatize(strange, Lifting("sub-hybrid", 8), rng=rng)
    guess = broken(private)
    assert guess.answered.all()
    assert np.median(guess_distances(guess.values, strange.descriptors)) > 0.6


def test_another_database_is_noticed() -> None:
    private = lifted("sub-hybrid", 4)
    guess = broken(private.take(SOME), database=own_database())
    assert not guess.answered.any()
    assert guess.note == "no subspace holds entries of this database: it is not the one that was used"


def test_a_part_of_the_database_answers_a_part() -> None:
    private = lifted("sub-hybrid", 2).take(SOME)
    half = Database(builtin("sift").values[::2], "sift")
    guess = broken(private, database=half)
    assert 0.2 < guess.answered.mean() < 0.8
    missing = int((~guess.answered).sum())
    assert guess.note == f"{missing} of 100 subspaces do not hold the entries of this database that they should"


def test_an_entry_in_a_random_subspace_outweighs_all_others() -> None:
    entries = builtin("sift").unit(np.arange(20))
    private = privatize(Features(Points(entries), "sift"), Lifting("random", 4), rng=np.random.default_rng(0))
    guess = broken(private)
    assert np.abs(guess.values - entries).max() < 1e-3


def test_a_small_database_gives_what_it_has() -> None:
    private, database = small_release("hybrid", 4)
    few = broken(private, DatabaseAttack(1000, 3), database)
    np.testing.assert_array_equal(few.values, broken(private, DatabaseAttack(78, 3), database).values)
    with pytest.raises(InputError, match="holds 2 entries of the lifting database, the one that was given has 2"):
        broken(private, database=Database(database.values[:2], "toy", 1))


def test_more_features_than_are_held_at_a_time() -> None:
    private, database = small_release("hybrid", 4, count=1500)
    whole = broken(private, DatabaseAttack(15, 4), database).values
    last = broken(private.take(np.arange(1100, 1500)), DatabaseAttack(15, 4), database).values
    np.testing.assert_allclose(whole[1100:], last, atol=1e-5)


def test_one_feature_and_repeated_features() -> None:
    private = lifted("sub-hybrid", 4)
    one = broken(private.take(np.array([3])))
    again = broken(private.take(np.array([3, 3, 3])))
    assert one.answered.all() and again.answered.all()
    np.testing.assert_allclose(again.values, np.repeat(one.values, 3, axis=0), atol=1e-5)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"neighbours": 0}, "neighbours must be a whole number of at least 1, got 0"),
        ({"kept": 2.5}, "kept must be a whole number of at least 1, got 2.5"),
        ({"neighbours": True}, "neighbours must be a whole number"),
        ({"neighbours": 4, "kept": 5}, "kept must be at most neighbours, got 5 of 4"),
    ],
)
def test_bad_parameters_are_refused(parameters: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        DatabaseAttack(**parameters)


@pytest.mark.parametrize("spec", [{"name": "other"}, {"random_directions": 9}, {"random_directions": "2"}])
def test_a_release_that_does_not_say_how_it_was_lifted(spec: Spec) -> None:
    private = lifted("sub-hybrid", 4)
    odd = PrivateFeatures(private.descriptors, "sift", spec, Guarantee("empirical"))
    with pytest.raises(InputError, match="does not say how many directions are random"):
        broken(odd)


def test_a_photograph(real_data: Path) -> None:
    raw = extract(sorted((real_data / "photos" / "urban100").glob("*.jpg"))[0], "sift", 150)
    private = privatize(raw, Lifting("sub-hybrid", 4), rng=np.random.default_rng(0))
    distances = guess_distances(broken(private).values, align(private, raw).points)
    assert np.median(distances) < 0.3 and (distances < 0.5).mean() > 0.85
