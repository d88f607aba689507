"""Descriptors x 2 -> Matches: one file per matcher, and the functions that compare features of either kind."""

from featveil.matching.features import MatchOptions, match
from featveil.matching.many import match_pairs
from featveil.matching.nearest import NearestMatcher
from featveil.matching.words import WordMatcher

__all__ = ["MatchOptions", "NearestMatcher", "WordMatcher", "match", "match_pairs"]
