import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from featveil.core import InputError, Points, Subspaces
from featveil.databases import Database, builtin
from featveil.defenses import Lifting
from featveil.distances import matrix, nearest, nearest_both_ways, nearest_pruned, pair_distances
from featveil.distances.backends import MARGIN
from featveil.distances.frames import frame
from featveil.distances.search import Comparison
from reference import random_descriptors, reference_matrix

# Points, unrolled, mixed, blocked (over 64 products) and dual (half the size and more) code paths.
DIMENSIONS = [(0, 0), (0, 2), (3, 0), (2, 2), (2, 5), (5, 2), (4, 4), (8, 8), (9, 10), (4, 20), (0, 20), (31, 0)]


@pytest.mark.parametrize(("m1", "m2"), DIMENSIONS)
def test_every_path_agrees_with_least_squares(m1: int, m2: int) -> None:
    rng = np.random.default_rng(m1 * 100 + m2)
    a, b = random_descriptors(13, m1, rng), random_descriptors(140, m2, rng)
    expected = reference_matrix(a, b)
    order = np.argsort(expected, axis=1)
    assert np.abs(matrix(a, b) - expected).max() < 2e-5
    for found in (nearest(a, b, 3), nearest_pruned(a, b, 3), nearest_both_ways(a, b, 3)[0]):
        assert (found.indices == order[:, :3]).all()
        assert np.abs(found.distances - np.sort(expected, axis=1)[:, :3]).max() < 2e-5
    assert (nearest_both_ways(a, b)[1] == expected.argmin(axis=0)).all()


@pytest.mark.parametrize("d", [5, 64, 192, 512])
def test_any_descriptor_size(d: int) -> None:
    rng = np.random.default_rng(d)
    a, b = random_descriptors(6, 2, rng, d), random_descriptors(7, 1, rng, d)
    assert np.abs(matrix(a, b) - reference_matrix(a, b)).max() < 1e-5


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 5), st.integers(0, 5), st.integers(1, 9), st.integers(1, 9), st.integers(0, 10**6))
def test_random_small_cases(m1: int, m2: int, n1: int, n2: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = random_descriptors(n1, m1, rng, 16), random_descriptors(n2, m2, rng, 16)
    assert np.abs(matrix(a, b) - reference_matrix(a, b)).max() < 3e-5


def test_large_and_small_scales_rank_alike() -> None:
    rng = np.random.default_rng(1)
    a, b = random_descriptors(20, 2, rng), random_descriptors(30, 2, rng)
    assert isinstance(a, Subspaces)
    assert isinstance(b, Subspaces)
    for factor in (1e-6, 512.0, 1e6):
        big_a = Subspaces(a.offset * np.float32(factor), a.basis)
        big_b = Subspaces(b.offset * np.float32(factor), b.basis)
        assert (nearest(big_a, big_b).indices == nearest(a, b).indices).all()
        assert np.allclose(matrix(big_a, big_b), matrix(a, b) * factor, rtol=1e-4)


@pytest.mark.parametrize(("m1", "m2"), [(2, 2), (4, 0), (12, 12)])
def test_common_point_has_distance_zero_to_float64(m1: int, m2: int) -> None:
    rng = np.random.default_rng(3)
    a, b = random_descriptors(40, m1, rng, 64), random_descriptors(40, m2, rng, 64)
    shared = a.values if isinstance(a, Points) else a.offset
    b = Points(shared) if isinstance(b, Points) else Subspaces(shared, b.basis)
    found = nearest(a, b, 2)
    assert (found.indices[:, 0] == np.arange(40)).all()
    assert found.distances[:, 0].max() < 1e-12
    assert matrix(a, b).diagonal().max() < 1e-6


def test_ties_go_to_the_lower_index() -> None:
    rng = np.random.default_rng(4)
    b = random_descriptors(10, 2, rng)
    assert isinstance(b, Subspaces)
    twice = Subspaces(np.repeat(b.offset, 3, axis=0), np.repeat(b.basis, 3, axis=0))
    a = random_descriptors(50, 2, rng)
    found, back = nearest_both_ways(a, twice, 4)
    best = nearest(a, b, 1).indices[:, 0]
    assert (found.indices[:, :3] == best[:, None] * 3 + np.arange(3)).all()
    same_rows, _ = nearest_both_ways(twice, a, 1)
    assert (same_rows.indices.reshape(10, 3) == same_rows.indices.reshape(10, 3)[:, :1]).all()
    assert (back.reshape(10, 3) == back.reshape(10, 3)[:, :1]).all()


@pytest.mark.parametrize("m", [0, 2])
@pytest.mark.parametrize("originals", [1100, 20])
@pytest.mark.parametrize("threads", ["1", "3"])
def test_almost_equal_distances_are_decided_in_float64(
    m: int, originals: int, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies that the kernel cannot tell apart: a few are listed as they go by, many overflow the list."""
    monkeypatch.setenv("FEATVEIL_THREADS", threads)
    rng = np.random.default_rng(originals)
    one, b = random_descriptors(originals, m, rng), random_descriptors(300, 2, rng)
    everyone = rng.permutation(np.resize(np.arange(originals), 1200))
    nudged = (one.values if isinstance(one, Points) else one.offset)[everyone]
    nudged += rng.uniform(-2e-7, 2e-7, nudged.shape).astype(np.float32)
    a = Points(nudged) if isinstance(one, Points) else Subspaces(nudged, one.basis[everyone])
    rows, columns = np.divmod(np.arange(len(a) * len(b)), len(b))
    exact = pair_distances(a, b, rows, columns).reshape(len(a), len(b))
    found, back = nearest_both_ways(a, b, 2)
    assert (back == exact.argmin(axis=0)).all()
    assert (found.indices == np.argsort(exact, axis=1, kind="stable")[:, :2]).all()
    across, over = nearest_both_ways(b, a, 2)
    assert (across.indices == np.argsort(exact.T, axis=1, kind="stable")[:, :2]).all()
    assert (over == exact.argmin(axis=1)).all()


@pytest.mark.parametrize("angle", [1e-1, 1e-2, 1e-3, 1e-4])
def test_nearly_parallel_subspaces(angle: float) -> None:
    """The fast kernel alone would be off by more than a tenth here; the re-rank in float64 must catch all of them."""
    rng = np.random.default_rng(5)
    a = random_descriptors(30, 4, rng, 64)
    assert isinstance(a, Subspaces)
    tilted = a.basis + np.float32(angle) * rng.standard_normal(a.basis.shape).astype(np.float32) / 8
    basis = np.linalg.qr(tilted.transpose(0, 2, 1).astype(np.float64)).Q.transpose(0, 2, 1)
    b = Subspaces(rng.standard_normal(a.offset.shape).astype(np.float32), basis.astype(np.float32))
    exact = pair_distances(a, b, np.arange(30), np.arange(30))
    slow = reference_matrix(a, b)
    assert np.abs(exact - slow.diagonal()).max() < 1e-7
    assert np.abs(matrix(a, b) - slow).max() < 1e-5
    assert (nearest(a, b).indices[:, 0] == slow.argmin(axis=1)).all()


def test_loose_bases_are_tightened() -> None:
    rng = np.random.default_rng(6)
    a = random_descriptors(8, 3, rng)
    assert isinstance(a, Subspaces)
    noisy = a.basis + rng.uniform(-1e-5, 1e-5, a.basis.shape).astype(np.float32)
    loose = Subspaces(a.offset, noisy)
    assert loose.looseness > 2e-6
    b = random_descriptors(9, 3, rng)
    assert np.abs(matrix(loose, b) - reference_matrix(loose, b)).max() < 1e-5


def test_fewer_columns_than_asked_for() -> None:
    rng = np.random.default_rng(7)
    a, b = random_descriptors(5, 2, rng), random_descriptors(1, 0, rng)
    found = nearest(a, b, 3)
    assert (found.indices == [0, -1, -1]).all()
    assert np.isinf(found.distances[:, 1:]).all()
    assert np.isfinite(found.distances[:, 0]).all()


def test_nothing_to_compare() -> None:
    rng = np.random.default_rng(8)
    a, empty = random_descriptors(4, 2, rng), random_descriptors(0, 2, rng)
    assert matrix(a, empty).shape == (4, 0)
    rows, columns = nearest_both_ways(empty, a)
    assert rows.indices.shape == (0, 2)
    assert (columns == -1).all()
    assert (nearest(a, empty).indices == -1).all()


def test_many_rows_cross_tiles_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(9)
    a, b = random_descriptors(700, 2, rng), random_descriptors(611, 3, rng)
    monkeypatch.setenv("FEATVEIL_THREADS", "1")
    alone = nearest_both_ways(a, b)
    monkeypatch.setenv("FEATVEIL_THREADS", "3")
    together = nearest_both_ways(a, b)
    full = matrix(a, b)
    assert (alone[0].indices == together[0].indices).all()
    assert (alone[1] == together[1]).all()
    assert (alone[0].indices[:, 0] == full.argmin(axis=1)).all()
    assert (alone[1] == full.argmin(axis=0)).all()


def test_refusals() -> None:
    rng = np.random.default_rng(10)
    with pytest.raises(InputError, match="sizes differ"):
        matrix(random_descriptors(2, 0, rng, 8), random_descriptors(2, 0, rng, 9))
    with pytest.raises(InputError, match="expected Points or Subspaces"):
        matrix(np.ones((2, 8)), random_descriptors(2, 0, rng, 8))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="always meet"):
        nearest(random_descriptors(2, 4, rng, 8), random_descriptors(2, 4, rng, 8))
    with pytest.raises(InputError, match="k must be"):
        nearest(random_descriptors(2, 1, rng), random_descriptors(2, 1, rng), 0)
    with pytest.raises(InputError, match="axes must be"):
        nearest_pruned(random_descriptors(2, 1, rng), random_descriptors(2, 1, rng), axes=99)


@pytest.mark.parametrize("m", [2, 8, 16, 32])
def test_the_kernel_is_as_exact_as_the_margin_assumes(m: int) -> None:
    """Both images draw from one small part, so that some pairs are almost parallel."""
    rng = np.random.default_rng(m)
    entries = builtin("sift").points()
    lifting = Lifting("adversarial", m, database=Database(entries[1000:2000], "sift", 1))
    a, b = (lifting.privatize(Points(entries[part]), rng) for part in (slice(0, 150), slice(150, 300)))
    compared = Comparison(a, b, frame(a, b))
    squared = np.concatenate([compared.walker.matrix(stripe) for stripe in compared.walker.stripes()])
    rows, columns = np.nonzero(squared >= 0)
    exact = (compared.exact(rows, columns) / compared.pair.scale) ** 2
    assert len(rows) > 100
    assert 2 * np.abs(squared[rows, columns] - exact).max() < MARGIN


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("spread", [1e-5, 1e-3, 1.0])
def test_nearest_points_among_many_that_are_almost_as_near(k: int, spread: float) -> None:
    rng = np.random.default_rng(0)
    a = Points(rng.standard_normal((40, 16)).astype(np.float32))
    b = Points((rng.standard_normal(16) + spread * rng.standard_normal((1500, 16))).astype(np.float32))
    exact = np.linalg.norm(a.values[:, None].astype(np.float64) - b.values[None].astype(np.float64), axis=2)
    assert (nearest(a, b, k).indices == np.argsort(exact, axis=1, kind="stable")[:, :k]).all()
