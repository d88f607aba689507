"""Many neighbours at once, which are gathered and sorted in the end, are those that a full sort finds."""

import numpy as np
import pytest

from featveil.core import Flats, Points, Subspaces
from featveil.core.arrays import Float64
from featveil.distances import matrix, nearest, nearest_both_ways, pair_distances
from featveil.distances.backends.numba_parts.keeping import MANY
from reference import random_descriptors


def every_distance(a: Flats, b: Flats) -> Float64:
    rows, columns = np.divmod(np.arange(len(a) * len(b)), len(b))
    return pair_distances(a, b, rows, columns).reshape(len(a), len(b))


@pytest.mark.parametrize(("m1", "m2"), [(2, 0), (0, 0), (2, 2)])
@pytest.mark.parametrize("k", [MANY - 3, MANY - 2, 200])
def test_is_a_full_sort(m1: int, m2: int, k: int) -> None:
    rng = np.random.default_rng(k)
    a, b = random_descriptors(150, m1, rng), random_descriptors(3000, m2, rng)
    exact = every_distance(a, b)
    found = nearest(a, b, k)
    np.testing.assert_array_equal(found.indices, np.argsort(exact, axis=1, kind="stable")[:, :k])
    np.testing.assert_allclose(found.distances, np.sort(exact, axis=1)[:, :k], atol=1e-5)


def test_columns_are_found_beside_them() -> None:
    rng = np.random.default_rng(0)
    a, b = random_descriptors(300, 2, rng), random_descriptors(700, 0, rng)
    exact = every_distance(a, b)
    found, back = nearest_both_ways(a, b, 100)
    np.testing.assert_array_equal(found.indices, np.argsort(exact, axis=1, kind="stable")[:, :100])
    np.testing.assert_array_equal(back, exact.argmin(axis=0))


@pytest.mark.parametrize("order", [1, -1])
def test_columns_that_come_sorted(order: int) -> None:
    """Nearest first, nothing is gathered twice; nearest last, everything is."""
    rng = np.random.default_rng(0)
    a, b = random_descriptors(1, 2, rng), random_descriptors(5000, 0, rng)
    sort = np.argsort(matrix(a, b)[0])[::order]
    found = nearest(a, b.take(sort), 300)
    assert sorted(sort[found.indices[0]]) == sorted(sort[::order][:300])
    assert (np.diff(found.distances[0]) >= 0).all()


def test_equal_columns_go_by_their_index() -> None:
    rng = np.random.default_rng(0)
    a, one = random_descriptors(20, 2, rng), random_descriptors(1, 0, rng)
    found = nearest(a, one.take(np.zeros(2000, np.int64)), 100)
    np.testing.assert_array_equal(found.indices, np.broadcast_to(np.arange(100), (20, 100)))


def test_near_ties_and_zeros_are_settled_in_float64() -> None:
    """Copies that float32 products cannot tell apart, and points that lie in the subspaces."""
    rng = np.random.default_rng(0)
    a, one = random_descriptors(30, 2, rng), random_descriptors(300, 0, rng)
    assert isinstance(a, Subspaces) and isinstance(one, Points)
    inside = a.offset + (rng.standard_normal((30, 1, 2)) @ a.basis)[:, 0]
    copies = np.concatenate([np.repeat(one.values, 4, axis=0), inside])
    b = Points((copies + rng.uniform(-2e-7, 2e-7, copies.shape)).astype(np.float32))
    exact = every_distance(a, b)
    found = nearest(a, b, 150)
    np.testing.assert_array_equal(found.indices, np.argsort(exact, axis=1, kind="stable")[:, :150])
    assert found.distances[:, 0].max() < 1e-5


def test_fewer_columns_than_asked_for() -> None:
    rng = np.random.default_rng(0)
    found = nearest(random_descriptors(5, 2, rng), random_descriptors(70, 0, rng), 100)
    assert (np.sort(found.indices[:, :70], axis=1) == np.arange(70)).all()
    assert (found.indices[:, 70:] == -1).all() and np.isinf(found.distances[:, 70:]).all()
