"""Word sets (Pittaluga and Zhuang 2023, sections 5.2 and 6.2): every keypoint brings several candidate matches.

Most candidates are wrong by design: they are the words among which the right one hides. Geometric verification, a
homography or a camera pose found by RANSAC, keeps those that agree with each other.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from featveil.core import Descriptors, InputError, Matches, Points, WordSets
from featveil.core.arrays import Float64, Integers
from featveil.databases import Database, nearest_words, word_points
from featveil.databases.codebooks import check_codebook
from featveil.matching.nearest_neighbours import NearestMatcher

WordRule = Literal["vocabulary", "nearest"]
MOST_CANDIDATES = 2**22  # a file of equal words must not fill the memory


@dataclass(frozen=True)
class WordMatcher:
    """Matches word sets with raw points or with other word sets, through their `codebook`.

    Rule `vocabulary`: a pair of features is a candidate if one of the words of one is a word of the other, where raw
    descriptors have their nearest word. It is a join, linear in the number of features and of candidates. Rule
    `nearest`: each word is matched as a descriptor of its own, by mutual nearest neighbours. The distance of a pair is
    the one between word and descriptor at norm 1, or between the two words.
    """

    codebook: Database
    rule: WordRule = "vocabulary"

    def __post_init__(self) -> None:
        check_codebook(self.codebook)
        check_rule(self.rule)

    def match(self, a: Descriptors, b: Descriptors) -> Matches:
        """All candidate pairs, each once, ordered by their index in `a`, then in `b`."""
        first, second = self._bags(a), self._bags(b)
        if len(first.words) == 0 or len(second.words) == 0:
            return Matches(np.empty((0, 2), np.int64), np.empty(0, np.float32))
        if self.rule == "vocabulary":
            left, right = join(first.words, second.words)
            distances = first.distances[left] + second.distances[right]
        else:
            left, right, distances = self._mutual(first, second)
        pairs = np.stack([first.owners[left], second.owners[right]], axis=1)
        order = np.lexsort((distances, pairs[:, 1], pairs[:, 0]))
        pairs, distances = pairs[order], distances[order]
        fresh = np.ones(len(pairs), np.bool_)
        fresh[1:] = (pairs[1:] != pairs[:-1]).any(axis=1)  # two words of one keypoint may lead to the same feature
        return Matches(pairs[fresh], distances[fresh].astype(np.float32))

    def _bags(self, descriptors: Descriptors) -> "_Bags":
        """Words with the features that own them. A raw point owns its nearest word, a private one its whole set."""
        match descriptors:
            case WordSets(words, digest, size):
                if digest == self.codebook.digest and size != len(self.codebook):
                    raise InputError(f"these words claim a codebook of {size} words, it has {len(self.codebook)}")
                if digest != self.codebook.digest:
                    raise InputError(
                        f"these words are of codebook {digest[:12]}, this one is {self.codebook.digest[:12]}:"
                        " both sides need the same codebook file"
                    )
                owners = np.repeat(np.arange(len(words)), words.shape[1])
                return _Bags(words.reshape(-1), owners, np.zeros(words.size), None)
            case Points():
                words, distances = nearest_words(descriptors, self.codebook)
                return _Bags(words, np.arange(len(words)), distances, descriptors)
        raise InputError("word sets can be matched with raw points or word sets, not with subspaces")

    def _mutual(self, first: "_Bags", second: "_Bags") -> tuple[Integers, Integers, Float64]:
        """Mutual nearest neighbours of the two sides' words and points, spread to all entries that share one."""
        (points_a, entries_a), (points_b, entries_b) = self._points(first), self._points(second)
        matches = NearestMatcher().match(points_a, points_b)
        # Each matched pair stands for the entries of that point: join them through the number of the pair.
        number_a, number_b = np.full(len(points_a), -1), np.full(len(points_b), -1)
        number_a[matches.indices[:, 0]] = number_b[matches.indices[:, 1]] = np.arange(len(matches))
        numbers_a, numbers_b = number_a[entries_a], number_b[entries_b]
        kept_a, kept_b = np.flatnonzero(numbers_a >= 0), np.flatnonzero(numbers_b >= 0)
        left, right = join(numbers_a[kept_a], numbers_b[kept_b])
        distances = matches.distances[numbers_a[kept_a[left]]].astype(np.float64)
        return kept_a[left], kept_b[right], distances

    def _points(self, bags: "_Bags") -> tuple[Points, Integers]:
        """Different points of norm 1, and for each entry which of them it is."""
        if bags.raw is not None:
            norms = np.linalg.norm(bags.raw.values, axis=1, keepdims=True)
            return Points(bags.raw.values / norms), np.arange(len(bags.raw))
        words, place = np.unique(bags.words, return_inverse=True)
        return word_points(words, self.codebook), place


@dataclass(frozen=True, eq=False)
class _Bags:
    """Entry i: word `words[i]` of feature `owners[i]`, at `distances[i]` from its descriptor; `raw` where known."""

    words: Integers
    owners: Integers
    distances: Float64
    raw: Points | None


def check_rule(rule: str) -> None:
    """Raise InputError for an unknown rule."""
    if rule not in get_args(WordRule):
        raise InputError(f"unknown rule {rule!r}: use one of {', '.join(get_args(WordRule))}")


def join(first: Integers, second: Integers) -> tuple[Integers, Integers]:
    """All pairs of places (i, j) with first[i] == second[j], in the order of i."""
    order = np.argsort(second, kind="stable")
    ordered = second[order]
    start = np.searchsorted(ordered, first, side="left")
    counts = np.searchsorted(ordered, first, side="right") - start
    if counts.sum() > MOST_CANDIDATES:
        raise InputError(f"there are more than {MOST_CANDIDATES} candidates: use fewer features or a larger codebook")
    left = np.repeat(np.arange(len(first)), counts)
    within = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
    return left, order[start[left] + within]
