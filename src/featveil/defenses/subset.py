"""Subset mechanism: each descriptor becomes k words of a public codebook (Pittaluga and Zhuang 2023, section 5).

Hides:          which word of the codebook is nearest to the descriptor, within e^epsilon; subset.md has the proof.
From:           anyone, whatever they know or compute: the bound needs no assumption on the attacker.
Does not hide:  keypoint positions, the number of features. Epsilons add up over the features of an image.
Known breaks:   none of the bound. A large epsilon bounds nothing that matters: `featveil subset plan` says when.
"""

import math
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from numbers import Integral, Real
from typing import Any, Self

import numpy as np

from featveil.core import Guarantee, InputError, NotFittedError, Points, Randomness, Spec, WordSets
from featveil.core.arrays import Integers
from featveil.core.draws import Coin, distinct
from featveil.core.options import option
from featveil.databases import Database, builtin, nearest_words
from featveil.databases.codebooks import check_codebook
from featveil.databases.entries import DATABASE_OPTION

LARGEST_EPSILON = 1000.0
EPSILON: dict[str, Any] = {
    "help": "bound on the leakage of each descriptor.",
    "needed": "the bound on what a descriptor leaks: see featveil subset plan",
}
CODEBOOK: dict[str, Any] = {"help": "file of the codebook.", **DATABASE_OPTION}
LARGEST_SUBSET = 1024  # drawing a set takes time in proportion to its square from about the root of K on
_SPARE_BITS = 96  # of the coin, beyond those that number the words
_SPARE_DIGITS = 60  # of e^epsilon, likewise


@dataclass(frozen=True)
class Subset:
    """Replace each descriptor by `subset_size` words: as often with its nearest as `epsilon` allows.

    `codebook` holds the words (default: the built-in database of the descriptor's kind). An infinite `epsilon` always
    sends the nearest word: quantisation, which guarantees nothing. A `subset_size` of 1 is randomised response.
    """

    epsilon: float = option(**EPSILON)
    subset_size: int = option(2, help="words sent for each descriptor.")
    codebook: Database | None = option(None, **CODEBOOK)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        object.__setattr__(self, "subset_size", check_subset_size(self.subset_size))
        if self.codebook is not None:
            check_codebook(self.codebook)
            subset_coin(self.epsilon, len(self.codebook), self.subset_size)

    def for_kind(self, kind: str) -> Self:
        """This mechanism with the built-in codebook of `kind`, unless it has its own."""
        return replace(self, codebook=codebook_for(self.codebook, kind))

    def guarantee(self) -> Guarantee:
        """Local differential privacy of each descriptor, unless epsilon is infinite."""
        return Guarantee("none") if math.isinf(self.epsilon) else Guarantee("local-dp", float(self.epsilon))

    def spec(self) -> Spec:
        """Epsilon, subset size and the digest of the codebook."""
        return {
            "name": "subset",
            "epsilon": None if math.isinf(self.epsilon) else float(self.epsilon),
            "subset_size": self.subset_size,
            "codebook": None if self.codebook is None else self.codebook.digest,
        }

    def privatize(self, points: Points, rng: Randomness, labels: Integers | None = None) -> WordSets:
        """The word set of each point: its nearest word, hidden."""
        return self.hide(nearest_words(points, self._words)[0], rng)

    def hide(self, words: Integers, rng: Randomness) -> WordSets:
        """The mechanism: for each of `words` (n,), a random set that is the likelier for containing it."""
        codebook, k = self._words, self.subset_size
        if len(words) and not 0 <= words.min() <= words.max() < len(codebook):
            raise InputError(f"a word index is outside the codebook: it must be 0 to {len(codebook) - 1}")
        return WordSets(sets_with(words, len(codebook), k, self.coin, rng), codebook.digest, len(codebook))

    @cached_property
    def coin(self) -> Coin:
        """Whether the nearest word is sent."""
        return subset_coin(self.epsilon, len(self._words), self.subset_size)

    @property
    def _words(self) -> Database:
        if self.codebook is None:
            raise NotFittedError("this mechanism has no codebook: call for_kind(kind), or give one")
        return self.codebook


def sets_with(words: Integers, codebook_size: int, subset_size: int, coin: Coin, rng: Randomness) -> Integers:
    """Rising sets (n, k) of words below `codebook_size`: with each of `words` (n,) where the `coin` shows heads."""
    kept = coin.flip(len(words), rng)
    sets = np.empty((len(words), subset_size), np.int64)
    for rows, others in ((np.flatnonzero(~kept), subset_size), (np.flatnonzero(kept), subset_size - 1)):
        drawn = distinct(len(rows), others, codebook_size - 1, rng)
        sets[rows, :others] = drawn + (drawn >= words[rows, None])  # stepping over the word itself
        sets[rows, others:] = words[rows, None]
    sets.sort(axis=1)
    return sets


def subset_coin(epsilon: float, codebook_size: int, subset_size: int) -> Coin:
    """The coin of Eq. 5: heads with probability k e^epsilon / (k e^epsilon + K - k), rounded down.

    Rounding down keeps the claim: both ratios of subset.md are checked in exact fractions, with a bound from below in
    place of e^epsilon. Raises InputError when there are too few words, or epsilon is too small for that.
    """
    check_epsilon(epsilon)
    k, others = subset_size, codebook_size - subset_size
    if k < 1 or others < 1:
        raise InputError(f"subset_size must be 1 to {codebook_size - 1} for {codebook_size} words, got {k}")
    bits = -(-(codebook_size.bit_length() + _SPARE_BITS) // 32) * 32
    if math.isinf(epsilon):
        return Coin(1 << bits, bits)
    factor = exponential_from_below(epsilon, len(str(codebook_size)))
    ideal = k * factor / (k * factor + others)
    coin = Coin(math.floor(ideal * (1 << bits)), bits)
    sent = coin.probability
    if not (sent * others <= (1 - sent) * k * factor and (1 - sent) * k <= sent * others * factor):
        raise InputError(f"epsilon {epsilon:g} is too small to be kept exactly: use at least 1e-20")
    return coin


def exponential_from_below(exponent: float, digits: int = 0) -> Fraction:
    """A fraction just below e^exponent, to `digits` digits more than enough for a small codebook."""
    with localcontext() as context:
        context.prec = digits + _SPARE_DIGITS
        return Fraction(Decimal(exponent).exp().next_minus())  # exp is rounded correctly, so one step down is below


def effective_epsilon(coin: Coin, codebook_size: int, subset_size: int) -> float:
    """The epsilon that the rounded coin has: at most the one that was asked for."""
    if coin.probability == 1:
        return math.inf
    ratio = coin.probability * (codebook_size - subset_size) / ((1 - coin.probability) * subset_size)
    with localcontext() as context:
        context.prec = len(str(codebook_size)) + _SPARE_DIGITS
        return float(abs((Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln()))


def check_epsilon(epsilon: float) -> float:
    """`epsilon` as a float; raises InputError unless it is above 0 and, if finite, at most LARGEST_EPSILON."""
    if isinstance(epsilon, bool) or not isinstance(epsilon, Real) or not epsilon > 0:
        raise InputError(f"epsilon must be a number above 0, got {epsilon!r:.80}")
    if epsilon > LARGEST_EPSILON and epsilon != math.inf:
        raise InputError(f"epsilon must be at most {LARGEST_EPSILON:g}: more bounds nothing")
    return float(epsilon)


def check_subset_size(subset_size: int) -> int:
    """`subset_size` as an int; raises InputError unless it is 1 to LARGEST_SUBSET."""
    whole = isinstance(subset_size, Integral) and not isinstance(subset_size, bool)
    if not whole or not 1 <= subset_size <= LARGEST_SUBSET:
        raise InputError(f"subset_size must be a whole number from 1 to {LARGEST_SUBSET}, got {subset_size!r:.80}")
    return int(subset_size)


def codebook_for(codebook: Database | None, kind: str) -> Database:
    """`codebook`, or without one the built-in database of `kind`; raises InputError when it is of another kind."""
    if codebook is None:
        return builtin(kind)
    if codebook.kind != kind:
        raise InputError(f"the codebook holds {codebook.kind} words, the features are {kind}: use a {kind} codebook")
    return codebook
