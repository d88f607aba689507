import numpy as np
import pytest

from face_sets import population
from featveil.attacks.on_faces.logins import Population, meeting_point, varying_part
from featveil.core import InputError, Points, Randomness, Subspaces
from featveil.core.arrays import Float64
from featveil.core.keyed import KeyedRandomness
from featveil.databases import Database
from featveil.defenses import Lifting
from featveil.defenses.parallel import parallel

PEOPLE, TIMES = 40, 6
FACES = population(PEOPLE, TIMES, seed=1, label=0.0)
OTHERS = population(800, 3, seed=2, label=0.0)
KNOWN = Population.of(OTHERS.values, OTHERS.people)
LIFTING = Lifting("hybrid", 4, database=Database.from_array(OTHERS.values, "face", 1, rng=np.random.default_rng(0)))


def photographs(time: int) -> Points:
    return Points(FACES.values[time::TIMES])


def logins(mode: str) -> list[Subspaces]:
    seeded = np.random.default_rng(0)

    def draws() -> Randomness:
        return KeyedRandomness(b"k" * 32, "enrolment") if mode == "keyed" else seeded

    first = LIFTING.privatize(photographs(0), draws())
    if mode == "parallel":
        return [parallel(photographs(time), first, seeded) for time in range(TIMES)]
    return [first, *(LIFTING.privatize(photographs(time), draws()) for time in range(1, TIMES))]


def error(guess: Float64) -> float:
    truth = FACES.values.reshape(PEOPLE, TIMES, -1).mean(axis=1)
    truth /= np.linalg.norm(truth, axis=1, keepdims=True)
    return float(np.linalg.norm(guess / np.linalg.norm(guess, axis=1, keepdims=True) - truth, axis=1).mean())


def test_the_more_fresh_logins_the_nearer_they_meet() -> None:
    history = logins("fresh")
    errors = [error(meeting_point(history[:count], KNOWN)) for count in (1, 2, TIMES)]
    assert errors[0] > errors[1] + 0.1 > errors[2] + 0.15


def test_the_meeting_point_is_that_of_the_normal_equations() -> None:
    history = logins("fresh")[:3]
    found = meeting_point(history, KNOWN)
    d = history[0].size
    for person in range(3):
        matrix, right = np.eye(d) / KNOWN.between, KNOWN.mean / KNOWN.between
        for login in history:
            basis = login.basis[person].astype(np.float64)
            away = np.eye(d) - basis.T @ basis
            matrix, right = matrix + away / KNOWN.within, right + away @ login.offset[person] / KNOWN.within
        np.testing.assert_allclose(found[person], np.linalg.solve(matrix, right), atol=1e-5)


def test_confounders_that_stay_are_told_from_the_person_who_changes() -> None:
    history = logins("keyed")
    values, found = varying_part(history[:2], KNOWN)
    assert found.all()
    assert error(values) < 0.45
    assert error(meeting_point(history[:2], KNOWN)) > 1.0


@pytest.mark.parametrize("mode", ["fresh", "parallel"])
def test_nothing_else_is_taken_for_shared_confounders(mode: str) -> None:
    values, found = varying_part(logins(mode), KNOWN)
    assert not found.any()
    np.testing.assert_array_equal(values, np.tile(KNOWN.mean, (PEOPLE, 1)))
    assert not varying_part(logins(mode)[:1], KNOWN)[1].any()


def test_parallel_logins_keep_their_hidden_coordinates() -> None:
    """Along the shared directions nothing is learned: the guess stays where the population's mean is."""
    history = logins("parallel")
    guess = meeting_point(history, KNOWN)
    along = np.einsum("nmd,nd->nm", history[0].basis, guess - KNOWN.mean)
    assert np.abs(along).max() < 1e-3
    assert error(guess) > error(meeting_point(logins("fresh"), KNOWN)) + 0.1


def test_the_population_is_that_of_its_photographs() -> None:
    assert KNOWN.between == pytest.approx(1 / 64, rel=0.02)
    assert KNOWN.within == pytest.approx(0.5**2 / 64 / 1.25, rel=0.1)  # photographs were brought to norm 1
    alone = population(5, 1)
    with pytest.raises(InputError, match="several of them"):
        Population.of(alone.values, alone.people)
