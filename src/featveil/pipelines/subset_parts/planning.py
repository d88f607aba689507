"""What an epsilon and a subset size amount to, before anything is sent: the exact numbers of the subset mechanism.

Nothing is drawn. The probability that the true word is sent is the one of the coin that runs (`subset_coin`), and all
that follows from it is computed in fractions, so that a codebook of 2^1024 words is no special case.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from featveil.core import Features, Guarantee, InputError
from featveil.core.arrays import Float64
from featveil.databases import Database, nearest_words
from featveil.defenses.subset import check_epsilon, codebook_for, subset_coin

LARGEST_CODEBOOK = 2**4096  # all vectors of 128 float32 numbers
# Level, best guess and share of true words sent from which on it holds. A guess that is right every other time hides
# little. Nor does a set that almost surely has the true word hide much: the others are random, and neighbouring
# features may tell them apart. Where the lines are drawn is a judgement, not a theorem.
LEVELS = (("weak", 0.5, 0.9), ("modest", 0.1, 0.5))
STRONG = 2.0  # up to this epsilon the bound itself says enough, whatever is sent
_DECIDES = 20  # e^20 is half a billion: odds that change so much decide any question
_BOUNDS_NOTHING = "  that bounds nothing by itself; the bound that holds is per descriptor"
_LONG = 10**15  # whole numbers that are not written out


@dataclass(frozen=True)
class PlanRow:
    """What one subset size amounts to. Shares and probabilities are 0 to 1.

    `sent`: probability that the true word is among those sent. `best_guess`: how often the best guess of the word is
    right, for someone who sees the set and has no other knowledge (chance: 1 / K). `nearest_inliers`: share of the
    sent words that are right, all that matching each word by itself can get right; the same number. For
    `vocabulary_inliers` and `right_candidates` (of an image) see `plan`. An infinite `epsilon` guarantees nothing.
    """

    subset_size: int
    sent: float
    best_guess: float
    nearest_inliers: float
    vocabulary_inliers: float
    right_candidates: float
    epsilon: float
    epsilon_per_image: float
    level: str
    verdict: str


@dataclass(frozen=True, eq=False)
class Quantization:
    """How far descriptors are from their words, at norm 1: `distances` (n,), 0 to 2; and how many words they use."""

    distances: Float64 = field(repr=False)
    images: int
    words_used: int
    codebook_size: int

    @property
    def features_per_image(self) -> int:
        """Rounded mean."""
        return max(1, round(len(self.distances) / self.images))

    def summary(self) -> dict[str, float]:
        """Mean, median and 90th percentile of the distance, mean cosine, share of the words that are used."""
        return {
            "mean": float(self.distances.mean()),
            "median": float(np.median(self.distances)),
            "percentile_90": float(np.quantile(self.distances, 0.9)),
            "mean_cosine": float(1 - (self.distances**2).mean() / 2),
            "words_used_share": self.words_used / self.codebook_size,
        }

    def explain(self) -> list[str]:
        """In words."""
        summary, images = self.summary(), f"{self.images} image{'' if self.images == 1 else 's'}"
        return [
            f"quantisation: {len(self.distances):,} descriptors of {images}, at norm 1",
            f"  distance from the nearest word: mean {summary['mean']:.2f}, median {summary['median']:.2f},"
            f" 90th percentile {summary['percentile_90']:.2f}",
            f"  mean cosine {summary['mean_cosine']:.2f} (1 is the same, 0 has nothing in common)",
            f"  different words: {self.words_used:,}, {percent(summary['words_used_share'])} of the codebook",
        ]


def plan(
    epsilon: float,
    codebook_size: int,
    subset_sizes: Sequence[int],
    features: int,
    reference_features: int | None = None,
    same_word: float = 1.0,
) -> list[PlanRow]:
    """One row for each of `subset_sizes`, for images of `features` features.

    Vocabulary matching is with a raw image of `reference_features` (default: as many). Its inliers are the expected
    right candidates over all expected candidates, if every keypoint has one counterpart there, which has the same word
    with probability `same_word`, and words are uniform: right are sent * same_word a keypoint; and each of the k words
    sent, the true one too, meets the other features by chance, k (reference_features - 1) / K times. Real words are
    not uniform and counterparts are missing, so this is the best case. Raises InputError for settings that cannot be.
    """
    reference_features = features if reference_features is None else reference_features
    _check(epsilon, codebook_size, subset_sizes, min(features, reference_features), same_word)
    by_chance = Fraction(reference_features - 1, codebook_size)
    per_image = Guarantee("local-dp", float(epsilon)).compose(features).epsilon
    rows = []
    for k in subset_sizes:
        sent = subset_coin(epsilon, codebook_size, k).probability
        right = sent * Fraction(same_word)
        guess = float(sent / k)
        level, verdict = _verdict(epsilon, float(sent), guess)
        rows.append(
            PlanRow(
                subset_size=k,
                sent=float(sent),
                best_guess=guess,
                nearest_inliers=guess,
                vocabulary_inliers=float(right / (right + k * by_chance)),
                right_candidates=float(right * features),
                epsilon=float(epsilon),
                epsilon_per_image=math.inf if per_image is None else per_image,
                level=level,
                verdict=verdict,
            )
        )
    return rows


def measure_quantization(images: Sequence[Features], codebook: Database) -> Quantization:
    """Distances of the descriptors of `images` from their words; raises InputError when there are none."""
    if sum(len(features) for features in images) == 0:
        raise InputError("there are no descriptors to measure: give an image with more texture")
    nearest = [nearest_words(features.descriptors, codebook_for(codebook, features.kind)) for features in images]
    words = np.concatenate([words for words, _ in nearest])
    distances = np.concatenate([distances for _, distances in nearest]).astype(np.float64)
    return Quantization(distances, len(images), len(np.unique(words)), len(codebook))


def explain(rows: Sequence[PlanRow], codebook_size: int, features: int) -> list[str]:
    """In words: what the columns mean, where the guarantee is weak, and what it adds up to over an image."""
    first, chance = rows[0], percent(1 / codebook_size)
    lines = [
        f"best guess: right so often, for someone who knows nothing else (chance {chance});",
        "  also the share of the words sent that are right",
        "right at best: right matches of an image expected of vocabulary matching, and their share, if",
        f"  every keypoint has a counterpart among {features:,}, with the same word; words are uniform;",
        "  of real pairs most keypoints do not, so expect a fraction (docs/claims.md)",
    ]
    lines += ["verdict, from bad to good: none, weak, modest, fair, strong", ""]
    lines += [f"k = {row.subset_size}: {row.verdict}" for row in rows]
    if first.epsilon > STRONG:
        lines += [
            "side knowledge (neighbouring keypoints, a trained network) may single out the true word",
            "  where it is sent: then 'true word sent' is what counts",
        ]
    return lines if math.isinf(first.epsilon) else [*lines, *_amounts(first, features)]


def _amounts(row: PlanRow, features: int) -> list[str]:
    """What the bound means for one descriptor, and what it adds up to."""
    odds = f"e^{row.epsilon:g}"
    if row.epsilon < 2 * _DECIDES:
        odds = f"{math.exp(row.epsilon):,.{2 if row.epsilon < 5 else 0}f}"
    image = f"per image of {features:,} features: epsilon {row.epsilon_per_image:,.6g} (basic composition)"
    return [
        f"per descriptor: epsilon {row.epsilon:g}; the odds of any suspicion change by a factor of {odds} at most",
        *([image] if row.epsilon_per_image < _DECIDES else [f"{image};", _BOUNDS_NOTHING]),
    ]


def rounded(number: int) -> str:
    """For a person: digits, or for very large numbers a power of two."""
    if number < _LONG:
        return f"{number:,}"
    power = number.bit_length() - 1
    return f"2^{power}" if number == 1 << power else f"about 2^{math.log2(number):.1f}"


def percent(share: float) -> str:
    """For a person: three digits, and never a 100 % that is not one."""
    return "> 99.9 %" if 0.9995 <= share < 1 else f"{100 * share:.3g} %"


def _verdict(epsilon: float, sent: float, guess: float) -> tuple[str, str]:
    """The level, and the reason for it in words."""
    if math.isinf(epsilon):
        return "none", "none: quantisation only, nothing is guaranteed"
    if epsilon <= STRONG:
        return "strong", f"strong: the odds of any suspicion change by a factor of {math.exp(epsilon):.2f} at most"
    guessed = f"whoever guesses the word is right {percent(guess)} of the time"
    present = f"the true word is sent {percent(sent)} of the time"
    for level, of_guess, of_sent in LEVELS:
        if guess >= of_guess:
            return level, f"{level}: {guessed}"
        if sent >= of_sent:
            return level, f"{level}: {present}, and only words drawn at random hide it"
    return "fair", f"fair: {present}, and {guessed}"


def _check(epsilon: float, codebook_size: int, subset_sizes: Sequence[int], fewest: int, same_word: float) -> None:
    check_epsilon(epsilon)
    if type(codebook_size) is not int or not 2 <= codebook_size <= LARGEST_CODEBOOK:
        raise InputError("codebook_size must be a whole number from 2 to 2^4096")
    if len(subset_sizes) == 0 or any(type(k) is not int or k < 1 for k in subset_sizes):
        raise InputError("subset sizes must be one or more whole numbers of at least 1")
    if type(fewest) is not int or fewest < 1:
        raise InputError(f"features must be a whole number of at least 1, got {fewest!r}")
    if not 0 < same_word <= 1:
        raise InputError(f"same_word must be a probability above 0, got {same_word!r}")
