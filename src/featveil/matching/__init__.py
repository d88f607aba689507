"""Descriptors x 2 -> Matches: one file per matcher, and the functions that compare features of either kind."""

from featveil.matching.dispatch import MatchOptions, as_words, conceal_raw, match
from featveil.matching.many_pairs import Kept, match_pairs
from featveil.matching.nearest_neighbours import NearestMatcher
from featveil.matching.word_sets import WordMatcher

__all__ = ["Kept", "MatchOptions", "NearestMatcher", "WordMatcher", "as_words", "conceal_raw", "match", "match_pairs"]
