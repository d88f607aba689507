"""Features of two images, raw or private -> Matches, by the matcher that their descriptors call for."""

from typing import TypedDict

from featveil.core import (
    ConcealingNetwork,
    Features,
    Guarantee,
    InputError,
    Matches,
    PrivateFeatures,
    WordSets,
    base_kind,
    is_concealed,
)
from featveil.databases import Database, builtin, conceal_database, nearest_words
from featveil.databases.codebooks import check_codebook
from featveil.matching.nearest_neighbours import NearestMatcher
from featveil.matching.word_sets import WordMatcher, WordRule, check_rule


class MatchOptions(TypedDict, total=False):
    """The options of `match`, for functions that hand them on."""

    mutual: bool
    ratio: float | None
    max_distance: float | None
    on_sphere: bool
    codebook: Database | None
    rule: WordRule
    network: ConcealingNetwork | None


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
    network: ConcealingNetwork | None = None,
) -> Matches:
    """Match raw or private features with raw or private features.

    Points and subspaces are matched by exact Euclidean distance; `mutual`, `ratio`, `max_distance` and `on_sphere` are
    explained in `NearestMatcher`. Word sets are matched through their `codebook` (default: the built-in one) by a
    `rule` that `WordMatcher` explains, with several candidates a feature. With the `network` that one side was
    concealed by, a raw other side (and a raw codebook) is concealed first. Raises InputError when the two are not
    comparable.
    """
    for features in (a, b):
        if not isinstance(features, Features | PrivateFeatures):
            raise InputError(f"expected Features or PrivateFeatures, got {type(features).__name__}")
    if network is not None:
        if network.concealed_kind not in (a.kind, b.kind):
            raise InputError(f"neither side was concealed by network {network.digest[:12]}: leave it out")
        a, b = conceal_raw(a, network), conceal_raw(b, network)
    if a.kind != b.kind:
        raise InputError(_cannot_match(a, b))
    check_rule(rule)
    if not any(isinstance(side.descriptors, WordSets) for side in (a, b)):
        if codebook is not None:
            raise InputError("a codebook is for word sets, and neither side has any: leave it out")
        return NearestMatcher(mutual, ratio, max_distance, on_sphere).match(a.descriptors, b.descriptors)
    if not mutual or ratio is not None or max_distance is not None:
        raise InputError("word sets have no mutual, ratio or max_distance test: verify the candidates geometrically")
    if on_sphere:
        raise InputError("on_sphere is for subspaces, and word sets have none: leave it out")
    book = find_codebook(a, b, given=codebook, network=network)
    return WordMatcher(book, rule).match(a.descriptors, b.descriptors)


def conceal_raw(features: Features | PrivateFeatures, network: ConcealingNetwork) -> Features | PrivateFeatures:
    """Raw features of the network's kind, concealed; all others as they are."""
    if isinstance(features, Features) and features.kind == network.kind:
        return network.conceal(features)
    return features


def _cannot_match(a: Features | PrivateFeatures, b: Features | PrivateFeatures) -> str:
    one, two = a.kind, b.kind
    reason = f"cannot match {one} with {two} descriptors"
    if base_kind(one) != base_kind(two):
        return f"{reason}: extract both with the same kind"
    if is_concealed(one) and is_concealed(two):
        return f"{reason}: they were concealed by different networks; conceal both with the same one"
    if isinstance(a, PrivateFeatures) and isinstance(b, PrivateFeatures):
        return f"{reason}: only one of the two was concealed; hide both in the same way"
    return f"{reason}: conceal the raw side too, by naming the network (--concealer FILE; network= in Python)"


def as_words(features: Features, codebook: Database) -> PrivateFeatures:
    """`features` with the nearest word instead of each descriptor: found once, they are quick to match with word sets.

    Nothing is hidden by that.
    """
    words = WordSets(nearest_words(features.descriptors, codebook)[0][:, None], codebook.digest, len(codebook))
    spec, kind = {"name": "words", "codebook": codebook.digest}, features.kind
    return PrivateFeatures(words, kind, {**spec}, Guarantee("none"), features.keypoints, features.image_size)


def find_codebook(
    *sides: Features | PrivateFeatures, given: Database | None, network: ConcealingNetwork | None = None
) -> Database:
    """The codebook that the word sets name; raises InputError when it is neither given nor built in.

    Of concealed words it may be the one that their `network` concealed.
    """
    digests = {side.descriptors.codebook for side in sides if isinstance(side.descriptors, WordSets)}
    if len(digests) > 1:
        raise InputError("the two sides use different codebooks: privatize both with the same one")
    if given is not None:
        check_codebook(given)
    (digest,) = digests
    if given is not None and network is not None and given.kind == network.kind:
        given = conceal_database(given, network)
    usual = _usual_codebook(sides[0].kind, network) if given is None else None
    if usual is not None and usual.digest == digest:
        return usual
    if given is None:
        also = " (and the network that they were concealed by)" if is_concealed(sides[0].kind) else ""
        raise InputError(f"these words are of codebook {digest[:12]}, not the built-in one: give that codebook{also}")
    if given.digest != digest:
        raise InputError(
            f"these words are of codebook {digest[:12]}, the given one is {given.digest[:12]}: use the same file"
        )
    return given


def _usual_codebook(kind: str, network: ConcealingNetwork | None) -> Database | None:
    """The built-in codebook of `kind`, or after the `network`; None where there is none."""
    if base_kind(kind) not in ("sift", "rootsift"):
        return None
    if not is_concealed(kind):
        return builtin(kind)
    if network is None or network.concealed_kind != kind:
        return None
    return conceal_database(builtin(network.kind), network)
