"""Word posterior of a whole image (beyond the papers): neighbouring keypoints see the same pixels, so their words fit.

Knows:      the codebook and the keypoints; descriptors of its own, for how common each word is, if it has any.
Breaks:     sets of several words, which hide the true one among random ones: those fit no neighbour. Words that were
            never sent, where neighbours were: what they saw predicts the descriptor.
Fails:      where a keypoint overlaps no other. With positions only, where it shares its position with no other.

The bound of a descriptor stands: its own set says no more of it than epsilon allows, and Posterior has all of that.
The sets of its neighbours are about the same pixels, so what they say together is bounded by the sum of their
epsilons, and that of an image is in the thousands.
"""

from dataclasses import dataclass, fields
from functools import reduce
from typing import ClassVar

import numpy as np

from featveil.attacks.knowledge import Guess, Knowledge
from featveil.attacks.overlap_parts.overlapping import BINS, CELLS, Overlaps, find_overlaps, predict
from featveil.attacks.posterior import check_smoothing
from featveil.attacks.posterior_parts.beliefs import propagate
from featveil.attacks.posterior_parts.source_words import likeliest, source_of
from featveil.core import InputError, Keypoints, Points, PrivateFeatures, WordSets
from featveil.core.arrays import Float32, Float64, Floats, Integers
from featveil.databases.entries import unit_rows
from featveil.distances import nearest

_KINDS = ("sift", "rootsift")  # kinds whose descriptors are histograms of gradients
_LEAST_CANDIDATES = 8
_PREDICTED = 8  # words near the prediction of the neighbours that become candidates too
_PAIRS = 1024  # whose predictions are held at a time
_TURNS = 24  # of one keypoint against another at the same position, where they are not known
# Logistic regression on the cosines of 351,000 pairs of overlapping keypoints of 50 photographs (BSDS500 and SUN), the
# true words of both against the true one and a random one; built-in codebook, `cosine` and `share` as below.
_CONSTANT, _OF_SHARE, _OF_COSINE, _OF_BOTH = -2.77, -15.53, 6.75, 23.52
_TRUST = 0.5  # of each pair's verdict: those of neighbours that overlap with each other are not independent
_SURE = 0.3  # less sure than this share of what is known around, a word is a worse estimate than neighbours give
_OWN = 1.5  # how much the own words count in an estimate, against a prediction that accounts for about a third
_NOTHING = 0.3  # likewise the mean of all words
_PRECISE = 1.05  # a prediction counts 1 / (this - the share of a component that it accounts for)


@dataclass(frozen=True)
class WordOverlap:
    """Weigh each feature's likeliest words by how they fit those of up to `neighbours` overlapping features.

    At most `candidates` words of a feature are considered. `smoothing` is that of Posterior.
    """

    neighbours: int = 12
    candidates: int = 32
    smoothing: float = 5.0

    name: ClassVar[str] = "posterior-overlap"
    summary: ClassVar[str] = "the likeliest words of overlapping keypoints together; better with scale and orientation"
    breaks: ClassVar[tuple[type, ...]] = (WordSets,)
    needs: ClassVar[tuple[str, ...]] = ("codebook",)
    uses: ClassVar[tuple[str, ...]] = ("database", "repeats")
    alone: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_smoothing(self.smoothing)
        for name, most in (("neighbours", 64), ("candidates", 128)):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= most:
                raise InputError(f"{name} must be a whole number from 1 to {most}, got {value!r:.40}")

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        """The likeliest word, and an estimate of the descriptor from the feature's own words and its neighbours'.

        Not answered where a feature overlaps no other: there it is what Posterior says. Raises InputError for kinds
        that are no histograms of gradients.
        """
        source = source_of(knowledge, self.smoothing)
        codebook = source.codebook
        if seen.kind not in _KINDS or codebook.size != CELLS * BINS:
            raise InputError(f"overlaps are known for {' and '.join(_KINDS)} descriptors, not for {seen.kind:.64}")
        links = _find_links(seen, self.neighbours)
        vectors = _as_sift(codebook.points(), seen.kind)
        size = seen.descriptors.subset_size if isinstance(seen.descriptors, WordSets) else 1
        count = min(max(_LEAST_CANDIDATES, size), self.candidates, len(codebook))
        added = None
        for own in (0.0, _OWN):
            words, alone = likeliest(seen, knowledge.repeats, source, count, added)
            together = reduce(np.logaddexp, (_fit(link, vectors[words]) for link in links)) - np.log(len(links))
            belief = propagate(alone, links[0].first, links[0].second, _TRUST * together)
            overlaps = _likeliest(links, vectors[words], belief)
            values = _estimate(overlaps, vectors[words], belief, own, vectors.mean(axis=0))
            added = nearest(Points(values), Points(vectors), min(_PREDICTED, len(codebook))).indices
        best = belief[:, :-1].argmax(axis=1)[:, None]
        chosen = np.take_along_axis(words, best, axis=1)[:, 0]
        answered = np.isin(np.arange(len(seen)), overlaps.first)
        doubtful = np.take_along_axis(belief, best, axis=1)[:, 0] < _SURE * _known_around(overlaps, belief)
        values = np.where(doubtful[:, None], _from_sift(values, seen.kind), codebook.unit(chosen))
        return Guess(values, answered, chosen)


def _find_links(seen: PrivateFeatures, neighbours: int) -> list[Overlaps]:
    """Overlapping pairs, once for each hypothesis of how they lie: known geometry, or turned at the same position."""
    keypoints = seen.keypoints
    if keypoints is None:
        return [_turned(np.zeros(1))]
    if keypoints.scale is not None and keypoints.orientation is not None:
        return [find_overlaps(keypoints, neighbours)]
    first, second = _at_one_position(keypoints, neighbours)
    turned = _turned(np.concatenate([[0.0], np.arange(_TURNS) * (360 / _TURNS)]))
    from_upright = np.flatnonzero((turned.second == 0) & (turned.first > 0))
    arrays = (turned.share, turned.cells, turned.bins, turned.weight)
    return [Overlaps(first, second, *(_alike(array[pair], len(first)) for array in arrays)) for pair in from_upright]


def _at_one_position(keypoints: Keypoints, neighbours: int) -> tuple[Integers, Integers]:
    """Pairs in both orders; where very many share a position, each is paired with `neighbours` before and behind it."""
    _, place = np.unique(keypoints.xy, axis=0, return_inverse=True)
    order = np.argsort(place.reshape(-1), kind="stable")
    ordered = place.reshape(-1)[order]
    pairs = [np.empty((2, 0), np.int64)]
    for step in range(1, min(neighbours, len(order) - 1) + 1):
        same = ordered[:-step] == ordered[step:]
        pairs.append(np.stack([order[:-step][same], order[step:][same]]))
    first, second = np.concatenate(pairs, axis=1)
    return np.concatenate([first, second]), np.concatenate([second, first])


def _turned(degrees: Float64) -> Overlaps:
    """Overlaps of keypoints at one position and of one scale."""
    count = len(degrees)
    return find_overlaps(
        Keypoints(np.zeros((count, 2), np.float32), np.ones(count, np.float32), degrees.astype(np.float32)), count
    )


def _alike(array: Float32, count: int) -> Float32:
    return np.broadcast_to(array, (count, *np.shape(array)))


def _fit(overlaps: Overlaps, candidates: Float32) -> Float32:
    """How much likelier (p, c, c), as logarithms, candidates (n, c, 128) of both are together than apart."""
    factors = np.empty((len(overlaps), candidates.shape[1], candidates.shape[1]), np.float32)
    for start in range(0, len(overlaps), _PAIRS):
        part = slice(start, start + _PAIRS)
        pairs = Overlaps(*(getattr(overlaps, field.name)[part] for field in fields(overlaps)))
        predicted = np.stack([predict(candidates[:, place], pairs)[0] for place in range(candidates.shape[1])], axis=1)
        weight = np.repeat(pairs.weight, BINS, axis=1)[:, None]
        mine = candidates[pairs.first]
        weighted = predicted * weight
        norms = (mine**2 @ weight.transpose(0, 2, 1)) * (predicted * weighted).sum(axis=2)[:, None]
        squared = (mine @ weighted.transpose(0, 2, 1)) ** 2 / np.maximum(norms, 1e-12)
        share = pairs.share[:, None, None] ** 2
        factors[part] = _CONSTANT + _OF_SHARE * share + squared * (_OF_COSINE + _OF_BOTH * share)
    return factors


def _likeliest(links: list[Overlaps], candidates: Float32, belief: Float64) -> Overlaps:
    """For each pair the hypothesis that fits the beliefs best."""
    if len(links) == 1:
        return links[0]
    mine, theirs = belief[links[0].first, :-1], belief[links[0].second, :-1]
    scores = [np.einsum("pab,pa,pb->p", np.exp(_fit(link, candidates)), mine, theirs, optimize=True) for link in links]
    chosen = np.argmax(scores, axis=0)
    picked = [np.array(getattr(links[0], field.name)) for field in fields(Overlaps)]
    for number, link in enumerate(links):
        for array, field in zip(picked, fields(Overlaps), strict=True):
            array[chosen == number] = getattr(link, field.name)[chosen == number]
    return Overlaps(*picked)


def _known_around(overlaps: Overlaps, belief: Float64) -> Float64:
    """How much (n,) is known of the words of each feature's neighbours, from 0 to 1."""
    known = 1 - belief[:, -1]
    total = np.bincount(overlaps.first, known[overlaps.second], len(belief))
    return np.asarray(total / np.maximum(np.bincount(overlaps.first, minlength=len(belief)), 1))


def _estimate(overlaps: Overlaps, candidates: Float32, belief: Float64, own: float, usual: Float32) -> Float32:
    """Descriptors (n, 128) of norm 1: what neighbours predict, the `own` words, and a little of the `usual` (128,)."""
    expected = np.einsum("nc,ncd->nd", belief[:, :-1], candidates, optimize=True)
    known = 1 - belief[:, -1:]
    predicted, weight = predict(expected, overlaps)
    precision = 1 / (_PRECISE - weight)
    total, of = own * expected + _NOTHING * usual, own * known + np.full_like(expected, _NOTHING)
    np.add.at(total, overlaps.first, precision * predicted)
    np.add.at(of, overlaps.first, precision * weight * known[overlaps.second])
    return unit_rows(np.maximum(total / of, 0))


def _as_sift(values: Floats, kind: str) -> Float32:
    """Histograms of gradients of norm 1: RootSIFT is their square root."""
    return unit_rows(values**2 if kind == "rootsift" else values)


def _from_sift(values: Float32, kind: str) -> Float32:
    return unit_rows(np.sqrt(values)) if kind == "rootsift" else values
