"""Where subspaces meet the descriptors: the hidden one is found where it has zeros, and not where it has none."""

import numpy as np
import pytest

from featveil.attacks.discriminator_parts import candidates as module
from featveil.attacks.discriminator_parts.candidates import STEPS, Candidates, Prior, energy, find_candidates
from featveil.core import InputError, Points, Subspaces
from featveil.core.arrays import Float32, Float64
from featveil.databases import builtin
from featveil.defenses import Lifting
from victims import own_database, picture


def hidden(count: int = 60) -> Float32:
    return picture(0, count=400).descriptors.values[:count]


def lift(values: Float32, dimension: int = 4, strategy: str = "sub-hybrid") -> Subspaces:
    lifting = Lifting(strategy, dimension).for_kind("sift")
    return lifting.privatize(Points(values), np.random.default_rng(3))


def usual() -> Prior:
    return Prior.of(own_database().points())


def errors(found: Candidates, values: Float32) -> Float64:
    """The distance (n,) of the nearest candidate from the truth."""
    away = np.linalg.norm(found.values - values[:, None], axis=2)
    return np.asarray(np.where(found.valid, away, np.inf).min(axis=1))


@pytest.mark.parametrize(("dimension", "strategy"), [(2, "sub-hybrid"), (8, "sub-hybrid"), (4, "adversarial")])
def test_the_hidden_descriptor_is_among_them(dimension: int, strategy: str) -> None:
    found = find_candidates(lift(hidden(), dimension, strategy), usual(), np.random.default_rng(0))
    assert (errors(found, hidden()) < 0.1).mean() > 0.9


def test_a_descriptor_without_zeros_is_not() -> None:
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(128, 128)))[0]
    values = (hidden() @ turn).astype(np.float32)
    found = find_candidates(lift(values, 8), usual(), np.random.default_rng(0))
    assert (errors(found, values) < 0.1).mean() < 0.1


def test_candidates_lie_in_the_subspace_and_on_the_sphere() -> None:
    subspaces = lift(hidden(20))
    found = find_candidates(subspaces, usual(), np.random.default_rng(0), starts=15, count=6)
    assert found.values.shape == (20, 6, 128)
    assert np.linalg.norm(found.values, axis=2) == pytest.approx(1, abs=1e-6)
    for i, j in np.argwhere(found.valid):
        away = found.values[i, j] - subspaces.offset[i]
        basis = subspaces.basis[i].astype(np.float64)
        assert np.linalg.norm(away - basis.T @ (basis @ away)) < 1e-5


def test_candidates_are_different_and_sorted() -> None:
    prior = usual()
    found = find_candidates(lift(hidden(20), 8), prior, np.random.default_rng(0), starts=30, count=12)
    energies = energy(found.values, prior)
    assert found.valid[:, 0].all() and found.valid.sum() > 2 * len(found.valid)
    for i in range(20):
        mine = found.values[i][found.valid[i]]
        gaps = np.linalg.norm(mine[:, None] - mine, axis=2) + 9 * np.eye(len(mine))
        assert gaps.min() >= 0.05 - 1e-6
        assert (np.diff(energies[i][found.valid[i]]) >= 0).all()
        assert 0 < found.share[i].sum() <= 1 + 1e-9
        assert ((found.share[i] > 0) == found.valid[i]).all()


def test_shares_count_every_search_when_all_are_kept() -> None:
    found = find_candidates(lift(hidden(10), 4), usual(), np.random.default_rng(0), starts=20, count=20)
    assert found.share.sum(axis=1) == pytest.approx(1)


def slow_search(subspaces: Subspaces, prior: Prior, rng: np.random.Generator, starts: int) -> list[list[Float64]]:
    """The same search for one subspace and start after the other, each step solved with its constraint at once."""
    draws = rng.normal(size=(len(subspaces), starts, subspaces.dimension))
    ends: list[list[Float64]] = []
    for i in range(len(subspaces)):
        offset, basis = subspaces.offset[i].astype(np.float64), subspaces.basis[i].astype(np.float64)
        centre = offset - basis.T @ (basis @ offset)
        radius = np.sqrt(1 - centre @ centre)
        ends.append([])
        for draw in draws[i]:
            place = radius * draw / np.linalg.norm(draw)
            for epsilon in np.geomspace(3e-2, 1e-4, STEPS):
                values = centre + basis.T @ place
                curved = np.diag(1 / (np.maximum(values, 0) ** 2 + epsilon**2))
                system = np.zeros((len(place) + 1, len(place) + 1))
                system[:-1, :-1] = basis @ (curved + 0.1 * prior.precision) @ basis.T
                system[:-1, -1] = system[-1, :-1] = place
                right = -basis @ (curved @ centre + 0.1 * prior.precision @ (centre - prior.mean))
                solved = np.linalg.solve(system, [*right, radius**2])[:-1]
                place = radius * solved / np.linalg.norm(solved)
            ends[-1].append(centre + basis.T @ place)
    return ends


def test_agrees_with_a_plain_search() -> None:
    subspaces, prior = lift(hidden(5), 4), usual()
    found = find_candidates(subspaces, prior, np.random.default_rng(0), starts=8, count=8)
    ends = slow_search(subspaces, prior, np.random.default_rng(0), 8)
    for i in range(5):
        best = min(ends[i], key=lambda value: float(energy(value, prior)))
        assert found.values[i, 0] == pytest.approx(best, abs=1e-5)
        for value in ends[i]:
            assert np.linalg.norm(found.values[i][found.valid[i]] - value, axis=1).min() < 0.051


def test_does_not_depend_on_how_many_are_searched_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    subspaces, prior = lift(hidden(7)), usual()
    whole = find_candidates(subspaces, prior, np.random.default_rng(0), starts=6, count=4)
    monkeypatch.setattr(module, "_NUMBERS", 1)
    single = find_candidates(subspaces, prior, np.random.default_rng(0), starts=6, count=4)
    assert whole.values == pytest.approx(single.values, abs=1e-9)
    assert (whole.valid == single.valid).all()


def test_a_subspace_that_misses_the_sphere_has_its_nearest_point() -> None:
    offset = np.zeros((1, 128), np.float32)
    offset[0, 5] = 2
    found = find_candidates(
        Subspaces(offset, np.eye(128, dtype=np.float32)[None, :3]), usual(), np.random.default_rng(0)
    )
    assert found.valid.sum() == 1
    assert found.values[0, 0] == pytest.approx(offset[0])


def test_more_places_than_searches_stay_empty() -> None:
    found = find_candidates(lift(hidden(3)), usual(), np.random.default_rng(0), starts=2, count=5)
    assert (found.valid.sum(axis=1) <= 2).all() and not found.valid[:, 2:].any()
    assert np.isfinite(found.values).all()


def test_signed_descriptors_have_the_likeliest_point() -> None:
    rng = np.random.default_rng(0)
    spread = np.geomspace(1, 0.01, 16)
    values = rng.normal(size=(500, 16)) * spread
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    prior = Prior.of(values)
    assert prior.signed
    subspaces = Lifting("random", 3).privatize(Points(values[:20].astype(np.float32)), rng)
    found = find_candidates(subspaces, prior, rng, starts=10, count=3)
    assert (energy(found.values[:, 0], prior) <= energy(values[:20].astype(np.float32), prior) + 1e-3).mean() > 0.9


def test_a_prior_needs_descriptors() -> None:
    with pytest.raises(InputError, match="at least one descriptor"):
        Prior.of(np.empty((0, 128)))


def test_a_prior_of_one_descriptor_is_usable() -> None:
    prior = Prior.of(builtin("sift").unit(np.arange(1)))
    found = find_candidates(lift(hidden(3)), prior, np.random.default_rng(0), starts=5)
    assert np.isfinite(found.values).all()
