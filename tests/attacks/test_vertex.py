"""The vertex attack finds descriptors by their zeros and clipped entries, and nothing where these are gone."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from featveil.attacks import Knowledge, attack
from featveil.attacks.lattice_parts.precision import HALF, SINGLE
from featveil.attacks.subspaces import central
from featveil.attacks.vertex import Polytope, Vertex, _Best, _step
from featveil.core import Features, InputError, Points, PrivateFeatures, Subspaces
from featveil.core.arrays import Float64
from featveil.defenses import Lifting, privatize
from featveil.extractors import extract, read_image
from featveil.metrics import align
from featveil.metrics.leakage import EXACT, guess_distances
from victims import lifted, picture, truth_of


def some(strategy: str, dimension: int, count: int, kind: str = "sift") -> PrivateFeatures:
    return lifted(strategy, dimension, kind=kind).take(np.linspace(0, 399, count).astype(np.int64))


def lift(values: Float64) -> tuple[Points, PrivateFeatures]:
    """`values` scaled to norm 1, and a release of them without confounders, which may be corners themselves."""
    points = Points((values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32))
    return points, privatize(Features(points, "sift"), Lifting("random", 4), rng=np.random.default_rng(0))


def test_a_walker_astray_does_not_stop_the_others() -> None:
    """Of two walkers on a tetrahedron one has a side twice, where no corner is."""
    normals = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [-1, -1, -1]])
    polytope = Polytope(normals, np.array([0.0, 0, 0, 1]), 0.0, 1e-6)
    sound, astray = np.array([[0, 1, 2]]), np.array([[0, 1, 2], [0, 0, 1]])
    weights = np.array([[1.0, 1, 1, 3]])
    moved = [
        _step(polytope, walkers, np.repeat(weights, len(walkers), axis=0), _Best(polytope))
        for walkers in (sound, astray)
    ]
    assert moved == [True, True]
    assert (sound[0] == astray[0]).all() and (sound[0] != [0, 1, 2]).any()


@pytest.mark.parametrize("kind", ["sift", "rootsift"])
@pytest.mark.parametrize("strategy", ["random", "sub-hybrid", "adversarial"])
@pytest.mark.parametrize(("dimension", "least"), [(2, 0.9), (4, 0.9), (8, 0.75)])
def test_recovers_descriptors_exactly(kind: str, strategy: str, dimension: int, least: float) -> None:
    private = some(strategy, dimension, 16, kind)
    truth = truth_of(private).truth
    assert truth is not None
    guess = attack(private, Vertex(), Knowledge(), np.random.default_rng(0))
    right = guess_distances(guess.values, truth) < EXACT
    assert right.mean() >= least
    assert right[guess.answered].mean() >= 0.9, "what stands out is mostly the descriptor"


def test_clipped_entries_do_where_there_are_no_zeros() -> None:
    """Zeros lifted off the ground one by one: what is left are the entries cut to the same largest value."""
    rng = np.random.default_rng(0)
    values = rng.uniform(0.1, 1, (12, 128))
    values[:, rng.permutation(128)[:9]] = 1.0
    truth, private = lift(values)
    guess = attack(private, Vertex(), Knowledge(), np.random.default_rng(0))
    assert (guess_distances(guess.values, truth) < EXACT).all()


def test_finds_nothing_without_zeros_and_clipped_entries() -> None:
    values = picture().descriptors.values[:12].astype(np.float64)
    truth, private = lift(values + np.random.default_rng(0).uniform(1e-3, 2e-2, values.shape))
    guess = attack(private, Vertex(precision=SINGLE), Knowledge(), np.random.default_rng(0))
    assert not guess.answered.any()
    assert (guess_distances(guess.values, truth) > EXACT).all()
    assert isinstance(private.descriptors, Subspaces)
    np.testing.assert_allclose(guess.values, central(private.descriptors, "sift"), atol=1e-6)


def test_finds_nothing_where_entries_may_be_negative() -> None:
    """The same descriptors in turned axes keep all their distances, but neither zeros nor signs."""
    turned = np.linalg.qr(np.random.default_rng(0).standard_normal((128, 128))).Q
    _, private = lift(picture().descriptors.values[:8] @ turned)
    assert not attack(private, Vertex(rounds=1), Knowledge(), np.random.default_rng(0)).answered.any()


def test_recovers_descriptors_from_half_precision() -> None:
    private = some("sub-hybrid", 4, 8, "rootsift")
    truth = truth_of(private).truth
    assert isinstance(private.descriptors, Subspaces) and truth is not None
    basis = private.descriptors.basis.astype(np.float16).astype(np.float64)
    rows = np.linalg.qr(basis.transpose(0, 2, 1)).Q.transpose(0, 2, 1).astype(np.float32)
    coarse = replace(private, descriptors=Subspaces(private.descriptors.offset.astype(np.float16), rows))
    right = [
        (guess_distances(attack(coarse, method, Knowledge(), np.random.default_rng(0)).values, truth) < EXACT).mean()
        for method in (Vertex(rounds=2, precision=SINGLE), Vertex(rounds=4, precision=HALF), Vertex(rounds=4))
    ]
    assert right[0] < 0.5 and min(right[1:]) >= 0.75


def test_takes_the_corner_that_trying_all_finds() -> None:
    """Small polytopes: every corner by brute force; of those of norm 1 the one with the most sides."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        values = rng.uniform(0.1, 1, 10)
        values[rng.permutation(10)[:6]] = 0
        values /= np.linalg.norm(values)
        basis = np.linalg.qr(rng.standard_normal((10, 3))).Q.T
        offset = (values + rng.standard_normal(3) @ basis).astype(np.float32)
        subspaces = Subspaces(offset[None], basis[None].astype(np.float32))
        private = replace(lifted().take(np.array([0])), descriptors=subspaces, keypoints=None)
        guess = attack(private, Vertex(), Knowledge(), rng)
        polytope = Polytope.of(subspaces.offset[0].astype(np.float64), subspaces.basis[0].astype(np.float64), SINGLE)
        assert guess.answered.all()
        np.testing.assert_allclose(guess.values[0], sharpest(polytope), atol=1e-4)


def sharpest(polytope: Polytope) -> Float64:
    """The corner of norm 1 with the most sides, of all that any four sides make."""
    every = np.array(list(combinations(range(20), 4)))
    every = every[np.abs(np.linalg.det(polytope.normals[every])) > 1e-9]
    points = np.linalg.solve(polytope.normals[every], -polytope.levels[every][..., None])[..., 0]
    distances = polytope.levels + points @ polytope.normals.T
    inside = (distances.min(axis=1) > -1e-5) & (np.abs(np.linalg.norm(distances[:, :10], axis=1) - 1) < 1e-5)
    return np.asarray(distances[inside][(distances[inside] < 1e-5).sum(axis=1).argmax(), :10])


def test_an_empty_polytope_has_no_corner() -> None:
    assert Polytope.of(np.full(5, -1.0), np.eye(5)[:2], SINGLE).corner() is None
    assert Polytope.of(np.full(5, 0.5), np.eye(5)[:2], SINGLE).corner() is not None


@pytest.mark.parametrize(("d", "m"), [(3, 2), (7, 6), (5, 1)])
def test_odd_sizes(d: int, m: int) -> None:
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((4, d, m))).Q.transpose(0, 2, 1).astype(np.float32)
    subspaces = Subspaces(rng.uniform(0, 1, (4, d)).astype(np.float32), basis)
    private = replace(lifted().take(np.arange(4)), descriptors=subspaces, keypoints=None)
    assert attack(private, Vertex(), Knowledge(), rng).values.shape == (4, d)


@pytest.mark.parametrize("wrong", [{"walkers": 0}, {"rounds": 1.5}, {"precision": 0.0}, {"precision": 0.1}])
def test_parameters_must_make_sense(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Vertex(**wrong)  # type: ignore[arg-type]


def test_recovers_rootsift_of_a_photograph(real_data: Path) -> None:
    photograph = next(iter(sorted((real_data / "photos" / "urban100").iterdir())))
    raw = extract(read_image(photograph), "rootsift", 500)
    private = privatize(raw, Lifting("sub-hybrid", 4), rng=np.random.default_rng(0)).take(np.arange(0, 500, 25))
    guess = attack(private, Vertex(), Knowledge(), np.random.default_rng(0))
    assert (guess_distances(guess.values, align(private, raw).points) < EXACT).mean() >= 0.7
