"""What attacks on word sets share: the descriptors that may be hidden, and which words the sets make likely.

A word stands for the descriptors nearest to it. Given the word, a set of the subset mechanism depends on nothing else.
One of the metric mechanism depends on the descriptor itself, so its likelihood is a mean over descriptors that have
that word: the attacker's own, and one that equals the word, which real descriptors are 0.4 to 0.5 away from.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from featveil.attacks.knowledge import Knowledge
from featveil.attacks.posterior_parts.likelihoods import Release, Source, sum_over_samples
from featveil.core import InputError, Points, PrivateFeatures
from featveil.core.arrays import Float64, Integers
from featveil.databases import Database, nearest_words
from featveil.databases.codebooks import check_codebook
from featveil.matching.word_sets import join

_ENTRIES = 2**24  # of a table of probabilities that is held at a time
_IMPOSSIBLE = 1e-300


def source_of(knowledge: Knowledge, smoothing: float) -> Source:
    """The words themselves, each counting `smoothing`, and the attacker's descriptors, each counting 1.

    Without those all words are equally common. Raises InputError without a codebook, and for descriptors of another
    size.
    """
    if knowledge.codebook is None:
        raise InputError("this attack needs the codebook of the word sets")
    return _source(knowledge.codebook, knowledge.database, float(smoothing))


def likeliest(
    seen: PrivateFeatures,
    repeats: Sequence[PrivateFeatures],
    source: Source,
    count: int,
    also: Integers | None = None,
) -> tuple[Integers, Float64]:
    """The `count` likeliest words of each feature and the words `also` (n, a), with the logarithms of probabilities.

    Words (n, count + a), the likeliest first, and logarithms (n, count + a + 1), the last of all other words together;
    where a word comes again it counts nothing. Further releases of the same features multiply the likelihoods: their
    epsilons add up. They are matched by position; where several features share one, each of the sets there is taken to
    be the feature's with equal probability. Raises InputError for sets of another codebook or an unknown mechanism,
    and for repeats of another image.
    """
    also = np.empty((len(seen), 0), np.int64) if also is None else also
    places = np.arange(len(seen)), np.arange(len(seen))
    releases = [Release.of(seen, places, len(seen), source.codebook)]
    releases += [Release.of(again, same_places(seen, again), len(seen), source.codebook) for again in repeats]
    metric = any(release.metric for release in releases)
    step = max(1, _ENTRIES // len(source.codebook)) if metric else len(seen)
    words = np.empty((len(seen), count + also.shape[1]), np.int64)
    logs = np.empty(words.shape)
    for start in range(0, len(seen), step):
        part = slice(start, min(start + step, len(seen)))
        here = [release.rows(part) for release in releases]
        words[part], logs[part] = (_among_all if metric else _among_sent)(here, source, count, also[part])
    return words, _with_rest(words, logs, count)


def same_places(seen: PrivateFeatures, repeat: PrivateFeatures) -> tuple[Integers, Integers]:
    """All pairs of a feature of `seen` and one of `repeat` that may be the same, in the order of the first.

    They have the same position; without keypoints, the same place in the order. Raises InputError when `repeat` cannot
    be of the same image.
    """
    if seen.image_size != repeat.image_size:
        raise InputError("a repeat is of an image of another size: give releases of the same image")
    if seen.keypoints is None or repeat.keypoints is None:
        if len(seen) != len(repeat) or (seen.keypoints is None) != (repeat.keypoints is None):
            raise InputError("a repeat must be a release of the same features: this one has others, or other keypoints")
        return np.arange(len(seen)), np.arange(len(seen))
    _, place = np.unique(np.concatenate([seen.keypoints.xy, repeat.keypoints.xy]), axis=0, return_inverse=True)
    places = join(place.reshape(-1)[: len(seen)], place.reshape(-1)[len(seen) :])
    if len(places[0]) == 0:
        raise InputError("a repeat has no feature where these have one: give releases of the same image")
    return places


@lru_cache(maxsize=4)  # finding the words of a database takes longer than most attacks
def _source(codebook: Database, database: Database | None, smoothing: float) -> Source:
    check_codebook(codebook)
    every = np.arange(len(codebook))
    if database is None:
        return Source(codebook, codebook.as_points, every, np.full(len(codebook), 1 / len(codebook)))
    words = np.concatenate([every, nearest_words(database.as_points, codebook)[0]])
    order = np.argsort(words, kind="stable")
    values = np.concatenate([codebook.points(), database.points()])[order]
    weights = np.where(order < len(codebook), smoothing, 1.0)
    return Source(codebook, Points(values), words[order], weights / weights.sum())


def _among_sent(releases: Sequence[Release], source: Source, count: int, also: Integers) -> tuple[Integers, Float64]:
    """For subset mechanisms: only words that were sent, the most common ones and those of `also` need be looked at."""
    prior, size, features = source.prior, len(source.codebook), np.arange(len(also))
    common = np.argsort(-prior, kind="stable")[:count]
    asked = (features[:, None] * size + np.concatenate([np.tile(common, (len(also), 1)), also], axis=1)).reshape(-1)
    listed = [(asked, np.zeros(len(asked))), *(release.gains(size) for release in releases)]
    entries, place = np.unique(np.concatenate([entry for entry, _ in listed]), return_inverse=True)
    logs = np.log(prior[entries % size]) + np.bincount(place, np.concatenate([gain for _, gain in listed]))
    first = np.searchsorted(entries, features * size)
    rest = 1 - np.add.reduceat(prior[entries % size], first)
    total = np.logaddexp(np.logaddexp.reduceat(logs, first), np.log(np.maximum(rest, _IMPOSSIBLE)))
    logs -= total[entries // size]
    order = np.lexsort((-logs, entries // size))
    words = np.concatenate([(entries % size)[order[first[:, None] + np.arange(count)]], also], axis=1)
    return words, logs[np.searchsorted(entries, features[:, None] * size + words)]


def _among_all(releases: Sequence[Release], source: Source, count: int, also: Integers) -> tuple[Integers, Float64]:
    """With a metric mechanism every word is as likely as its descriptors make it."""
    table = sum_over_samples([release for release in releases if release.metric], source)
    for release in releases:
        if not release.metric:
            entries, gain = release.gains(table.shape[1])
            table.reshape(-1)[entries] += gain
    table -= np.logaddexp.reduce(table, axis=1)[:, None]
    best = np.argpartition(table, -count, axis=1)[:, -count:]
    order = np.argsort(-np.take_along_axis(table, best, axis=1), axis=1, kind="stable")
    words = np.concatenate([np.take_along_axis(best, order, axis=1), also], axis=1)
    return words, np.take_along_axis(table, words, axis=1)


def _with_rest(words: Integers, logs: Float64, count: int) -> Float64:
    """`logs` of `words`, nothing for those after the first `count` that come again, and of all other words."""
    share = np.exp(logs)
    for place in range(count, words.shape[1]):
        share[(words[:, :place] == words[:, place : place + 1]).any(axis=1), place] = 0
    rest = 1 - share.sum(axis=1, keepdims=True)
    return np.asarray(np.log(np.maximum(np.concatenate([share, rest], axis=1), _IMPOSSIBLE)))
