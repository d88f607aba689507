import math
from typing import Any, get_args

import numpy as np
import pytest

import featveil as fv
from featveil.core import Descriptors, Features, InputError, Points, PrivateFeatures, SecureRandomness, WordSets
from featveil.core.arrays import Integers
from featveil.databases import Database, builtin, nearest_words
from featveil.defenses import Lifting, Subset, privatize
from featveil.matching import NearestMatcher, WordMatcher, match
from featveil.matching.word_sets import WordRule, join

BOOK = builtin("sift")
RNG = np.random.default_rng(0)


def noisy(words: Integers, amount: float = 2.0) -> Points:
    """Descriptors whose nearest words are mostly `words`."""
    values = BOOK.values[words] + RNG.normal(0, amount, (len(words), 128))
    return Points(np.clip(values, 0, None).astype(np.float32))


def sets(words: object) -> WordSets:
    return WordSets(np.asarray(words), BOOK.digest, len(BOOK))


@pytest.mark.parametrize("rule", get_args(WordRule))
def test_a_keypoint_matches_where_one_of_its_words_occurs(rule: WordRule) -> None:
    reference = noisy(np.array([10, 20, 30, 20]))
    matches = WordMatcher(BOOK, rule).match(sets([[5, 20], [10, 30], [40, 50]]), reference)
    pairs = set(map(tuple, matches.indices.tolist()))
    assert {(1, 0), (1, 2)} <= pairs  # two candidates of one keypoint
    assert pairs & {(0, 1), (0, 3)}
    if rule == "vocabulary":
        assert pairs == {(0, 1), (0, 3), (1, 0), (1, 2)}


def test_the_join_finds_what_two_loops_find() -> None:
    first, second = RNG.integers(0, 30, 200), RNG.integers(0, 30, 150)
    expected = [(i, j) for i in range(200) for j in range(150) if first[i] == second[j]]
    assert sorted(zip(*(side.tolist() for side in join(first, second)), strict=True)) == expected


def test_vocabulary_candidates_are_those_of_two_loops() -> None:
    reference = noisy(RNG.integers(0, 60, 80))
    words = np.sort(np.stack([RNG.choice(60, 4, replace=False) for _ in range(50)]), axis=1)
    own, distances = nearest_words(reference, BOOK)
    matches = WordMatcher(BOOK).match(sets(words), reference)
    expected = [(i, j) for i in range(50) for j in range(80) if own[j] in words[i]]
    assert list(map(tuple, matches.indices.tolist())) == expected
    assert matches.distances == pytest.approx(distances[matches.indices[:, 1]], abs=1e-6)


def test_two_private_sides_match_where_they_share_a_word() -> None:
    matches = WordMatcher(BOOK).match(sets([[1, 2], [3, 4]]), sets([[2, 3], [8, 9], [1, 2]]))
    assert matches.indices.tolist() == [[0, 0], [0, 2], [1, 0]]  # (0, 2) shares two words and is listed once
    assert (matches.distances == 0).all()


def test_nearest_words_match_as_descriptors_do() -> None:
    """With one word a keypoint and no word twice, the rule is mutual nearest neighbours of the words."""
    words = RNG.choice(len(BOOK), 120, replace=False)
    reference = noisy(RNG.choice(len(BOOK), 150, replace=False), 10)
    matches = WordMatcher(BOOK, "nearest").match(sets(words[:, None]), reference)
    unit = Points(reference.values / np.linalg.norm(reference.values, axis=1, keepdims=True))
    expected = NearestMatcher().match(Points(BOOK.unit(words)), unit)
    assert matches.indices.tolist() == expected.indices.tolist()
    assert matches.distances == pytest.approx(expected.distances, abs=1e-6)


def test_keypoints_that_share_a_word_share_its_match() -> None:
    matches = WordMatcher(BOOK, "nearest").match(sets([[7], [7], [9]]), noisy(np.array([7])))
    assert matches.indices.tolist() == [[0, 0], [1, 0]]


@pytest.mark.parametrize("rule", get_args(WordRule))
@pytest.mark.parametrize("private_first", [True, False])
def test_no_features(rule: WordRule, private_first: bool) -> None:
    sides: list[Descriptors] = [sets(np.empty((0, 2), np.int64)), noisy(np.array([1, 2]))]
    a, b = sides if private_first else sides[::-1]
    assert len(WordMatcher(BOOK, rule).match(a, b)) == 0


def test_quantised_features_find_themselves_through_the_public_function() -> None:
    raw = Features(noisy(RNG.choice(len(BOOK), 300, replace=False)), "sift")
    matches = match(privatize(raw, Subset(math.inf, 3)), raw)
    assert {(i, i) for i in range(300)} <= set(map(tuple, matches.indices.tolist()))


def private(words: WordSets, kind: str = "sift") -> PrivateFeatures:
    return PrivateFeatures(words, kind, {"name": "subset"}, fv.Guarantee("local-dp", 10.0))


def test_codebooks_must_agree() -> None:
    raw = Features(noisy(np.array([1, 2])), "sift")
    other = Database(BOOK.values[:64], "sift", 1)
    here, there = private(sets([[1, 2]])), private(WordSets(np.array([[1, 2]]), other.digest, 64))
    with pytest.raises(InputError, match="different codebooks"):
        match(here, there)
    with pytest.raises(InputError, match="not the built-in one"):
        match(there, raw)
    with pytest.raises(InputError, match="use the same file"):
        match(here, raw, codebook=other)
    with pytest.raises(InputError, match="both sides need the same codebook"):
        WordMatcher(other).match(here.descriptors, raw.descriptors)
    assert len(match(there, raw, codebook=other)) == 2


def test_what_has_no_meaning_for_words_is_refused() -> None:
    raw = Features(noisy(np.array([1, 2])), "sift")
    words = private(sets([[1, 2]]))
    refused: tuple[dict[str, Any], ...] = ({"mutual": False}, {"ratio": 0.8}, {"max_distance": 1.0})
    for tests in refused:
        with pytest.raises(InputError, match="geometrically"):
            match(words, raw, **tests)
    with pytest.raises(InputError, match="unknown rule"):
        match(words, raw, rule="bogus")  # type: ignore[arg-type]
    lifted = Lifting("random", 2).privatize(raw.descriptors, SecureRandomness())
    with pytest.raises(InputError, match="not with subspaces"):
        WordMatcher(BOOK).match(words.descriptors, lifted)
    with pytest.raises(InputError, match="no distances by themselves"):
        fv.distances.matrix(words.descriptors, raw.descriptors)


def test_a_set_that_lies_about_its_codebook_is_refused() -> None:
    liar = WordSets(np.array([[1, 18_000]]), BOOK.digest, 2**31)
    for rule in get_args(WordRule):
        with pytest.raises(InputError, match="claim a codebook of 2147483648 words, it has 16384"):
            WordMatcher(BOOK, rule).match(liar, noisy(np.array([1])))


@pytest.mark.parametrize("rule", get_args(WordRule))
def test_a_file_of_equal_words_does_not_fill_the_memory(rule: WordRule) -> None:
    bomb = sets(np.tile([[1, 2, 3, 4]], (60_000, 1)))
    with pytest.raises(InputError, match="more than 4194304 candidates"):
        WordMatcher(BOOK, rule).match(bomb, bomb)


def test_mistakes_with_codebooks_and_rules_are_named() -> None:
    raw = Features(noisy(np.array([1, 2])), "sift")
    with pytest.raises(InputError, match="neither side has any"):
        match(raw, raw, codebook=BOOK)
    with pytest.raises(InputError, match="unknown rule"):
        match(raw, raw, rule="foo")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="must be a Database"):
        match(private(sets([[1, 2]])), raw, codebook="book.safetensors")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="must be a Database"):
        WordMatcher(None)  # type: ignore[arg-type]
