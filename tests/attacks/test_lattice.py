"""The lattice attack recovers plain SIFT exactly, and nothing that is not made of whole numbers."""

import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from featveil.attacks import Guess, Knowledge, attack
from featveil.attacks.lattice import Lattice
from featveil.attacks.lattice_parts.integers import Span, integer_vectors, small_combinations
from featveil.attacks.lattice_parts.precision import HALF, SINGLE
from featveil.attacks.subspaces import project
from featveil.core import Features, InputError, MissingExtraError, Points, PrivateFeatures, Subspaces
from featveil.databases import Database, builtin
from featveil.defenses import Lifting, privatize
from featveil.extractors import extract, read_image
from featveil.metrics import align
from featveil.metrics.leakage import EXACT, guess_distances
from victims import lifted, picture, truth_of


def some(strategy: str, dimension: int, count: int, kind: str = "sift") -> PrivateFeatures:
    """`count` of the features of a release of picture 0, spread over it."""
    return lifted(strategy, dimension, kind=kind).take(np.linspace(0, 399, count).astype(np.int64))


def exact(guess: Guess, private: PrivateFeatures) -> NDArray[np.bool_]:
    truth = truth_of(private).truth
    assert truth is not None
    return np.asarray(guess_distances(guess.values, truth) < EXACT)


def at_half_precision(private: PrivateFeatures) -> PrivateFeatures:
    """The release as it comes from a float16 file, with rows made orthonormal again."""
    assert isinstance(private.descriptors, Subspaces)
    offset = private.descriptors.offset.astype(np.float16).astype(np.float64)
    basis = private.descriptors.basis.astype(np.float16).astype(np.float64)
    rows = np.linalg.qr(basis.transpose(0, 2, 1)).Q.transpose(0, 2, 1)
    return replace(private, descriptors=Subspaces(offset.astype(np.float32), rows.astype(np.float32)))


@pytest.mark.parametrize("strategy", ["random", "sub-hybrid", "sub-adversarial", "adversarial"])
@pytest.mark.parametrize(("dimension", "count"), [(2, 24), (4, 24), (8, 16), (16, 4)])
def test_recovers_sift_exactly(strategy: str, dimension: int, count: int) -> None:
    private = some(strategy, dimension, count)
    guess = attack(private, Lattice(), Knowledge(lifting_database=builtin()), np.random.default_rng(0))
    assert guess.answered.all()
    assert exact(guess, private).all()
    assert guess.note == ""


def test_recovers_sift_without_the_lifting_database() -> None:
    private = some("sub-hybrid", 4, 40)
    guess = attack(private, Lattice(), Knowledge(), np.random.default_rng(0))
    assert exact(guess, private).mean() >= 0.95


@pytest.mark.parametrize("precision", [None, HALF])
def test_recovers_sift_from_half_precision(precision: float | None) -> None:
    private = some("sub-hybrid", 4, 20)
    guess = attack(at_half_precision(private), Lattice(precision), Knowledge(), np.random.default_rng(0))
    assert exact(guess, private).mean() >= 0.9


def test_half_precision_is_not_found_where_single_is_asked_for() -> None:
    private = at_half_precision(some("sub-hybrid", 4, 6))
    assert not attack(private, Lattice(SINGLE), Knowledge(), np.random.default_rng(0)).answered.any()


@pytest.mark.parametrize("strategy", ["random", "sub-hybrid"])
def test_finds_nothing_in_rootsift(strategy: str) -> None:
    private = some(strategy, 4, 20, "rootsift")
    guess = attack(private, Lattice(), Knowledge(), np.random.default_rng(0))
    assert not guess.answered.any()
    assert "no integer vectors" in guess.note
    truth = truth_of(private).truth
    assert truth is not None
    assert guess_distances(guess.values, truth).max() < 1.5, "the fallback is a point of the subspace near the mean"


def test_finds_nothing_once_the_numbers_are_not_whole() -> None:
    """The same descriptors, each entry moved by up to 0.4 of a unit: no longer integers at any scale."""
    raw = picture()
    values = raw.descriptors.values[:8].astype(np.float64)
    values += np.random.default_rng(3).uniform(0, 0.4 / 512, values.shape)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    features = Features(Points(values.astype(np.float32)), "sift")
    private = privatize(features, Lifting("sub-adversarial", 4), rng=np.random.default_rng(0))
    guess = attack(private, Lattice(), Knowledge(lifting_database=builtin()), np.random.default_rng(0))
    assert not guess.answered.any(), "only confounders are whole, and those are known"
    blind = attack(private, Lattice(), Knowledge(), np.random.default_rng(0))
    assert blind.answered.all()
    assert (guess_distances(blind.values, features.descriptors) > EXACT).all()


def test_the_lifting_database_tells_confounders_apart() -> None:
    """Secrets that are averages themselves: by looks nothing tells them from the confounders, by the database all."""
    entries = builtin().values
    database = Database.from_array(entries[:8000], "sift", 16, rng=np.random.default_rng(0))
    secrets = entries[-40:].astype(np.float64)
    secrets /= np.linalg.norm(secrets, axis=1, keepdims=True)
    features = Features(Points(secrets.astype(np.float32)), "sift")
    private = privatize(features, Lifting("adversarial", 4, database=database), rng=np.random.default_rng(1))
    blind = attack(private, Lattice(), Knowledge(), np.random.default_rng(0))
    knowing = attack(private, Lattice(), Knowledge(lifting_database=database), np.random.default_rng(0))
    assert (guess_distances(blind.values, features.descriptors) < EXACT).mean() < 0.6
    assert (guess_distances(knowing.values, features.descriptors) < EXACT).all()


def test_unanswered_features_get_the_projected_mean() -> None:
    subspaces = Subspaces(np.zeros((1, 128), np.float32), np.eye(128, dtype=np.float32)[None, :3])
    private = replace(lifted().take(np.array([0])), descriptors=subspaces, keypoints=None)
    guess = attack(private, Lattice(), Knowledge(), np.random.default_rng(0))
    mean = builtin().points().mean(axis=0, dtype=np.float64)[None]
    assert not guess.answered.any()
    np.testing.assert_allclose(guess.values, project(mean, subspaces), atol=1e-6)


@pytest.mark.parametrize(("d", "m"), [(7, 6), (7, 3), (2, 1), (300, 2)])
def test_odd_sizes_are_not_answered(d: int, m: int) -> None:
    rng = np.random.default_rng(d)
    basis = np.linalg.qr(rng.standard_normal((3, d, m))).Q.transpose(0, 2, 1).astype(np.float32)
    subspaces = Subspaces(rng.standard_normal((3, d)).astype(np.float32), basis)
    private = replace(lifted().take(np.arange(3)), descriptors=subspaces, keypoints=None)
    assert not attack(private, Lattice(SINGLE), Knowledge(), rng).answered.any()


def test_integer_vectors_are_those_that_trying_all_finds() -> None:
    """Every integer vector of a plane with entries up to 3 is a whole combination of those found, and no other is."""
    tried = np.array(list(product(range(-3, 4), repeat=6)), np.float64)
    rng = np.random.default_rng(0)
    for _ in range(10):
        first, second = rng.integers(0, 4, (2, 6)).astype(np.float64)
        span = Span.of(first, (second / np.linalg.norm(second))[None], SINGLE)
        assert span is not None
        found = integer_vectors(span, np.eye(6))
        away = np.linalg.norm(tried - tried @ span.rows.T @ span.rows, axis=1)
        there = tried[(away < 1e-9) & tried.any(axis=1)]
        assert len(there) and len(found) == 2
        parts = there @ np.linalg.pinv(found)
        np.testing.assert_allclose(parts, np.rint(parts), atol=1e-6)
        np.testing.assert_allclose(parts @ found, there, atol=1e-6)


@pytest.mark.parametrize("half", [False, True])
def test_the_noise_is_what_is_expected(half: bool) -> None:
    whole = some("sub-hybrid", 8, 40)
    truth = truth_of(whole).truth
    private = at_half_precision(whole) if half else whole
    assert isinstance(private.descriptors, Subspaces) and truth is not None
    ratios = []
    for offset, basis, value in zip(
        private.descriptors.offset.astype(np.float64),
        private.descriptors.basis.astype(np.float64),
        truth.values.astype(np.float64),
        strict=True,
    ):
        span = Span.of(offset, basis, HALF if half else SINGLE)
        assert span is not None
        away = 512 * value - 512 * value @ span.rows.T @ span.rows
        ratios.append(np.sqrt(np.mean(away**2)) / span.noise(512 * value[None])[0])
        assert span.usual_noise == pytest.approx(span.noise(512 * value[None])[0], rel=0.5)
    assert min(ratios) > 0.5 and max(ratios) < 1.3


def test_small_combinations_leave_none_out() -> None:
    rows = {tuple(row) for row in small_combinations(4)}
    every = {row for row in product((-1, 0, 1), repeat=4) if 1 <= np.count_nonzero(row) <= 3}
    assert not any(tuple(-value for value in row) in rows for row in rows)
    assert {*rows, *(tuple(-value for value in row) for row in rows)} == every


def test_says_which_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flint", None)
    with pytest.raises(MissingExtraError, match=r"python-flint.*featveil\[attacks\]"):
        attack(lifted(), Lattice(), Knowledge())


@pytest.mark.parametrize("precision", [0.0, -1.0, 1e-9, 0.5, float("nan")])
def test_precision_must_make_sense(precision: float) -> None:
    with pytest.raises(InputError, match="precision"):
        Lattice(precision)


def test_recovers_sift_of_a_photograph(real_data: Path) -> None:
    photograph = next(iter(sorted((real_data / "photos" / "urban100").iterdir())))
    raw = extract(read_image(photograph), "sift", 500)
    private = privatize(raw, Lifting("sub-hybrid", 4), rng=np.random.default_rng(0)).take(np.arange(0, 500, 20))
    guess = attack(private, Lattice(), Knowledge(), np.random.default_rng(0))
    assert (guess_distances(guess.values, align(private, raw).points) < EXACT).mean() >= 0.9
