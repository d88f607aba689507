"""Distances on a sphere against random search, simple geometry, and a bound that nothing can be below."""

import numpy as np
import pytest
from scipy.optimize import minimize

from featveil.core import Flats, InputError, Points, Subspaces
from featveil.core.arrays import Float64
from featveil.distances import distances_to_sphere, pair_distances, sphere_distances
from reference import parts, random_descriptors


def sphere_of(descriptors: Flats, i: int, norm: float) -> tuple[Float64, Float64]:
    """Centre (d,) and directions (m, d), as long as the radius, of one spherical part."""
    point, directions = parts(descriptors, i)
    centre = point - directions.T @ (directions @ point)
    return centre, directions * np.sqrt(norm**2 - float(centre @ centre)) if len(directions) else directions


def searched(a: Flats, b: Flats, i: int, norm: float, rng: np.random.Generator) -> float:
    """The least distance found from 40 random starts, by gradient steps that do not know the closed-form turns."""
    (centre1, axes1), (centre2, axes2) = sphere_of(a, i, norm), sphere_of(b, i, norm)
    u, v = rng.standard_normal((40, len(axes1))), rng.standard_normal((40, len(axes2)))
    least = np.inf
    for _ in range(300):
        u /= np.linalg.norm(u, axis=1, keepdims=True).clip(1e-9)
        v /= np.linalg.norm(v, axis=1, keepdims=True).clip(1e-9)
        gap = centre1 - centre2 + u @ axes1 - v @ axes2
        least = min(least, float(np.linalg.norm(gap, axis=1).min()))
        u, v = u - gap @ axes1.T / norm**2, v + gap @ axes2.T / norm**2
    return least


def both(n: int, m1: int, m2: int, d: int, norm: float = 1.0) -> tuple[Flats, Flats]:
    rng = np.random.default_rng(100 * m1 + 10 * m2 + d)
    sets = []
    for m in (m1, m2):
        flats = random_descriptors(n, m, rng, d)
        sets.append(
            Points(flats.values * np.float32(norm))
            if isinstance(flats, Points)
            else Subspaces(flats.offset * np.float32(norm), flats.basis)
        )
    return sets[0], sets[1]


@pytest.mark.parametrize(
    ("m1", "m2", "d", "norm"), [(1, 1, 4, 1), (2, 2, 5, 1), (3, 3, 8, 1), (1, 4, 8, 1), (4, 2, 9, 512), (0, 3, 6, 1)]
)
def test_no_random_search_finds_less(m1: int, m2: int, d: int, norm: float) -> None:
    rng, n = np.random.default_rng(0), 40
    a, b = both(n, m1, m2, d, norm)
    same = np.arange(n)
    distances = sphere_distances(a, b, same, same, norm)
    expected = np.array([searched(a, b, i, norm, rng) for i in range(n)])
    assert np.abs(distances - expected).max() < 1e-4 * norm
    # As on the plane, so on the sphere: a part is never nearer than the whole.
    assert (distances > pair_distances(a, b, same, same) - 1e-5 * norm).all()


def lower_bound(a: Flats, b: Flats, i: int) -> float:
    """The squared distance on the unit sphere is at least this: the best bound that the Lagrangian gives."""
    (centre1, axes1), (centre2, axes2) = sphere_of(a, i, 1), sphere_of(b, i, 1)
    m1, m2 = len(axes1), len(axes2)
    pulls, coupling = np.concatenate([axes1 @ centre2, axes2 @ centre1]), axes1 @ axes2.T
    limit = float(np.linalg.norm(coupling, 2))

    def bound(logarithms: Float64) -> float:
        excess, balance = np.exp(logarithms)
        first, second = (limit + excess) * balance, (limit + excess) / balance
        form = np.block([[first * np.eye(m1), -coupling], [-coupling.T, second * np.eye(m2)]])
        return float(first + second + pulls @ np.linalg.solve(form, pulls)) / 2

    options = {"maxiter": 1000, "xatol": 1e-9, "fatol": 1e-12}
    greatest = minimize(bound, np.array([-1.0, 0.0]), method="Nelder-Mead", options=options).fun
    return 2 - 2 * float(centre1 @ centre2 + greatest)


@pytest.mark.parametrize(("m1", "m2", "d"), [(2, 2, 6), (3, 5, 16), (8, 8, 32)])
def test_nearly_all_reach_the_bound_that_none_can_be_below(m1: int, m2: int, d: int) -> None:
    n = 40
    a, b = both(n, m1, m2, d)
    squared = sphere_distances(a, b, np.arange(n), np.arange(n)) ** 2
    above = squared - np.array([lower_bound(a, b, i) for i in range(n)])
    assert above.min() > -1e-5
    assert (above < 1e-5).mean() >= 0.9


def test_points_are_compared_as_they_are() -> None:
    a, b = both(6, 0, 0, 8, 3.0)
    rows, columns = np.array([0, 5, 2]), np.array([1, 1, 4])
    assert isinstance(a, Points) and isinstance(b, Points)
    expected = np.linalg.norm(a.values[rows] - b.values[columns], axis=1)
    assert np.allclose(sphere_distances(a, b, rows, columns), expected, atol=1e-6)


def test_from_a_point_to_a_circle_on_the_globe() -> None:
    # The circle of latitude 30 degrees, and points due north of it: the distance is a chord of the meridian.
    level = Subspaces(np.array([[7.0, 3.0, 0.5]], np.float32), np.array([[[1, 0, 0], [0, 1, 0]]], np.float32))
    latitudes = np.radians([30, 40, 80, -30])
    points = Points(np.stack([0.6 * np.cos(latitudes), 0.8 * np.cos(latitudes), np.sin(latitudes)], axis=1))
    rows, columns = np.arange(4), np.zeros(4, np.int64)
    chords = 2 * np.sin(np.abs(latitudes - np.radians(30)) / 2)
    assert np.allclose(sphere_distances(points, level, rows, columns), chords, atol=1e-6)
    assert np.allclose(sphere_distances(level, points, columns, rows), chords, atol=1e-6)


def test_pairs_are_those_asked_for_and_sides_may_be_exchanged() -> None:
    a, b = both(7, 2, 3, 12)
    rows, columns = np.repeat(np.arange(7), 7), np.tile(np.arange(7), 7)
    every = sphere_distances(a, b, rows, columns)
    assert len(np.unique(every.round(6))) > 40
    assert np.allclose(sphere_distances(b, a, columns, rows), every, atol=1e-6)
    some = np.array([40, 3, 3, 22])
    assert np.array_equal(sphere_distances(a, b, rows[some], columns[some]), every[some])
    assert sphere_distances(a, b, rows[:0], columns[:0]).shape == (0,)


def test_the_basis_and_offset_chosen_do_not_matter() -> None:
    rng = np.random.default_rng(1)
    a, b = both(5, 3, 3, 10)
    assert isinstance(a, Subspaces)
    turn = np.linalg.qr(rng.standard_normal((5, 3, 3))).Q
    offset = a.offset + np.einsum("nm,nmd->nd", rng.standard_normal((5, 3)), a.basis)
    again = Subspaces(offset.astype(np.float32), (turn @ a.basis).astype(np.float32))
    same = np.arange(5)
    assert np.allclose(sphere_distances(again, b, same, same), sphere_distances(a, b, same, same), atol=1e-5)


def test_subspaces_through_one_unit_vector_meet_there() -> None:
    rng = np.random.default_rng(2)
    a, b = random_descriptors(50, 6, rng), random_descriptors(50, 4, rng)
    assert isinstance(a, Subspaces) and isinstance(b, Subspaces)
    through = Subspaces(a.offset, b.basis)
    same = np.arange(50)
    assert sphere_distances(a, through, same, same).max() < 1e-4
    assert sphere_distances(Points(a.offset), through, same, same).max() < 1e-4
    # Scaled, they meet just as well in the plane, but no longer on the sphere.
    larger = Subspaces(a.offset * np.float32(1.2), a.basis)
    assert pair_distances(larger, Subspaces(larger.offset, b.basis), same, same).max() < 1e-5
    assert np.median(sphere_distances(larger, Subspaces(larger.offset, b.basis), same, same)) > 0.05


def test_subspaces_that_miss_the_sphere_count_as_their_nearest_point() -> None:
    level = np.array([[[1, 0, 0], [0, 1, 0]]], np.float32)
    above, touching = (Subspaces(np.array([point], np.float32), level) for point in ([5, 5, 2], [1, 2, 1]))
    slanted = Subspaces(np.zeros((1, 3), np.float32), np.array([[[0, 1, 0], [0.6, 0, 0.8]]], np.float32))
    zero = np.zeros(1, np.int64)
    assert np.allclose(sphere_distances(above, touching, zero, zero), 0, atol=1e-6)
    pole = Points(np.array([[0, 0, 1]], np.float32))
    for missing in (above, touching):
        expected = sphere_distances(pole, slanted, zero, zero)
        assert expected > 0.5
        assert np.allclose(sphere_distances(missing, slanted, zero, zero), expected, atol=1e-6)


def test_linear_subspaces_meet_at_their_principal_angle() -> None:
    rng = np.random.default_rng(3)
    bases = [np.linalg.qr(rng.standard_normal((20, 12, m))).Q.transpose(0, 2, 1) for m in (3, 4)]
    a, b = (Subspaces(np.zeros((20, 12), np.float32), basis.astype(np.float32)) for basis in bases)
    cosine = np.linalg.svd(bases[0] @ bases[1].transpose(0, 2, 1), compute_uv=False)[:, 0]
    distances = sphere_distances(a, b, np.arange(20), np.arange(20))
    assert np.allclose(distances, np.sqrt(2 - 2 * cosine), atol=1e-4)
    origin = Points(np.zeros((1, 12), np.float32))
    assert np.allclose(sphere_distances(origin, b, np.zeros(20, np.int64), np.arange(20)), 1, atol=1e-6)


def test_distances_to_the_sphere() -> None:
    points = Points(np.array([[3.0, 4.0], [0.6, 0.8], [0, 0.5]], np.float32))
    assert np.allclose(distances_to_sphere(points), [4, 0, 0.5], atol=1e-6)
    assert np.allclose(distances_to_sphere(points, 5), [0, 4, 4.5], atol=1e-6)
    lines = Subspaces(np.array([[9.0, 1.25], [9.0, 0.9]], np.float32), np.array([[[1, 0]], [[1, 0]]], np.float32))
    assert np.allclose(distances_to_sphere(lines), [0.25, 0], atol=1e-6)


def test_refusals() -> None:
    a, b = both(2, 0, 2, 6)
    one = np.zeros(1, np.int64)
    with pytest.raises(InputError, match="sizes differ"):
        sphere_distances(a, Points(np.zeros((2, 5), np.float32)), one, one)
    for norm in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="norm must be"):
            sphere_distances(a, b, one, one, norm)
    for rows, columns in (([2], [0]), ([0], [-1]), ([0, 1], [0])):
        with pytest.raises(InputError, match="one row and one column"):
            sphere_distances(a, b, np.array(rows), np.array(columns))
