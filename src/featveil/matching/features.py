"""Features of two images, raw or private -> Matches, by the matcher that their descriptors call for."""

from typing import TypedDict

from featveil.core import Features, Guarantee, InputError, Matches, PrivateFeatures, WordSets
from featveil.databases import Database, builtin, nearest_words
from featveil.databases.words import check_codebook
from featveil.matching.nearest import NearestMatcher
from featveil.matching.words import WordMatcher, WordRule, check_rule


class MatchOptions(TypedDict, total=False):
    """The options of `match`, for functions that hand them on."""

    mutual: bool
    ratio: float | None
    max_distance: float | None
    on_sphere: bool
    codebook: Database | None
    rule: WordRule


def match(
    a: Features | PrivateFeatures,
    b: Features | PrivateFeatures,
    *,
    mutual: bool = True,
    ratio: float | None = None,
    max_distance: float | None = None,
    on_sphere: bool = False,
    codebook: Database | None = None,
    rule: WordRule = "vocabulary",
) -> Matches:
    """Match raw or private features with raw or private features.

    Points and subspaces are matched by exact Euclidean distance; `mutual`, `ratio`, `max_distance` and `on_sphere` are
    explained in `NearestMatcher`. Word sets are matched through their `codebook` (default: the built-in one) by a
    `rule` that `WordMatcher` explains, with several candidates a feature. Raises InputError when the two are not
    comparable.
    """
    for features in (a, b):
        if not isinstance(features, Features | PrivateFeatures):
            raise InputError(f"expected Features or PrivateFeatures, got {type(features).__name__}")
    if a.kind != b.kind:
        raise InputError(f"cannot match {a.kind} with {b.kind} descriptors: extract both with the same kind")
    check_rule(rule)
    if not any(isinstance(side.descriptors, WordSets) for side in (a, b)):
        if codebook is not None:
            raise InputError("a codebook is for word sets, and neither side has any: leave it out")
        return NearestMatcher(mutual, ratio, max_distance, on_sphere).match(a.descriptors, b.descriptors)
    if not mutual or ratio is not None or max_distance is not None:
        raise InputError("word sets have no mutual, ratio or max_distance test: verify the candidates geometrically")
    if on_sphere:
        raise InputError("on_sphere is for subspaces, and word sets have none: leave it out")
    return WordMatcher(find_codebook(a, b, given=codebook), rule).match(a.descriptors, b.descriptors)


def as_words(features: Features, codebook: Database) -> PrivateFeatures:
    """`features` with the nearest word instead of each descriptor: found once, they are quick to match with word sets.

    Nothing is hidden by that.
    """
    words = WordSets(nearest_words(features.descriptors, codebook)[0][:, None], codebook.digest, len(codebook))
    spec, kind = {"name": "words", "codebook": codebook.digest}, features.kind
    return PrivateFeatures(words, kind, {**spec}, Guarantee("none"), features.keypoints, features.image_size)


def find_codebook(*sides: Features | PrivateFeatures, given: Database | None) -> Database:
    """The codebook that the word sets name; raises InputError when it is neither given nor built in."""
    digests = {side.descriptors.codebook for side in sides if isinstance(side.descriptors, WordSets)}
    if len(digests) > 1:
        raise InputError("the two sides use different codebooks: privatize both with the same one")
    if given is not None:
        check_codebook(given)
    (digest,) = digests
    kind = sides[0].kind
    if given is None and kind in ("sift", "rootsift") and builtin(kind).digest == digest:
        return builtin(kind)
    if given is None:
        raise InputError(f"these words are of codebook {digest[:12]}, not the built-in one: give that codebook")
    if given.digest != digest:
        raise InputError(
            f"these words are of codebook {digest[:12]}, the given one is {given.digest[:12]}: use the same file"
        )
    return given
