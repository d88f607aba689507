import numpy as np
import pytest

from face_sets import KIND, population
from featveil.attacks import Knowledge, Mean, Unmix, attack
from featveil.core import Features, InputError, Points, PrivateFeatures
from featveil.core.arrays import Float64
from featveil.databases import Database
from featveil.defenses import Lifting, privatize

FACES = population(400, 1, seed=1, label=0.0)
OTHERS = Database.from_array(population(2000, 1, seed=2, label=0.0).values, KIND, 1, rng=np.random.default_rng(0))


def lifted(strategy: str, m: int) -> PrivateFeatures:
    features = Features(Points(FACES.values), KIND)
    return privatize(features, Lifting(strategy, m, database=OTHERS), rng=np.random.default_rng(3))


def errors(private: PrivateFeatures, method: Mean | Unmix, known: Database = OTHERS) -> Float64:
    guess = attack(private, method, Knowledge(lifting_database=known), np.random.default_rng(0)).values
    return np.asarray(np.linalg.norm(guess / np.linalg.norm(guess, axis=1, keepdims=True) - FACES.values, axis=1))


@pytest.mark.parametrize(
    ("strategy", "m", "most"), [("adversarial", 2, 0.25), ("hybrid", 4, 0.4), ("adversarial", 8, 0.6)]
)
def test_what_resembles_no_confounder_is_the_hidden_descriptor(strategy: str, m: int, most: float) -> None:
    private = lifted(strategy, m)
    assert errors(private, Unmix()).mean() < most
    assert errors(private, Mean()).mean() > 0.7


def test_one_confounder_and_nothing_random_is_solved_by_hand() -> None:
    """A plane through x and two confounders: what is at right angles to both is x without its part along them."""
    private = lifted("adversarial", 2)
    found = attack(private, Unmix(), Knowledge(lifting_database=OTHERS)).values
    from featveil.distances import nearest

    entries = OTHERS.points()[nearest(private.descriptors, OTHERS.as_points, 2).indices].astype(np.float64)
    middle = OTHERS.points()[:4096].mean(axis=0, dtype=np.float64)
    for row in range(20):
        seen = entries[row] - middle
        expected = FACES.values[row] - middle
        expected -= seen.T @ np.linalg.solve(seen @ seen.T, seen @ expected)
        cosine = expected @ (found[row] - middle) / np.linalg.norm(expected) / np.linalg.norm(found[row] - middle)
        assert cosine > 0.999


def test_another_database_is_noticed_and_gives_nothing() -> None:
    private = lifted("hybrid", 4)
    other = Database.from_array(population(2000, 1, seed=9).values, KIND, 1, rng=np.random.default_rng(0))
    guess = attack(private, Unmix(), Knowledge(lifting_database=other))
    assert not guess.answered.any()
    assert "do not hold the entries" in guess.note
    assert errors(private, Unmix(), other).mean() > 0.8


def test_without_confounders_it_is_the_mean_attack() -> None:
    private = lifted("random", 4)
    known = Knowledge(lifting_database=OTHERS)
    np.testing.assert_array_equal(attack(private, Unmix(), known).values, attack(private, Mean(), known).values)


def test_a_database_smaller_than_the_confounders_is_refused() -> None:
    few = Database.from_array(OTHERS.points()[:3], KIND, 1, rng=np.random.default_rng(0))
    with pytest.raises(InputError, match="database that lifting drew from"):
        attack(lifted("adversarial", 4), Unmix(), Knowledge(lifting_database=few))
