import numpy as np
import pytest

from featveil.core import Features, Flats, InputError, Points, PrivateFeatures, Subspaces
from featveil.core.arrays import Float64
from featveil.databases import builtin
from featveil.defenses import Lifting, Subset, privatize
from featveil.distances import sphere_distances
from featveil.matching import NearestMatcher, match
from featveil.matching import nearest_neighbours as nearest
from reference import random_descriptors, reference_matrix


def expected_pairs(
    distances: np.ndarray,
    mutual: bool,
    ratio: float | None,
    limit: float | None,
) -> list[tuple[int, int]]:
    """The matcher's definition, one row at a time."""
    pairs = []
    for i, row in enumerate(distances):
        j, second = np.argsort(row)[:2]
        if mutual and distances[:, j].argmin() != i:
            continue
        if ratio is not None and not row[j] < ratio * row[second]:
            continue
        if limit is not None and row[j] > limit:
            continue
        pairs.append((i, int(j)))
    return pairs


@pytest.mark.parametrize("prune_from", [1, 10**9])
@pytest.mark.parametrize(("m1", "m2"), [(0, 0), (2, 0), (0, 3), (2, 2), (1, 4)])
@pytest.mark.parametrize(
    ("mutual", "ratio", "limit"),
    [(True, None, None), (False, None, None), (True, 0.97, None), (False, 0.95, 0.9), (True, None, 0.8)],
)
def test_pairs_follow_the_definition(
    m1: int,
    m2: int,
    mutual: bool,
    ratio: float | None,
    limit: float | None,
    prune_from: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nearest, "_PRUNE_FROM", prune_from)
    rng = np.random.default_rng(m1 * 10 + m2)
    a, b = random_descriptors(25, m1, rng, 16), random_descriptors(40, m2, rng, 16)
    distances = reference_matrix(a, b)
    matches = NearestMatcher(mutual, ratio, limit).match(a, b)
    assert matches.indices.tolist() == [list(pair) for pair in expected_pairs(distances, mutual, ratio, limit)]
    assert np.allclose(matches.distances, distances[tuple(matches.indices.T)], atol=1e-5)


def raw(part: slice, kind: str = "sift") -> Features:
    return Features(Points(builtin("sift").points()[part]), kind)


def test_raw_and_private_in_every_combination() -> None:
    lifting = Lifting("random", 2)
    first, second = raw(slice(0, 200)), raw(slice(100, 300))
    sides: list[tuple[Features | PrivateFeatures, Features | PrivateFeatures]] = [
        (first, second),
        (privatize(first, lifting), second),
        (first, privatize(second, lifting)),
        (privatize(first, lifting), privatize(second, lifting)),
    ]
    truth = {(i + 100, i) for i in range(100)}
    for a, b in sides:
        matches = {tuple(pair) for pair in match(a, b).indices.tolist()}
        assert truth <= matches
        strict = match(a, b, max_distance=1e-5)
        assert {tuple(pair) for pair in strict.indices.tolist()} == truth
        assert len(match(a, b, ratio=0.5)) >= 100


def test_nothing_matches_nothing() -> None:
    empty = Features(Points(np.empty((0, 128), np.float32)), "sift")
    assert match(empty, raw(slice(0, 5))).indices.shape == (0, 2)
    assert len(match(raw(slice(0, 5)), empty)) == 0


def test_single_features_match_each_other() -> None:
    assert match(raw(slice(0, 1)), raw(slice(1, 2))).indices.tolist() == [[0, 0]]


def test_refusals() -> None:
    with pytest.raises(InputError, match="cannot match sift with rootsift"):
        match(raw(slice(0, 2)), raw(slice(0, 2), "rootsift"))
    with pytest.raises(InputError, match="expected Features"):
        match(raw(slice(0, 2)).descriptors, raw(slice(0, 2)))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="ratio"):
        match(raw(slice(0, 2)), raw(slice(0, 2)), ratio=1.5)
    with pytest.raises(InputError, match="max_distance"):
        match(raw(slice(0, 2)), raw(slice(0, 2)), max_distance=float("nan"))


def expected_on_sphere(a: Flats, b: Flats, candidates: int) -> Float64:
    """Distances on the sphere of all pairs that are among the nearest few of either side, and infinity for others."""
    plain = reference_matrix(a, b)
    ranked = np.full_like(plain, np.inf)
    for i, row in enumerate(plain):
        for j, distance in enumerate(row):
            if (row < distance).sum() < candidates or (plain[:, j] < distance).sum() < candidates:
                ranked[i, j] = sphere_distances(a, b, np.array([i]), np.array([j]))[0]
    return ranked


@pytest.mark.parametrize("prune_from", [1, 10**9])
@pytest.mark.parametrize("candidates", [2, 5, 100])
@pytest.mark.parametrize(("m1", "m2"), [(0, 3), (2, 2), (1, 4)])
@pytest.mark.parametrize(
    ("mutual", "ratio", "limit"), [(True, None, None), (False, None, None), (False, 0.97, 0.9), (True, 0.99, None)]
)
def test_pairs_on_the_sphere_follow_the_definition(
    m1: int,
    m2: int,
    mutual: bool,
    ratio: float | None,
    limit: float | None,
    candidates: int,
    prune_from: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nearest, "_PRUNE_FROM", prune_from)
    monkeypatch.setattr(nearest, "_RERANKED", candidates)
    rng = np.random.default_rng(m1 * 10 + m2)
    a, b = random_descriptors(15, m1, rng, 10), random_descriptors(22, m2, rng, 10)
    distances = expected_on_sphere(a, b, candidates)
    matches = NearestMatcher(mutual, ratio, limit, on_sphere=True).match(a, b)
    assert matches.indices.tolist() == [list(pair) for pair in expected_pairs(distances, mutual, ratio, limit)]
    assert np.allclose(matches.distances, distances[tuple(matches.indices.T)], atol=1e-5)


def test_the_sphere_tells_more_pairs_of_subspaces_apart() -> None:
    rng = np.random.default_rng(0)
    hidden = builtin("sift").points()[:300]
    other = hidden + rng.normal(0, 0.03, hidden.shape).astype(np.float32)
    other /= np.linalg.norm(other, axis=1, keepdims=True)
    lifting = Lifting("sub-hybrid", 8).for_kind("sift")
    a, b = lifting.privatize(Points(hidden), rng), lifting.privatize(Points(other), rng)

    def right(on_sphere: bool) -> int:
        pairs = NearestMatcher(on_sphere=on_sphere).match(a, b).indices
        return int((pairs[:, 0] == pairs[:, 1]).sum())

    assert right(on_sphere=True) > 2 * right(on_sphere=False) > 20


def test_on_the_sphere_both_directions_agree() -> None:
    lifting = Lifting("random", 4)
    a, b = privatize(raw(slice(0, 150)), lifting), privatize(raw(slice(75, 225)), lifting)
    forth, back = match(a, b, on_sphere=True), match(b, a, on_sphere=True)
    assert len(forth) >= 75
    assert sorted(forth.indices.tolist()) == sorted(pair[::-1] for pair in back.indices.tolist())


def test_few_features_match_on_the_sphere() -> None:
    one, none = raw(slice(0, 1)), Features(Points(np.empty((0, 128), np.float32)), "sift")
    assert match(one, raw(slice(0, 3)), on_sphere=True).indices.tolist() == [[0, 0]]
    assert match(one, privatize(raw(slice(0, 1)), Lifting()), ratio=0.5, on_sphere=True).indices.tolist() == [[0, 0]]
    assert len(match(one, none, on_sphere=True)) == 0


def test_on_sphere_is_refused_where_norms_differ() -> None:
    unit = raw(slice(0, 4)).descriptors
    axes = np.eye(128, dtype=np.float32)
    basis = axes[None, :2].repeat(4, axis=0)
    beyond = Subspaces(unit.values + np.float32(2) * axes[3], basis)
    within = Subspaces(unit.values / np.float32(2), basis)
    for other in (Points(unit.values * 512), Points(unit.values * 0.98), beyond):
        assert len(NearestMatcher().match(unit, other)) > 0
        for pair in ((unit, other), (other, unit)):
            with pytest.raises(InputError, match="norm 1"):
                NearestMatcher(on_sphere=True).match(*pair)
    for fine in (Points(unit.values * 1.005), within):
        assert len(NearestMatcher(on_sphere=True).match(unit, fine)) > 0
    words = privatize(raw(slice(0, 4)), Subset(10.0, 2))
    with pytest.raises(InputError, match="word sets have none"):
        match(words, raw(slice(0, 4)), on_sphere=True)
