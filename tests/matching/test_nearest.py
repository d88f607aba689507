import numpy as np
import pytest

from featveil.core import Features, InputError, Points, PrivateFeatures
from featveil.databases import builtin
from featveil.defenses import Lifting, privatize
from featveil.matching import NearestMatcher, match, nearest
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
    found = NearestMatcher(mutual, ratio, limit).match(a, b)
    assert found.indices.tolist() == [list(pair) for pair in expected_pairs(distances, mutual, ratio, limit)]
    assert np.allclose(found.distances, distances[tuple(found.indices.T)], atol=1e-5)


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
        found = {tuple(pair) for pair in match(a, b).indices.tolist()}
        assert truth <= found
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
