"""A statistical check of the sampler that ships: how much it demonstrably leaks, as a lower bound on its epsilon.

Whatever event E and inputs A and B: ln(P(E | A) / P(E | B)) is at most epsilon. Sets are drawn for two words, and a
Clopper-Pearson interval of each probability, the lower end over the upper one, bounds epsilon from below. A bound above
the claim shows a fault. A bound below it proves nothing: the proof is in defenses/subset.md.

The events "A is sent and B is not", and the reverse, are fixed beforehand: each such set has the full ratio e^epsilon.
A third one looks for faults that nobody thought of: the word whose presence tells the two inputs apart best. It is
chosen on one half of the trials and measured on the other, so the choice does not bias it. All statements are made
together at the stated confidence (Bonferroni).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from featveil.core import InputError, NotFittedError, Randomness, SecureRandomness
from featveil.core.arrays import Float64, Integers
from featveil.core.draws import distinct
from featveil.defenses.subset import Subset, effective_epsilon, subset_coin

Direction = Literal["A/B", "B/A"]
Report = Callable[[int, int], None]

RESOLVED = 10  # expected sightings of the rare event from which on its probability is known well enough
MOST_TRIALS = 10**10  # hours
_DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
_STATEMENTS = 6  # three events, in both directions
_CHUNK = 2**18  # words that are drawn at a time, to bound memory


@dataclass(frozen=True)
class AuditEvent:
    """An event, how often it was seen in `trials` sets of each input, and the epsilon that this shows at least."""

    name: str
    direction: Direction
    seen_a: int
    seen_b: int
    trials: int
    bound: float


@dataclass(frozen=True)
class AuditResult:
    """The outcome. Epsilons are per descriptor.

    `effective` is the epsilon of the coin after rounding, `bound` what was shown at least, `attainable` what a correct
    sampler shows at least, typically, with as many trials. `expected_rare` is how often a correct sampler shows the
    rarer event; below RESOLVED more trials are needed, `trials_needed` of them.
    """

    claimed: float
    effective: float
    bound: float
    attainable: float
    confidence: float
    trials: int
    pair: tuple[int, int]
    events: tuple[AuditEvent, ...]
    expected_rare: float
    trials_needed: int

    @property
    def holds(self) -> bool:
        """Whether nothing above the claim was shown."""
        return self.bound <= self.claimed

    @property
    def resolved(self) -> bool:
        """Whether there were enough trials to see the claimed epsilon."""
        return self.expected_rare >= RESOLVED


def audit(
    mechanism: Subset,
    trials: int,
    rng: Randomness | None = None,
    confidence: float = 0.95,
    pair: tuple[int, int] | None = None,
    report: Report | None = None,
) -> AuditResult:
    """Draw `trials` sets for each word of `pair` (default: two random ones) and bound epsilon from below.

    `report` is called with (done, total) sets. Raises InputError for an infinite epsilon or impossible settings.
    """
    if mechanism.codebook is None:
        raise NotFittedError("this mechanism has no codebook: call for_kind(kind), or give one")
    _check(mechanism, trials, confidence)
    rng = rng or SecureRandomness()
    size = len(mechanism.codebook)
    words = _pair(pair, size, rng)
    sampler = _Sampler(mechanism, size, words, rng, 2 * trials, report)
    choosing, measuring = (
        [sampler.tally(word, count) for word in words] for count in (trials // 2, trials - trials // 2)
    )
    tail = (1 - confidence) / (2 * _STATEMENTS)  # two ends of intervals to each statement
    events = [*_fixed(choosing, measuring, tail), *_found(choosing, measuring, tail)]
    likely, rare = _expected(mechanism.epsilon, size, mechanism.subset_size)
    stuck = mechanism.coin.probability in (0, 1)
    return AuditResult(
        claimed=float(mechanism.epsilon),
        effective=math.inf if stuck else effective_epsilon(mechanism.coin, size, mechanism.subset_size),
        bound=max(event.bound for event in events),
        attainable=_bound(round(likely * trials), round(rare * trials), trials, tail),
        confidence=confidence,
        trials=trials,
        pair=words,
        events=tuple(events),
        expected_rare=float(rare * trials),
        trials_needed=math.ceil(RESOLVED / rare),
    )


@dataclass(frozen=True, eq=False)
class _Tally:
    """Of `trials` sets of one input: how often each word was sent (K,), and just one of the two words."""

    sent: Integers
    only_a: int
    only_b: int
    trials: int

    def __add__(self, other: "_Tally") -> "_Tally":
        return _Tally(
            self.sent + other.sent, self.only_a + other.only_a, self.only_b + other.only_b, self.trials + other.trials
        )


@dataclass
class _Sampler:
    """Draws sets in chunks and counts them; `report` hears how many of the `total` are done."""

    mechanism: Subset
    size: int
    pair: tuple[int, int]
    rng: Randomness
    total: int
    report: Report | None
    done: int = 0

    def tally(self, word: int, trials: int) -> _Tally:
        """Of the word `word`."""
        sent, only = np.zeros(self.size, np.int64), [0, 0]
        chunk = max(1, _CHUNK // self.mechanism.subset_size)
        for start in range(0, trials, chunk):
            count = min(chunk, trials - start)
            sets = self.mechanism.hide(np.full(count, word), self.rng).words
            sent += np.bincount(sets.ravel(), minlength=self.size)
            has_a, has_b = ((sets == one).any(axis=1) for one in self.pair)
            only[0] += int((has_a & ~has_b).sum())
            only[1] += int((has_b & ~has_a).sum())
            self.done += count
            if self.report is not None:
                self.report(self.done, self.total)
        return _Tally(sent, only[0], only[1], trials)


def _fixed(choosing: list[_Tally], measuring: list[_Tally], tail: float) -> Iterator[AuditEvent]:
    """The events that were fixed beforehand, so all trials may count."""
    a, b = (first + second for first, second in zip(choosing, measuring, strict=True))
    for name, seen_a, seen_b in (("A sent, B not", a.only_a, b.only_a), ("B sent, A not", a.only_b, b.only_b)):
        for direction in _DIRECTIONS:
            yield _event(name, direction, (seen_a, seen_b), a.trials, tail)


def _found(choosing: list[_Tally], measuring: list[_Tally], tail: float) -> Iterator[AuditEvent]:
    """For each direction the word with the largest bound in the first half, measured in the second."""
    a, b = measuring
    for direction in _DIRECTIONS:
        likely, rare = choosing if direction == "A/B" else choosing[::-1]
        word = int(np.argmax(_bounds(likely.sent, rare.sent, likely.trials, tail)))
        yield _event(f"word {word} sent", direction, (int(a.sent[word]), int(b.sent[word])), a.trials, tail)


def _event(name: str, direction: Direction, seen: tuple[int, int], trials: int, tail: float) -> AuditEvent:
    likely, rare = seen if direction == "A/B" else seen[::-1]
    return AuditEvent(name, direction, *seen, trials, _bound(likely, rare, trials, tail))


def _bound(likely: int, rare: int, trials: int, tail: float) -> float:
    """An epsilon is never below 0."""
    return max(0.0, float(_bounds(np.array([likely]), np.array([rare]), trials, tail)[0]))


def _bounds(likely: Integers, rare: Integers, trials: int, tail: float) -> Float64:
    """ln(lower end of P(likely) / upper end of P(rare)), minus infinity where nothing was seen.

    Clopper-Pearson ends, each of which errs with probability `tail` at most. A rare event that was never seen still has
    an upper end.
    """
    few, place_few = np.unique(rare, return_inverse=True)  # counts repeat a lot, and quantiles are slow
    many, place_many = np.unique(likely, return_inverse=True)
    lower = np.where(many > 0, beta.ppf(tail, np.maximum(many, 1), trials - many + 1), 0.0)
    upper = np.where(few < trials, beta.isf(tail, few + 1, np.maximum(trials - few, 1)), 1.0)
    with np.errstate(divide="ignore"):
        gap: NDArray[np.float64] = np.log(lower)[place_many] - np.log(upper)[place_few]
    return gap


def _expected(epsilon: float, size: int, subset_size: int) -> tuple[Fraction, Fraction]:
    """Probability of "A sent, B not" in a correct sampler: under A, and under B."""
    sent = subset_coin(epsilon, size, subset_size).probability
    return sent * Fraction(size - subset_size, size - 1), (1 - sent) * Fraction(subset_size, size - 1)


def _pair(pair: tuple[int, int] | None, size: int, rng: Randomness) -> tuple[int, int]:
    first, second = distinct(1, 2, size, rng)[0] if pair is None else pair
    if not (0 <= first < size and 0 <= second < size) or first == second:
        raise InputError(f"pair must be two different words from 0 to {size - 1}, got {first} and {second}")
    return int(first), int(second)


def _check(mechanism: Subset, trials: int, confidence: float) -> None:
    if math.isinf(mechanism.epsilon):
        raise InputError("an infinite epsilon claims nothing, so there is nothing to audit: give a finite one")
    if type(trials) is not int or not 2 <= trials <= MOST_TRIALS:
        raise InputError(f"trials must be a whole number from 2 to {MOST_TRIALS:,}, got {trials!r}")
    if not 0 < confidence < 1:
        raise InputError(f"confidence must be between 0 and 1, got {confidence!r}")
