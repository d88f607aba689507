import numpy as np

from featveil.distances.orthonormal import orthonormalise, remove_span


def test_span_and_order_are_kept() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((50, 4, 10))
    basis = vectors.copy()
    independence = orthonormalise(basis)
    assert np.abs(basis @ basis.transpose(0, 2, 1) - np.eye(4)).max() < 1e-14
    triangle = vectors @ basis.transpose(0, 2, 1)
    assert np.abs(np.triu(triangle, 1)).max() < 1e-12
    assert (np.diagonal(triangle, axis1=1, axis2=2) > 0).all()
    assert np.abs(triangle @ basis - vectors).max() < 1e-12
    assert ((independence > 0) & (independence <= 1)).all()


def test_dependent_and_zero_rows_are_reported() -> None:
    vectors = np.array([[[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]], [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]])
    independence = orthonormalise(vectors)
    assert (independence < 1e-12).all()
    assert np.isfinite(vectors).all()
    assert np.abs(vectors[0, 1]).max() < 1e-6 or np.isclose(np.linalg.norm(vectors[0, 1]), 1)


def test_nearly_dependent_rows_come_out_orthonormal() -> None:
    rng = np.random.default_rng(1)
    first = rng.standard_normal((20, 1, 30))
    vectors = np.concatenate([first, first + 1e-9 * rng.standard_normal((20, 1, 30))], axis=1)
    orthonormalise(vectors)
    assert np.abs(vectors @ vectors.transpose(0, 2, 1) - np.eye(2)).max() < 1e-12


def test_remove_span_leaves_the_orthogonal_part() -> None:
    rng = np.random.default_rng(2)
    basis = rng.standard_normal((9, 3, 12))
    orthonormalise(basis)
    vectors = rng.standard_normal((9, 12))
    rest = vectors.copy()
    remove_span(rest, basis)
    assert np.abs(basis @ rest[:, :, None]).max() < 1e-14
    expected = vectors - np.einsum("nmd,nm->nd", basis, np.einsum("nmd,nd->nm", basis, vectors))
    assert np.abs(rest - expected).max() < 1e-13
