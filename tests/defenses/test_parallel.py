"""Parallel lifting: the same directions through another point, and nothing of where in it the point lies."""

import math

import numpy as np
import pytest

from face_sets import unit
from featveil.core import InputError, Points, SecureRandomness, Subspaces
from featveil.core.arrays import Float64
from featveil.defenses import Lifting
from featveil.defenses.parallel import parallel
from featveil.distances import pair_distances

N, M, D = 6, 5, 32
EACH = np.arange(N)


def points(seed: int, n: int = N, d: int = D) -> Points:
    return Points(unit(np.random.default_rng(seed).standard_normal((n, d))))


def lifted(seed: int = 0, m: int = M) -> Subspaces:
    return Lifting("random", m).privatize(points(seed), np.random.default_rng(seed))


def distances(a: Points | Subspaces, b: Points | Subspaces) -> Float64:
    return pair_distances(a, b, EACH, EACH)


def angles(a: Subspaces, b: Subspaces) -> Float64:
    """The principal angles (n, m) between the directions of both, in radians."""
    outside = a.basis.astype(np.float64)
    others = b.basis.astype(np.float64)
    outside = outside - (outside @ others.transpose(0, 2, 1)) @ others
    return np.asarray(np.arcsin(np.linalg.svd(outside, compute_uv=False).clip(0, 1)))


@pytest.mark.parametrize("m", [1, 2, 5, 31])
@pytest.mark.parametrize("spread", [0.0, 0.1])
def test_the_point_lies_in_its_subspace(m: int, spread: float) -> None:
    first = Lifting("random", m, allow_line=True).privatize(points(0), np.random.default_rng(0))
    made = parallel(points(1), first, np.random.default_rng(1), spread)
    assert (len(made), made.dimension, made.size) == (N, m, D)
    assert distances(points(1), made).max() < 1e-6
    if m < 31:  # where almost everything lies in every subspace
        assert distances(points(2), made).min() > 0.1


def test_without_spread_directions_stay_exactly() -> None:
    assert angles(parallel(points(1), lifted(), np.random.default_rng(1)), lifted()).max() < 1e-6
    assert angles(lifted(3), lifted()).min(axis=1).max() > 0.1  # those of another lift do not


def test_distances_from_the_first_are_those_of_the_points() -> None:
    first = lifted()
    made = parallel(points(1), first, np.random.default_rng(1))
    wanted = distances(points(1), first)
    assert np.abs(distances(made, first) - wanted).max() < 1e-6
    others = Lifting("random", M).privatize(points(1), np.random.default_rng(1))
    assert (distances(others, first) < wanted - 0.05).all()  # which subspaces in all directions come nearer than


def test_parallel_ones_never_meet() -> None:
    """However many logins there are: all of them are as far apart as their points are across the directions."""
    first = lifted()
    made = [parallel(points(seed), first, np.random.default_rng(seed)) for seed in (1, 2)]
    assert np.abs(distances(*made) - distances(points(1), made[1])).max() < 1e-6


@pytest.mark.parametrize("spread", [0.01, 0.03, 0.1])
def test_spread_turns_directions_by_about_that_angle(spread: float) -> None:
    turned = angles(parallel(points(1), lifted(), np.random.default_rng(1), spread), lifted())
    # Each direction is moved by `spread`, of which the share outside all m of them counts: sqrt(1 - m / d).
    usual = np.sqrt((turned**2).mean())
    assert usual == pytest.approx(spread * math.sqrt(1 - M / D), rel=0.1)
    assert turned.min() > 0 and turned.max() < 3 * spread


def test_offset_and_basis_are_drawn_anew() -> None:
    first = lifted()
    rng = np.random.default_rng(1)
    made = [parallel(points(1), first, rng) for _ in range(2)]
    for others in (made[1], first):
        assert np.abs(made[0].offset - others.offset).max(axis=1).min() > 0.01
        assert np.abs(made[0].basis - others.basis).max(axis=(1, 2)).min() > 0.01
    assert np.abs(made[0].offset - points(1).values).max(axis=1).min() > 0.01


def test_where_the_offset_lies_says_nothing_of_the_point() -> None:
    """Points that differ only along the directions give the same offsets and bases from the same draws."""
    first = lifted()
    moved = Points(points(1).values + first.basis.sum(axis=1) / 3)
    one, other = (parallel(each, first, np.random.default_rng(5)) for each in (points(1), moved))
    assert np.abs(one.offset - other.offset).max() < 1e-5 and np.abs(one.basis - other.basis).max() < 1e-5
    across = Points(points(1).values + 0.3 * points(7).values)
    assert np.abs(parallel(across, first, np.random.default_rng(5)).offset - one.offset).max() > 0.01


def test_the_basis_is_orthonormal_and_draws_may_be_the_systems() -> None:
    for spread in (0.0, 1.0):
        assert parallel(points(1), lifted(), SecureRandomness(), spread).looseness < 1e-6
    one, other = (parallel(points(1), lifted(), SecureRandomness()) for _ in range(2))
    assert (one.offset != other.offset).any()


def test_each_row_has_the_directions_of_its_own() -> None:
    first = lifted()
    turned = parallel(points(1), first.take(EACH[::-1]), np.random.default_rng(1))
    assert angles(turned.take(EACH[::-1]), first).max() < 1e-6
    assert angles(turned, first).max(axis=1).min() > 0.1


def test_no_points() -> None:
    none = parallel(points(1).take(EACH[:0]), lifted().take(EACH[:0]), np.random.default_rng(1), 0.1)
    assert (len(none), none.dimension, none.size) == (0, M, D)


def test_what_does_not_fit_is_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match="5 descriptors of size 32 cannot be lifted along 6 subspaces of size 32"):
        parallel(points(1, n=5), lifted(), rng)
    with pytest.raises(InputError, match="6 descriptors of size 16 cannot be lifted along 6 subspaces of size 32"):
        parallel(points(1, d=16), lifted(), rng)
    for spread in (-0.1, 1.1, math.nan, math.inf):
        with pytest.raises(InputError, match="spread must be between 0 and 1, got"):
            parallel(points(1), lifted(), rng, spread)
