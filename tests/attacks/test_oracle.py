"""The oracle attack: against plain loops, monotone, bounded by what the database holds."""

import numpy as np
import pytest
from numpy.typing import NDArray

from featveil.attacks import Knowledge, attack, oracle
from featveil.attacks.oracle import Oracle, OracleCurve, oracle_curve, usual_neighbours
from featveil.core import InputError, Points, PrivateFeatures, Subspaces
from featveil.databases import Database
from featveil.metrics import guess_distances
from victims import lifted, own_database, truth_of


def parts(private: PrivateFeatures) -> tuple[Subspaces, Points]:
    truth = truth_of(private).truth
    assert isinstance(private.descriptors, Subspaces) and truth is not None
    return private.descriptors, truth


def curve_of(private: PrivateFeatures, database: Database) -> OracleCurve:
    subspaces, truth = parts(private)
    return oracle_curve(subspaces, database, truth)


def plainly(subspaces: Subspaces, database: Database, truth: Points, count: int) -> NDArray[np.float64]:
    """Distances (n, 2), plain and projected, by sorting every list."""
    entries = database.points().astype(np.float64)
    found = []
    for offset, basis, true in zip(subspaces.offset, subspaces.basis, truth.values, strict=True):
        whole = basis.astype(np.float64)
        feet = offset + (entries - offset) @ whole.T @ whole
        nearest = np.argsort(np.linalg.norm(entries - feet, axis=1), kind="stable")[:count]
        best = nearest[np.linalg.norm(entries[nearest] - true, axis=1).argmin()]
        found.append([np.linalg.norm(place[best] - true) / np.linalg.norm(true) for place in (entries, feet)])
    return np.array(found)


@pytest.mark.parametrize(("strategy", "dimension"), [("sub-hybrid", 2), ("adversarial", 4), ("random", 8)])
def test_equals_plain_loops(strategy: str, dimension: int, monkeypatch: pytest.MonkeyPatch) -> None:
    private = lifted(strategy, dimension).take(np.arange(0, 400, 16))
    database = own_database(near_victim=False)
    monkeypatch.setattr(oracle, "_CELLS", 7 * len(database) + 1)  # several parts, the last one smaller
    subspaces, truth = parts(private)
    curve = oracle_curve(subspaces, database, truth)
    for place, count in enumerate(curve.neighbours):
        expected = plainly(subspaces, database, truth, int(count))
        np.testing.assert_allclose(curve.plain[:, place], expected[:, 0], atol=2e-6)
        np.testing.assert_allclose(curve.projected[:, place], expected[:, 1], atol=2e-6)
    random = [np.linalg.norm(database.points() - true, axis=1).mean() for true in truth.values]
    np.testing.assert_allclose(curve.chance, random, atol=1e-5)


def test_the_attack_lies_on_the_curve() -> None:
    private, database = lifted(), own_database(near_victim=False)
    truth = truth_of(private).truth
    assert truth is not None
    curve = curve_of(private, database)
    for count in (1, 100, len(database), 10 * len(database)):
        place = int(np.searchsorted(curve.neighbours, min(count, len(database))))
        for projected, expected in ((False, curve.plain), (True, curve.projected)):
            guess = attack(private, Oracle(count, projected), Knowledge(database=database, truth=truth))
            assert guess.answered.all()
            np.testing.assert_allclose(guess_distances(guess.values, truth), expected[:, place], atol=1e-6)


def test_falls_to_the_entry_nearest_to_the_truth() -> None:
    private, database = lifted(), own_database(near_victim=False)
    _, truth = parts(private)
    curve = curve_of(private, database)
    assert curve.neighbours[-1] == len(database)
    assert (np.diff(curve.plain, axis=1) <= 0).all()
    assert (curve.projected <= curve.plain + 1e-6).all()
    asymptote = [np.linalg.norm(database.points() - true, axis=1).min() for true in truth.values]
    np.testing.assert_allclose(curve.plain[:, -1], asymptote, atol=1e-6)


def test_confounders_keep_even_the_oracle_away_and_random_directions_do_not() -> None:
    database = own_database(near_victim=False)  # holds some of the confounders
    hidden, random = (curve_of(lifted(strategy, 4), database) for strategy in ("adversarial", "random"))
    assert random.plain[:, 0].mean() < random.plain[:, -1].mean() + 0.01
    assert hidden.plain[:, 0].mean() > 0.9 * hidden.chance.mean()
    shortlist = hidden.plain[:, hidden.neighbours == 20].mean()
    assert random.plain[:, 0].mean() + 0.1 < shortlist < 0.75 * hidden.chance.mean()


def test_a_truth_of_other_features_says_nothing() -> None:
    """With the subspaces dealt to others, one neighbour is no better than chance."""
    subspaces, truth = parts(lifted("random", 4))
    database = own_database(near_victim=False)
    order = np.random.default_rng(0).permutation(len(truth))
    lost = oracle_curve(subspaces.take(order), database, truth)
    known = oracle_curve(subspaces, database, truth)
    assert lost.plain[:, 0].mean() > 0.9 * lost.chance.mean()
    assert known.plain[:, 0].mean() < 0.8 * known.chance.mean()


def test_one_feature_and_a_database_that_holds_it_twice() -> None:
    private = lifted().take(np.array([3]))
    subspaces, truth = parts(private)
    database = Database(np.concatenate([truth.values, truth.values, own_database().points()[:3]]), "sift", 1)
    curve = oracle_curve(subspaces, database, truth)
    assert curve.neighbours.tolist() == [1, 2, 5]
    assert (curve.plain < 1e-6).all()


@pytest.mark.parametrize(
    ("size", "expected"),
    [(1, [1]), (2, [1, 2]), (7, [1, 2, 5, 7]), (50, [1, 2, 5, 10, 20, 50]), (101, [1, 2, 5, 10, 20, 50, 100, 101])],
)
def test_neighbours_end_at_the_size(size: int, expected: list[int]) -> None:
    assert usual_neighbours(size) == expected


def test_mistakes() -> None:
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(InputError, match="neighbours"):
            Oracle(wrong)  # type: ignore[arg-type]
    private = lifted()
    subspaces, truth = parts(private)
    fewer = truth.take(np.arange(5))
    with pytest.raises(InputError, match="5 hidden descriptors are not the truth of 400"):
        attack(private, Oracle(), Knowledge(database=own_database(), truth=fewer))
    with pytest.raises(InputError, match="5 hidden descriptors"):
        oracle_curve(subspaces, own_database(), fewer)
    with pytest.raises(InputError, match="needs truth"):
        attack(private, Oracle(), Knowledge(database=own_database()))
