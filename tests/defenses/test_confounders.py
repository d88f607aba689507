from collections import Counter

import numpy as np
import pytest

from featveil.core import InputError, Points, SecureRandomness
from featveil.core.arrays import Float32
from featveil.databases import Database
from featveil.defenses import Lifting
from featveil.defenses.confounders import balanced, confounders_for
from featveil.distances import matrix


def rows(n: int, seed: int, d: int = 32) -> Float32:
    values = np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)
    return np.asarray(values / np.linalg.norm(values, axis=1, keepdims=True), np.float32)


def labelled(labels: object) -> Database:
    return Database(rows(len(np.asarray(labels)), 1), "face", 1, labels)  # type: ignore[arg-type]


@pytest.mark.parametrize(("kinds", "count"), [(2, 1), (2, 3), (5, 4), (5, 9), (3, 2)])
def test_where_labels_fit_there_are_as_many_of_each(kinds: int, count: int) -> None:
    own = np.arange(200) % kinds
    drawn = balanced(own, kinds, count, SecureRandomness())
    assert drawn.shape == (200, count)
    for label, confounders in zip(own, drawn, strict=True):
        counts = np.bincount([label, *confounders], minlength=kinds)
        assert counts.tolist() == [(count + 1) // kinds] * kinds


@pytest.mark.parametrize(("kinds", "count"), [(2, 2), (2, 4), (3, 4), (5, 6)])
def test_what_is_over_says_nothing_of_the_own_label(kinds: int, count: int) -> None:
    """All labels in a subspace, the own one among them, are distributed alike whatever the own one is."""
    seen = {}
    for label in range(kinds):
        drawn = balanced(np.full(20_000, label), kinds, count, np.random.default_rng(label))
        sets = Counter(tuple(np.bincount([label, *row], minlength=kinds)) for row in drawn.tolist())
        seen[label] = {one: times / 20_000 for one, times in sets.items()}
    for label in range(1, kinds):
        assert seen[label].keys() == seen[0].keys()
        assert all(abs(seen[label][one] - share) < 0.02 for one, share in seen[0].items())


def test_with_fewer_places_than_labels_all_are_different() -> None:
    own = np.arange(5000) % 5
    drawn = balanced(own, 5, 2, np.random.default_rng(0))
    together = np.sort(np.column_stack([own, drawn]), axis=1)
    assert (np.diff(together, axis=1) > 0).all()
    assert len(Counter(map(tuple, together.tolist()))) == 10  # all sets of three of five


def test_balanced_lifting_holds_entries_of_both_labels() -> None:
    labels = np.arange(60) % 2
    database = labelled(labels)
    own = np.arange(40) % 2
    lifting = Lifting("balanced", 6, database=database)
    made = lifting.privatize(Points(rows(40, 2)), np.random.default_rng(0), own)
    row, entries = np.nonzero(matrix(made, Points(database.points())) < 2e-6)
    assert np.bincount(row).tolist() == [3] * 40
    for feature in range(40):
        together = [own[feature], *labels[entries[row == feature]]]
        assert sum(together) == 2


def test_entries_are_different_though_labels_have_few() -> None:
    database = labelled([0, 0, 1, 1])
    chosen = confounders_for(database, "balanced", 500, 3, np.zeros(500, np.int64), np.random.default_rng(0))
    drawn = chosen.draw(np.arange(500), np.random.default_rng(1))
    assert all(len(set(row)) == 3 for row in drawn.tolist())


@pytest.mark.parametrize("strategy", ["hybrid+", "balanced"])
def test_labels_are_needed_and_must_fit(strategy: str) -> None:
    points, rng = Points(rows(4, 2)), np.random.default_rng(0)
    with pytest.raises(InputError, match=f"{strategy.replace('+', '.')} needs attribute labels"):
        Lifting(strategy, 4, database=labelled([0, 1] * 20)).privatize(points, rng)
    with pytest.raises(InputError, match="2 labels do not fit 4"):
        Lifting(strategy, 4, database=labelled([0, 1] * 20)).privatize(points, rng, np.array([0, 1]))


def test_a_label_with_too_few_entries_is_refused() -> None:
    with pytest.raises(InputError, match="larger database"):
        Lifting("balanced", 6, database=labelled([0] * 30 + [1])).privatize(
            Points(rows(4, 2)), np.random.default_rng(0), np.zeros(4, np.int64)
        )
