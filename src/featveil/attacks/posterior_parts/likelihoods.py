"""How likely each word, or each descriptor, makes the sets of a release: subset.md and metric.md, in logarithms."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from featveil.core import InputError, Points, PrivateFeatures, WordSets
from featveil.core.arrays import Float32, Float64, Integers
from featveil.core.features import sent_by
from featveil.databases import Database
from featveil.defenses.metric import weight_table
from featveil.defenses.subset import check_epsilon, effective_epsilon, subset_coin
from featveil.distances import matrix

_CERTAIN = 1e4  # an infinite epsilon, as a logarithm that can still be added and subtracted
_SAMPLES = 512  # descriptors whose likelihoods are held at a time


@dataclass(frozen=True, eq=False)
class Source:
    """What may be hidden: `points` (s) that stand for all descriptors, `weights` (s,) that add up to 1.

    `words` (s,), rising, are their nearest words in `codebook`; every word has at least one point.
    """

    codebook: Database
    points: Points
    words: Integers
    weights: Float64

    @property
    def prior(self) -> Float64:
        """How common each word is (K,), before anything is seen."""
        return np.bincount(self.words, self.weights, len(self.codebook)).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Release:
    """Sets that may be of `count` features: `sets[q]` (k,) of feature `features[q]`, rising.

    A feature that has several owns one of them, it is not known which. `epsilon` is that of the rounded coin.
    """

    metric: bool
    epsilon: float
    features: Integers
    sets: Integers
    count: int

    @classmethod
    def of(
        cls, private: PrivateFeatures, pairs: tuple[Integers, Integers], count: int, codebook: Database
    ) -> "Release":
        """Set `pairs[1][q]` of `private` may be of feature `pairs[0][q]`.

        Raises InputError for sets of another codebook, or whose mechanism is not known.
        """
        sets, name, epsilon = private.descriptors, sent_by(private.defense), private.defense.get("epsilon")
        if not isinstance(sets, WordSets):
            raise InputError(f"this attack is on word sets, not on {type(sets).__name__}")
        if sets.codebook != codebook.digest or sets.codebook_size != len(codebook):
            raise InputError(
                f"these words are of codebook {sets.codebook[:12]} with {sets.codebook_size} words, this one is"
                f" {codebook.digest[:12]} with {len(codebook)}: give the codebook that they were made with"
            )
        if name not in ("subset", "metric") or (name == "metric" and epsilon is None):
            raise InputError("it must be known how word sets were made: by subset, or by metric with its epsilon")
        given = check_epsilon(math.inf if epsilon is None else epsilon)  # type: ignore[arg-type]
        if name == "subset":
            coin = subset_coin(given, len(codebook), sets.subset_size)
            given = min(effective_epsilon(coin, len(codebook), sets.subset_size), _CERTAIN)
        return cls(name == "metric", given, pairs[0], sets.words[pairs[1]], count)

    def rows(self, part: slice) -> "Release":
        """What is known of the features in `part`, counted from its start."""
        kept = slice(*np.searchsorted(self.features, [part.start, part.stop]))
        features = self.features[kept] - part.start
        return Release(self.metric, self.epsilon, features, self.sets[kept], part.stop - part.start)

    def gains(self, words: int) -> tuple[Integers, Float64]:
        """Of a subset mechanism: entries feature * `words` + word, rising, and how much likelier that word made the
        sets than one outside them. Words that are not listed are outside.
        """
        entries, held = np.unique(self.features[:, None] * words + self.sets, return_counts=True)
        share = held / np.bincount(self.features, minlength=self.count)[entries // words]
        with np.errstate(divide="ignore"):
            return entries, np.logaddexp(np.log1p(-share), np.log(share) + self.epsilon)

    def of_samples(self, source: Source, samples: slice) -> Float64:
        """Of a metric mechanism: the likelihood (samples, count) of the sets, but for a constant factor."""
        near, normaliser = _normalisers(source, self.epsilon, self.sets.shape[1])
        words, place = np.unique(self.sets, return_inverse=True)
        away = matrix(Points(source.points.values[samples]), Points(source.codebook.unit(words)))
        weights = _log_weights(away, near[samples], self.epsilon, len(source.codebook))
        best = weights[:, place.reshape(-1)].reshape(len(weights), *self.sets.shape).max(axis=2)
        best -= normaliser[samples, None]
        owners, first, owned = np.unique(self.features, return_index=True, return_counts=True)
        if len(owners) == self.count == len(self.features):
            return np.asarray(best)
        likelihoods = np.zeros((len(best), self.count))
        if len(owners):
            likelihoods[:, owners] = np.logaddexp.reduceat(best, first, axis=1) - np.log(owned)
        return likelihoods


def sum_over_samples(releases: Sequence[Release], source: Source) -> Float64:
    """The probability (rows, K) of each word together with all metric `releases`, but for a constant factor."""
    scores = np.full((len(source.codebook), releases[0].count), -np.inf)
    weights = np.log(source.weights)
    for start in range(0, len(source.points), _SAMPLES):
        samples = slice(start, start + _SAMPLES)
        joint = weights[samples, None] + sum(release.of_samples(source, samples) for release in releases)
        words, first = np.unique(source.words[samples], return_index=True)
        top = joint.max(axis=0)
        with np.errstate(divide="ignore"):  # what underflows is e^700 times less likely than another word
            parts = np.log(np.add.reduceat(np.exp(joint - top), first, axis=0)) + top
        scores[words] = np.logaddexp(scores[words], parts)
    return np.ascontiguousarray(scores.T)


def led_share(words: int, subset_size: int) -> Float64:
    """For each place (K,) in any order of the words: the sets of which the first word is there, as a share of the sets
    that hold the very first.
    """
    place = np.arange(1, words)
    return np.concatenate([[1.0], np.cumprod(np.maximum(words - place - subset_size + 1, 0) / (words - place))])


@lru_cache(maxsize=4)  # as long as all distances between samples and words take
def _normalisers(source: Source, epsilon: float, subset_size: int) -> tuple[Float64, Float64]:
    """Of each sample (s,): the distance of its nearest word, and the logarithm of the sum of all sets' weights."""
    shares = led_share(len(source.codebook), subset_size)
    near, total = np.empty(len(source.points)), np.empty(len(source.points))
    for start in range(0, len(source.points), _SAMPLES):
        part = slice(start, start + _SAMPLES)
        away = matrix(Points(source.points.values[part]), source.codebook.as_points)
        if subset_size > 1:
            away.sort(axis=1)
        near[part] = away.min(axis=1)
        total[part] = np.log(np.exp(_log_weights(away, near[part], epsilon, len(shares))) @ shares)
    return near, total


def _log_weights(away: Float32, near: Float64, epsilon: float, words: int) -> Float64:
    """Of words at distances `away` (s, w), the nearest of all at `near` (s,).

    That of metric.md without the steps of distances, which are 2^-16, but with the floor, which matters.
    """
    table = weight_table(epsilon, words)
    return np.maximum((near[:, None] - away) * (epsilon / 2), math.log(int(table[-1]) / int(table[0])))
