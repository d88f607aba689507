"""Descriptors x 2 -> Matches: one file per matcher, and the function that compares features of either kind."""

from featveil.core import Features, InputError, Matches, PrivateFeatures
from featveil.matching.nearest import NearestMatcher

__all__ = ["NearestMatcher", "match"]


def match(
    a: Features | PrivateFeatures,
    b: Features | PrivateFeatures,
    *,
    mutual: bool = True,
    ratio: float | None = None,
    max_distance: float | None = None,
) -> Matches:
    """Match raw or private features with raw or private features, by exact Euclidean distance.

    `mutual`, `ratio` and `max_distance` are explained in `NearestMatcher`. Raises InputError when the two are not
    comparable.
    """
    for features in (a, b):
        if not isinstance(features, Features | PrivateFeatures):
            raise InputError(f"expected Features or PrivateFeatures, got {type(features).__name__}")
    if a.kind != b.kind:
        raise InputError(f"cannot match {a.kind} with {b.kind} descriptors: extract both with the same kind")
    return NearestMatcher(mutual, ratio, max_distance).match(a.descriptors, b.descriptors)
