"""Descriptors x 2 -> Matches: one file per matcher, and the functions that compare features of either kind."""

from featveil.matching.features import MatchOptions, as_words, conceal_raw, match
from featveil.matching.many import Kept, match_pairs
from featveil.matching.nearest import NearestMatcher
from featveil.matching.words import WordMatcher

__all__ = ["Kept", "MatchOptions", "NearestMatcher", "WordMatcher", "as_words", "conceal_raw", "match", "match_pairs"]
