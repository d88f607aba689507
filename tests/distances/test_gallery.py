"""A gallery finds what `nearest` finds, and both what least squares in float64 say, where the kernel is unsure too."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from featveil.core import Flats, InputError, Points, Subspaces, WordSets
from featveil.core.arrays import Float64
from featveil.distances import Gallery, Nearest, nearest, nearest_both_ways, pair_distances, search
from featveil.distances.backends import MARGIN
from featveil.distances.backends.numba_parts.keeping import MANY
from featveil.distances.frames import frame
from featveil.distances.search import Comparison
from interruptions import Watched
from reference import random_descriptors, reference_matrix

# Points, unrolled, blocked and dual code paths, on either side.
DIMENSIONS = [(0, 0), (0, 2), (2, 0), (2, 2), (4, 0), (0, 4), (4, 4), (9, 9), (0, 20), (20, 0), (4, 20), (20, 4)]
COUNT = 37


def moved(flats: Flats, factor: float = 1.0, shift: float = 0.0) -> Flats:
    if isinstance(flats, Points):
        return Points((flats.values * factor + shift).astype(np.float32))
    return Subspaces((flats.offset * factor + shift).astype(np.float32), flats.basis)


def joined(*parts: Flats) -> Flats:
    points = [part.values if isinstance(part, Points) else part.offset for part in parts]
    bases = [part.basis for part in parts if isinstance(part, Subspaces)]
    if not bases:
        return Points(np.concatenate(points))
    return Subspaces(np.concatenate(points), np.concatenate(bases))


def jittered(flats: Flats, count: int, share: float, rng: np.random.Generator) -> Flats:
    """Copies of a few, moved by that `share` of themselves: too little for the kernel to tell them apart."""
    copies = flats.take(rng.permutation(np.resize(np.arange(len(flats)), count)))
    points = copies.values if isinstance(copies, Points) else copies.offset
    points = (points * (1 + rng.uniform(-share, share, points.shape))).astype(np.float32)
    return Points(points) if isinstance(copies, Points) else Subspaces(points, copies.basis)


def every_distance(a: Flats, b: Flats) -> Float64:
    rows, columns = np.divmod(np.arange(len(a) * len(b)), len(b))
    return pair_distances(a, b, rows, columns).reshape(len(a), len(b))


def check(found: Nearest, exact: Float64, tolerance: float = 2e-5) -> None:
    """Indices as a full sort finds them, of equal ones the lower first, then -1 and infinity."""
    k, known = found.indices.shape[1], min(found.indices.shape[1], exact.shape[1])
    order = np.argsort(exact, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(found.indices[:, :known], order)
    np.testing.assert_allclose(found.distances[:, :known], np.sort(exact, axis=1)[:, :k], atol=tolerance)
    assert (found.indices[:, known:] == -1).all() and np.isinf(found.distances[:, known:]).all()


@pytest.fixture
def afresh(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Counts how often a gallery gives up what it prepared."""
    return Watched(monkeypatch, "featveil.distances.search.nearest", nearest)


@pytest.mark.parametrize(("m1", "m2"), DIMENSIONS)
def test_every_path_agrees_with_least_squares(m1: int, m2: int, afresh: Watched) -> None:
    rng = np.random.default_rng(100 * m1 + m2)
    queries, entries = random_descriptors(9, m1, rng), random_descriptors(COUNT, m2, rng)
    exact = reference_matrix(queries, entries)
    searched = Gallery(entries)
    assert len(searched) == COUNT
    for k in (1, 2, 5, COUNT - 2, COUNT - 1, COUNT, COUNT + 1, 2 * COUNT):
        found, expected = searched.nearest(queries, k), nearest(queries, entries, k)
        check(found, exact)
        np.testing.assert_array_equal(found.indices, expected.indices)
        np.testing.assert_allclose(found.distances, expected.distances, atol=1e-5)
        assert found.indices.dtype == np.int64 and found.distances.dtype == np.float64
    assert afresh.calls == 0  # what was prepared was used


def test_one_gallery_serves_queries_of_every_dimension_again_and_again() -> None:
    rng = np.random.default_rng(0)
    entries = random_descriptors(200, 4, rng)
    searched = Gallery(entries)
    for m in (0, 4, 2, 0, 2, 4, 20, 0):
        queries = random_descriptors(1 + m, m, rng)
        check(searched.nearest(queries, 3), every_distance(queries, entries))
    assert searched.nearest(random_descriptors(5, 0, rng)).indices.shape == (5, 1)


def test_queries_one_by_one_or_together() -> None:
    rng = np.random.default_rng(1)
    entries, queries = random_descriptors(300, 2, rng), random_descriptors(150, 2, rng)
    searched = Gallery(entries)
    together = searched.nearest(queries, 2)
    for row in range(0, 150, 10):
        alone = searched.nearest(queries.take(np.array([row])), 2)
        np.testing.assert_array_equal(alone.indices[0], together.indices[row])
        np.testing.assert_allclose(alone.distances[0], together.distances[row], atol=1e-6)


def test_more_entries_than_fit_a_tile_and_many_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    entries, queries = random_descriptors(1500, 2, rng), random_descriptors(200, 0, rng)
    exact = every_distance(queries, entries)
    for threads in ("1", "3"):
        monkeypatch.setenv("FEATVEIL_THREADS", threads)
        for k in (1, MANY, 300):
            check(Gallery(entries).nearest(queries, k), exact)


@pytest.mark.parametrize("m", [0, 2, 4, 9])
def test_queries_that_are_entries_find_themselves(m: int, afresh: Watched) -> None:
    """Every pair on the diagonal is parallel and at distance zero: the kernel cannot say anything."""
    rng = np.random.default_rng(m)
    entries = random_descriptors(80, m, rng)
    exact = every_distance(entries, entries)
    for k in (1, 2, 4):
        found = Gallery(entries).nearest(entries, k)
        check(found, exact)
        assert found.indices[:, 0].tolist() == list(range(80))
        assert found.distances[:, 0].max() < 1e-12
    assert afresh.calls == 0


@pytest.mark.parametrize(("m1", "m2"), [(0, 0), (0, 4), (4, 0), (4, 4), (9, 9), (0, 20)])
def test_duplicated_entries_go_by_their_index(m1: int, m2: int) -> None:
    rng = np.random.default_rng(3)
    once, queries = random_descriptors(12, m2, rng), random_descriptors(20, m1, rng)
    entries = once.take(np.tile(np.arange(12), 4))
    best = Gallery(once).nearest(queries).indices
    for k in (1, 3, 4):
        found = Gallery(entries).nearest(queries, k)
        np.testing.assert_array_equal(found.indices, best + 12 * np.arange(k))
        assert (found.distances == found.distances[:, :1]).all()
    if m1 == m2:  # the copies are parallel to the query, more of them than are listed
        found = Gallery(entries).nearest(once, 4)
        np.testing.assert_array_equal(found.indices, np.arange(12)[:, None] + 12 * np.arange(4))
        assert found.distances.max() < 1e-12


def parallel_at(query: Subspaces, away: float, rng: np.random.Generator) -> Subspaces:
    """A subspace with the directions of `query` (one), at that distance from it."""
    basis = np.linalg.qr(query.basis[0].astype(np.float64).T).Q
    normal = rng.standard_normal(query.size)
    normal -= basis @ (basis.T @ normal)
    offset = query.offset[0] + normal * away / np.linalg.norm(normal)
    return Subspaces(offset[None].astype(np.float32), query.basis)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_parallel_entries_as_far_as_others_are_ranked_in_float64(place: int) -> None:
    """The kernel lists the parallel one first, whatever its distance: its rivals need exact distances as well."""
    rng = np.random.default_rng(place)
    for _ in range(60):
        query, entries = random_descriptors(1, 4, rng), random_descriptors(20, 4, rng)
        assert isinstance(query, Subspaces)
        rival = np.sort(every_distance(query, entries)[0])[place]
        close = parallel_at(query, rival * (1 + rng.uniform(-3e-7, 3e-7)), rng)
        entries = joined(entries, close).take(rng.permutation(21))
        exact = reference_matrix(query, entries)
        for k in (1, 2, 3, 4):
            for found in (
                nearest(query, entries, k),
                Gallery(entries).nearest(query, k),
                nearest_both_ways(query, entries, k)[0],
            ):
                check(found, exact)


@pytest.mark.parametrize("away", [0.0, 1e-3, 0.1, 1.0, 3.0])
@pytest.mark.parametrize("copies", [1, 2, 3, 4, 5, 9])
def test_rows_with_few_or_many_entries_of_which_the_kernel_is_unsure(away: float, copies: int) -> None:
    """Up to k + 2 of them are listed and settled among themselves; where there are more, the whole row is decided."""
    rng = np.random.default_rng(copies)
    queries, others = random_descriptors(6, 4, rng), random_descriptors(30, 4, rng)
    assert isinstance(queries, Subspaces)
    beside = [
        parallel_at(Subspaces(queries.offset[row : row + 1], queries.basis[row : row + 1]), away, rng)
        for row in range(6)
        for _ in range(copies)
    ]
    entries = joined(others, *beside)
    compared = Comparison(queries, entries, frame(queries, entries))
    squared = np.concatenate([compared.walker.matrix(stripe) for stripe in compared.walker.stripes()])
    assert ((squared < 0).sum(axis=1) >= copies).all()
    exact = reference_matrix(queries, entries)
    exact[exact < 1e-6] = 0  # the same offset in float32, up to its rounding
    for k in (1, 2, 3):
        for found in (nearest(queries, entries, k), Gallery(entries).nearest(queries, k)):
            np.testing.assert_allclose(found.distances, np.sort(exact, axis=1)[:, :k], atol=2e-5)
            chosen = np.take_along_axis(every_distance(queries, entries), found.indices, axis=1)
            np.testing.assert_allclose(chosen, np.sort(every_distance(queries, entries), axis=1)[:, :k], atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 5),
    st.integers(1, 12),
    st.sampled_from([1e-7, 1e-5, 1e-3]),
    st.sampled_from([1e-3, 1.0, 512.0]),
    st.integers(0, 10**6),
)
def test_doubtful_rows_of_any_sort(k: int, kept: int, tilt: float, size: float, seed: int) -> None:
    """Entries almost parallel to the queries, copies of them, and others, in any order and of any size."""
    rng = np.random.default_rng(seed)
    queries, others = random_descriptors(4, 2, rng, 16), random_descriptors(10, 2, rng, 16)
    assert isinstance(queries, Subspaces)
    rows = rng.integers(0, 4, kept)
    tilted = queries.basis[rows] + tilt * rng.standard_normal((kept, 2, 16))
    basis = np.linalg.qr(tilted.transpose(0, 2, 1)).Q.transpose(0, 2, 1)
    offset = queries.offset[rows] + rng.choice([0, 1e-4, 0.3], (kept, 1)) * rng.standard_normal((kept, 16))
    entries = joined(others, Subspaces(offset.astype(np.float32), basis.astype(np.float32)))
    entries, asked = moved(entries.take(rng.integers(0, len(entries), 15)), size), moved(queries, size)
    exact = every_distance(asked, entries)
    for found in (nearest(asked, entries, k), Gallery(entries).nearest(asked, k)):
        check(found, exact, 2e-5 * size)


@pytest.mark.parametrize(("m1", "m2"), DIMENSIONS)
@pytest.mark.parametrize("factor", [1.0, 1.4, 100.0])
@pytest.mark.parametrize("share", [3e-6, 3e-4])
def test_almost_equal_distances_are_decided_in_float64(m1: int, m2: int, factor: float, share: float) -> None:
    """Also of queries that lie far outside, where float32 is coarser than the differences."""
    rng = np.random.default_rng(4)
    entries = jittered(random_descriptors(20, m2, rng), 120, share, rng)
    queries = moved(random_descriptors(30, m1, rng), factor)
    exact = every_distance(queries, entries)
    check(nearest(queries, entries, 3), exact, 2e-5 * factor)
    check(Gallery(entries).nearest(queries, 3), exact, 2e-5 * factor)


@pytest.mark.parametrize("size", [1e-3, 0.1, 512.0])
@pytest.mark.parametrize("m", [0, 4])
def test_almost_equal_distances_of_any_size_are_decided_in_float64(m: int, size: float) -> None:
    rng = np.random.default_rng(11)
    entries = moved(jittered(random_descriptors(20, m, rng), 120, 3e-6, rng), size)
    queries = moved(random_descriptors(30, m, rng), size)
    exact = every_distance(queries, entries)
    for found in (nearest(queries, entries, 2), Gallery(entries).nearest(queries, 2)):
        check(found, exact, 2e-5 * size)


@pytest.mark.parametrize(("m1", "m2"), [(0, 0), (0, 4), (4, 4), (0, 20), (20, 0)])
def test_queries_beyond_the_room_are_searched_afresh(m1: int, m2: int, afresh: Watched) -> None:
    rng = np.random.default_rng(5)
    entries, queries = random_descriptors(60, m2, rng), random_descriptors(4, m1, rng)
    searched = Gallery(entries)
    searched.nearest(queries)
    assert afresh.calls == 0
    for place, far in enumerate((moved(queries, 1000), moved(queries, shift=1e5), moved(queries, 1e11))):
        found = searched.nearest(far, 2)
        expected = nearest(far, entries, 2)
        np.testing.assert_array_equal(found.indices, expected.indices)
        np.testing.assert_array_equal(found.distances, expected.distances)
        assert afresh.calls == place + 1
    check(searched.nearest(queries, 2), every_distance(queries, entries))  # as before
    assert afresh.calls == 3


@pytest.mark.parametrize(("m1", "m2"), [(0, 0), (2, 2), (4, 4), (9, 9), (0, 20)])
def test_within_the_room_the_kernel_is_as_exact_as_the_margin_assumes(m1: int, m2: int) -> None:
    rng = np.random.default_rng(6)
    entries, queries = random_descriptors(100, m2, rng), random_descriptors(100, m1, rng)
    searched = Gallery(entries)
    prepared, walker = searched._for(queries)
    reach = np.linalg.norm(prepared.replaced(queries).first.stack[:, 0], axis=1)
    points = queries.values if isinstance(queries, Points) else queries.offset
    points = ((points - prepared.centre) * (0.999 / reach)[:, None] + prepared.centre).astype(np.float32)
    far = Points(points) if isinstance(queries, Points) else Subspaces(points, queries.basis)
    pair = prepared.replaced(far)
    assert 0.99 < pair.first.reach < 1
    assert np.linalg.norm(pair.second.stack[:, 0], axis=1).max() == pytest.approx(1 / search._ROOM, rel=1e-5)
    compared = Comparison(far, entries, pair, walker.against(pair.first))
    squared = np.concatenate([compared.walker.matrix(stripe) for stripe in compared.walker.stripes()])
    rows, columns = np.nonzero(squared >= 0)
    exact = (compared.exact(rows, columns) / pair.scale) ** 2
    assert len(rows) > 5000
    assert 2 * np.abs(squared[rows, columns] - exact).max() < MARGIN


@pytest.mark.parametrize("size", [1e-12, 1e-5, 1.0, 512.0, 1e9])
@pytest.mark.parametrize(("m1", "m2"), [(0, 0), (0, 4), (4, 4), (0, 20), (20, 0)])
def test_any_scale(m1: int, m2: int, size: float, afresh: Watched) -> None:
    rng = np.random.default_rng(7)
    queries, entries = random_descriptors(6, m1, rng), random_descriptors(50, m2, rng)
    found = Gallery(moved(entries, size)).nearest(moved(queries, size), 3)
    expected = Gallery(entries).nearest(queries, 3)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_allclose(found.distances, expected.distances * size, rtol=1e-4)
    assert afresh.calls == 0


@pytest.mark.parametrize("size", [1e-12, 1e-8, 1e-5, 1e-3, 1.0])
@pytest.mark.parametrize("m", [0, 1, 2, 4, 20])
def test_a_single_entry_is_found_from_anywhere(m: int, size: float) -> None:
    """Its distance from the middle of all entries is rounding noise, which is no scale to measure by."""
    rng = np.random.default_rng(8)
    for _ in range(10):
        entry = moved(random_descriptors(1, m, rng), size)
        twice = entry.take(np.array([0, 0]))
        for query in (random_descriptors(2, 0, rng), moved(random_descriptors(2, 2, rng), size)):
            away = every_distance(query, entry)
            check(Gallery(entry).nearest(query, 2), away, 2e-4 * away.max())
            check(Gallery(twice).nearest(query, 2), np.repeat(away, 2, axis=1), 2e-4 * away.max())
        if 2 * m < 32:
            assert Gallery(entry).nearest(entry).distances.max() <= 1e-12 * size


def test_nothing_to_find_and_nothing_asked() -> None:
    rng = np.random.default_rng(9)
    for m in (0, 2):
        nobody, someone = random_descriptors(0, m, rng), random_descriptors(3, m, rng)
        empty = Gallery(nobody)
        assert len(empty) == 0
        found = empty.nearest(someone, 2)
        assert (found.indices == -1).all() and found.indices.shape == (3, 2) and np.isinf(found.distances).all()
        for searched in (empty, Gallery(someone)):
            found = searched.nearest(nobody, 4)
            assert found.indices.shape == found.distances.shape == (0, 4)


def test_refusals_are_those_of_nearest() -> None:
    rng = np.random.default_rng(10)
    entries, nobody = random_descriptors(5, 4, rng, 8), random_descriptors(0, 4, rng, 8)
    for searched in (Gallery(entries), Gallery(nobody)):
        with pytest.raises(InputError, match="sizes differ: 9 and 8"):
            searched.nearest(random_descriptors(2, 0, rng, 9))
        with pytest.raises(InputError, match="always meet"):
            searched.nearest(random_descriptors(2, 4, rng, 8))
        for k in (0, -1):
            with pytest.raises(InputError, match="k must be at least 1"):
                searched.nearest(random_descriptors(2, 0, rng, 8), k)
        with pytest.raises(InputError, match="expected Points or Subspaces"):
            searched.nearest(np.ones((1, 8)))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="word sets have no distances"):
        Gallery(WordSets(np.array([[1, 2]]), "0" * 64, 8))  # type: ignore[arg-type]
    assert Gallery(entries).nearest(random_descriptors(2, 3, rng, 8)).indices.shape == (2, 1)
