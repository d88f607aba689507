"""Word posterior (beyond the papers): the likeliest hidden word, given the sets.

Against one release of the subset mechanism, and with the true prior, nothing guesses the word more often. With metric
sets, and where repeated features share positions, it is an approximation.

Knows:      the codebook; descriptors of its own, for how common each word is, if it has any.
Breaks:     large epsilons; the same image released again, because epsilons add up over releases.
Fails:      at small ones, where it names a common word. From a feature's own words no attack does better than
            `posterior_bound`; word_overlap.py does, from those of its neighbours.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from featveil.attacks.knowledge import Guess, Knowledge
from featveil.attacks.posterior_parts.likelihoods import led_share
from featveil.attacks.posterior_parts.source_words import likeliest, source_of
from featveil.core import InputError, PrivateFeatures, WordSets
from featveil.core.arrays import Float64
from featveil.core.features import sent_by
from featveil.defenses.subset import subset_coin


@dataclass(frozen=True)
class Posterior:
    """Name the word of largest probability. Each word counts `smoothing` beside the attacker's own descriptors.

    The estimate of the descriptor is that word. The mean over all words is nearer on average where there is much doubt,
    but so is the mean of all descriptors, which says nothing; it is hardly ever near.
    """

    smoothing: float = 5.0

    name: ClassVar[str] = "posterior"
    summary: ClassVar[str] = "the likeliest word given the set, how common words are, and further releases"
    breaks: ClassVar[tuple[type, ...]] = (WordSets,)
    needs: ClassVar[tuple[str, ...]] = ("codebook",)
    uses: ClassVar[tuple[str, ...]] = ("database", "repeats")
    alone: ClassVar[bool] = False  # repeats without keypoints are matched by their order

    def __post_init__(self) -> None:
        check_smoothing(self.smoothing)

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        """The likeliest word of each feature."""
        source = source_of(knowledge, self.smoothing)
        words = likeliest(seen, knowledge.repeats, source, 1)[0][:, 0]
        return Guess.all_of(source.codebook.unit(words), words, _note(seen, knowledge, source.prior))


def posterior_bound(epsilon: float, prior: Float64) -> float:
    """How often any guess of a word can be right that an epsilon of local privacy covers, if `prior` (K,) is known.

    From any output the odds of a word against the others grow by at most e^epsilon, so they end at most at e^epsilon
    times those of the most common word. For several releases, or features that tell of each other, give the sum of
    their epsilons; for metric privacy, epsilon times the largest distance there can be.
    """
    _check_prior(prior)
    common = float(np.max(prior))
    if common >= 1:
        return 1.0
    odds = epsilon + math.log(common) - math.log1p(-common)
    return 1 / (1 + math.exp(-odds)) if odds > -700 else 0.0


def subset_optimum(epsilon: float, subset_size: int, prior: Float64) -> float:
    """How often the best guess is right, against one set of the subset mechanism: exact, and reached by Posterior.

    In the order of the prior, the first word of the set is the likeliest, unless the first word of all is in spite of
    being outside the set. `led_share` counts the sets that each word leads.
    """
    _check_prior(prior)
    ordered = np.sort(prior)[::-1]
    k, others = subset_size, len(prior) - subset_size
    sent = subset_coin(epsilon, len(prior), k).probability
    inside, outside = float(sent), float((1 - sent) * k / others)
    return float(np.maximum(inside * ordered, outside * ordered[0]) @ led_share(len(prior), k))


def _note(seen: PrivateFeatures, knowledge: Knowledge, prior: Float64) -> str:
    """What the guarantee of the subset mechanism allows, were words as common as the attacker believes."""
    epsilons = [release.defense.get("epsilon") for release in (seen, *knowledge.repeats)]
    if sent_by(seen.defense) != "subset" or not all(isinstance(epsilon, float) for epsilon in epsilons):
        return ""
    total = math.fsum(float(str(epsilon)) for epsilon in epsilons)
    most = posterior_bound(total, prior)
    bound = f"at most {most:.1%} right by any attack on each feature's own words, of epsilon {total:g}"
    size = seen.defense.get("subset_size")
    if knowledge.repeats or not isinstance(size, int):
        return bound
    return f"{bound}; {subset_optimum(total, size, prior):.1%} by the best one on sets of {size}"


def _check_prior(prior: Float64) -> None:
    if prior.ndim != 1 or not (prior >= 0).all() or not math.isclose(float(prior.sum()), 1, rel_tol=1e-6):
        raise InputError("prior must be probabilities that add up to 1")


def check_smoothing(smoothing: float) -> None:
    """Raise InputError unless `smoothing` is a number above 0."""
    if isinstance(smoothing, bool) or not isinstance(smoothing, int | float) or not 0 < smoothing < math.inf:
        raise InputError(f"smoothing must be a number above 0, got {smoothing!r:.40}")
