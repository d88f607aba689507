import numpy as np
import pytest

from featveil.core import InputError, Points, Subspaces
from featveil.distances import Dual, dual_matrix, from_dual, matrix, to_dual
from reference import random_descriptors, reference_matrix


@pytest.mark.parametrize("m", [1, 3, 8, 15])
def test_there_and_back_is_the_same_subspace(m: int) -> None:
    rng = np.random.default_rng(m)
    primal = random_descriptors(6, m, rng, 16)
    assert isinstance(primal, Subspaces)
    again = from_dual(to_dual(primal))
    projector = primal.basis.transpose(0, 2, 1) @ primal.basis
    assert np.abs(projector - again.basis.transpose(0, 2, 1) @ again.basis).max() < 1e-5
    assert np.abs(to_dual(primal).normals @ primal.basis.transpose(0, 2, 1)).max() < 1e-6


@pytest.mark.parametrize("m", [2, 7, 9, 14])
def test_point_distance_in_both_forms(m: int) -> None:
    rng = np.random.default_rng(m)
    points, primal = random_descriptors(5, 0, rng, 16), random_descriptors(6, m, rng, 16)
    assert isinstance(points, Points)
    assert isinstance(primal, Subspaces)
    expected = reference_matrix(points, primal)
    assert np.abs(dual_matrix(points, to_dual(primal)) - expected).max() < 1e-6
    assert np.abs(matrix(points, primal) - expected).max() < 1e-5
    assert np.abs(matrix(primal, points) - expected.T).max() < 1e-5


@pytest.mark.parametrize(("m1", "m2"), [(1, 1), (3, 2), (7, 8), (13, 14)])
def test_system_13_agrees_with_least_squares(m1: int, m2: int) -> None:
    """Also where the subspaces always meet and the distance is zero."""
    rng = np.random.default_rng(m1)
    a, b = random_descriptors(3, m1, rng, 16), random_descriptors(4, m2, rng, 16)
    assert isinstance(a, Subspaces)
    assert isinstance(b, Subspaces)
    assert np.abs(dual_matrix(to_dual(a), to_dual(b)) - reference_matrix(a, b)).max() < 1e-6


def test_normals_must_be_orthonormal() -> None:
    with pytest.raises(InputError, match="orthonormal"):
        Dual(np.zeros((1, 4)), np.ones((1, 2, 4)))
