"""Many pairs: the matches of each, and how often an image is read."""

import weakref
from collections import Counter
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest

from featveil.core import Features, InputError, Points, PrivateFeatures
from featveil.databases import builtin
from featveil.defenses import Lifting, Subset, privatize
from featveil.matching import match, match_pairs

N = 30


def raw(seed: int, kind: str = "sift") -> Features:
    rng = np.random.default_rng(seed)
    values = builtin("sift").points()[rng.permutation(2 * N)[:N]] + 0.01 * rng.normal(size=(N, 128))
    return Features(Points((values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)), kind)


RAW = {name: raw(seed) for seed, name in enumerate("abcd")}
BYTES = N * 128 * 4  # of an image's descriptors


class Reader:
    """Reads like a file, and remembers what."""

    def __init__(self, features: Any) -> None:
        self.features, self.names = features, list[str]()

    def __call__(self, name: str) -> Features | PrivateFeatures:
        self.names.append(name)
        own: Features | PrivateFeatures = self.features[name].take(np.arange(N))
        return own


@pytest.mark.parametrize(
    ("defense", "options"),
    [
        (None, {}),
        (None, {"ratio": 0.8, "mutual": False}),
        (Lifting("sub-hybrid", 2), {"max_distance": 0.5}),
        (Lifting("sub-hybrid", 2), {"on_sphere": True}),
        (Subset(10.0), {"rule": "nearest"}),
    ],
)
def test_every_pair_has_the_matches_of_match(defense: Any, options: dict[str, Any]) -> None:
    query = RAW if defense is None else {name: privatize(features, defense) for name, features in RAW.items()}
    pairs = list(permutations(RAW, 2))
    paired = list(match_pairs(pairs, query.__getitem__, RAW.__getitem__, **options))
    assert [pair for pair, _ in paired] == pairs
    assert sum(len(matches) for _, matches in paired) > len(pairs)
    for (first, second), matches in paired:
        expected = match(query[first], RAW[second], **options)
        assert np.array_equal(matches.indices, expected.indices)
        assert np.array_equal(matches.distances, expected.distances)


def test_an_image_is_read_once() -> None:
    reader = Reader(RAW)
    pairs = [*permutations(RAW, 2), ("a", "b"), ("c", "c")]
    assert len(list(match_pairs(pairs, reader, reader))) == len(pairs)
    assert Counter(reader.names) == dict.fromkeys(RAW, 1)


def test_two_sources_of_one_name_are_not_confused() -> None:
    """Each is read once, and the images of the second are others."""
    first, second = Reader(RAW), Reader({name: raw(seed + 9) for seed, name in enumerate(RAW)})
    for (one, two), matches in match_pairs(permutations(RAW, 2), first, second):
        assert np.array_equal(matches.indices, match(RAW[one], second.features[two]).indices)
    assert Counter(first.names) == Counter(second.names) == dict.fromkeys(RAW, 1)


@pytest.mark.parametrize("room", [0, 1, 2, 3, 4])
def test_a_limit_drops_what_was_not_used_for_longest(room: int) -> None:
    """Compared with a plain list of names, of which one always stays."""
    reader, kept, expected = Reader(RAW), list[str](), list[str]()
    pairs = [*combinations(RAW, 2), ("a", "d"), ("b", "b"), ("c", "a")]
    for name in (name for pair in pairs for name in pair):
        if name in kept:
            kept.remove(name)
        else:
            expected.append(name)
        kept = [*kept, name][-max(1, room) :]
    paired = list(match_pairs(pairs, reader, reader, most_bytes=room * BYTES))
    assert reader.names == expected
    for (first, second), matches in paired:
        assert np.array_equal(matches.indices, match(RAW[first], RAW[second]).indices)


@pytest.mark.parametrize("defense", [None, Lifting("sub-hybrid", 2), Subset(10.0)])
def test_what_was_dropped_is_out_of_memory(defense: Any) -> None:
    features = RAW if defense is None else {name: privatize(each, defense) for name, each in RAW.items()}
    alive: list[weakref.ref[Any]] = []

    def read(name: str) -> Features | PrivateFeatures:
        own = features[name].take(np.arange(N))
        alive.append(weakref.ref(own))
        return own

    run = match_pairs(combinations(RAW, 2), read, read, most_bytes=1)
    for _ in run:
        assert sum(each() is not None for each in alive) <= 1
    assert len(alive) > len(RAW)


def test_nothing_is_read_before_it_is_asked_for() -> None:
    reader = Reader(RAW)
    run = match_pairs(iter([("a", "b"), ("c", "d")]), reader, reader)
    assert reader.names == []
    assert next(run)[0] == ("a", "b")
    assert reader.names == ["a", "b"]


def test_errors_are_those_of_match_and_of_the_reader() -> None:
    features = RAW | {"other": raw(5, "rootsift")}
    run = match_pairs([("a", "b"), ("a", "other")], features.__getitem__, features.__getitem__)
    next(run)
    with pytest.raises(InputError, match="cannot match sift with rootsift"):
        next(run)
    with pytest.raises(KeyError):
        next(match_pairs([("a", "missing")], features.__getitem__, features.__getitem__))
