"""The audit lets the sampler that ships pass, and catches samplers with faults."""

import math
from functools import cached_property

import numpy as np
import pytest
from scipy.stats import binomtest

from featveil.core import InputError, NotFittedError, Randomness, WordSets
from featveil.core.arrays import Integers
from featveil.core.draws import Coin, distinct
from featveil.databases import Database
from featveil.defenses.subset import Subset, subset_coin
from featveil.pipelines.subset_parts.sampler_audit import AuditResult, audit

WORDS, A, B = 32, 3, 20
TRIALS = 20_000


@pytest.fixture(scope="module")
def codebook() -> Database:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((WORDS, 8))
    return Database.from_array(values / np.linalg.norm(values, axis=1, keepdims=True), "test", parts=1, rng=rng)


def run(mechanism: Subset, seed: int = 0, trials: int = TRIALS, confidence: float = 0.95) -> AuditResult:
    return audit(mechanism, trials, np.random.default_rng(seed), confidence, pair=(A, B))


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0, 8.0])
@pytest.mark.parametrize("k", [1, 2, 5, 31])
def test_the_sampler_that_ships_passes(codebook: Database, epsilon: float, k: int) -> None:
    result = run(Subset(epsilon, k, codebook), trials=50_000, confidence=0.99)
    assert result.holds
    assert result.effective == pytest.approx(epsilon)
    assert result.effective <= epsilon
    if result.resolved:
        assert result.bound == pytest.approx(result.attainable, abs=0.35)
    if result.expected_rare > 500:
        assert result.bound > 0.8 * epsilon - 0.3


def test_a_smaller_epsilon_shows_less(codebook: Database) -> None:
    bounds = [run(Subset(epsilon, 2, codebook)).bound for epsilon in (0.5, 1.5, 3.0, 5.0)]
    assert bounds == sorted(bounds)
    assert len(set(bounds)) == 4


class Generous(Subset):
    """Its coin is of epsilon + 1."""

    @cached_property
    def coin(self) -> Coin:
        return subset_coin(self.epsilon + 1, WORDS, self.subset_size)


class Neighbourly(Subset):
    """Its other words are not uniform: the next one is always there."""

    def hide(self, words: Integers, rng: Randomness) -> WordSets:
        sets, following = super().hide(words, rng).words.copy(), (words + 1) % WORDS
        without = ~(sets == following[:, None]).any(axis=1)
        sets[without, -1] = following[without]
        return WordSets(np.sort(sets, axis=1), "0" * 64, WORDS)


class Withholding(Subset):
    """It never sends the true word."""

    def hide(self, words: Integers, rng: Randomness) -> WordSets:
        drawn = distinct(len(words), self.subset_size, WORDS - 1, rng)
        return WordSets(np.sort(drawn + (drawn >= words[:, None]), axis=1), "0" * 64, WORDS)


@pytest.mark.parametrize("mutant", [Generous, Neighbourly, Withholding])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_faulty_samplers_are_caught(codebook: Database, mutant: type[Subset], k: int) -> None:
    result = run(mutant(1.0, k, codebook))
    assert not result.holds
    assert result.bound > 1.0
    assert run(Subset(1.0, k, codebook)).holds


def test_the_found_word_is_what_catches_a_fault_nobody_thought_of(codebook: Database) -> None:
    result = run(Neighbourly(1.0, 2, codebook))
    found = {event.direction: event for event in result.events[4:]}
    assert found["A/B"].name == f"word {A + 1} sent" and found["B/A"].name == f"word {B + 1} sent"
    assert min(event.bound for event in found.values()) > 1.0
    assert max(event.bound for event in result.events[:4]) <= 1.0


def test_a_withheld_word_shows_against_the_direction(codebook: Database) -> None:
    result = run(Withholding(1.0, 2, codebook))
    reverse = next(event for event in result.events if (event.name, event.direction) == ("A sent, B not", "B/A"))
    assert reverse.seen_a == 0 and reverse.bound > 1.0


def test_a_coin_that_is_stuck_has_no_finite_epsilon(codebook: Database) -> None:
    class Stuck(Subset):
        @cached_property
        def coin(self) -> Coin:
            return Coin(0, 32)

    assert run(Stuck(1.0, 2, codebook)).effective == math.inf


def test_the_claim_is_exceeded_no_more_often_than_stated(codebook: Database) -> None:
    mechanism, confidence, repeats = Subset(1.0, 2, codebook), 0.5, 200
    bounds = [run(mechanism, seed, 2000, confidence).bound for seed in range(repeats)]
    assert sum(bound > 1.0 for bound in bounds) <= (1 - confidence) * repeats
    assert np.median(bounds) > 0.6  # and yet it says something


def test_bounds_are_those_of_exact_intervals(codebook: Database) -> None:
    result = run(Subset(2.0, 2, codebook))
    tail = 0.05 / 12
    for event in result.events:
        seen = (event.seen_a, event.seen_b) if event.direction == "A/B" else (event.seen_b, event.seen_a)
        likely, rare = (binomtest(count, event.trials).proportion_ci(1 - 2 * tail, method="exact") for count in seen)
        assert event.bound == pytest.approx(max(0.0, math.log(likely.low / rare.high)), abs=1e-9)
    assert result.bound == max(event.bound for event in result.events)
    assert [event.trials for event in result.events] == [TRIALS] * 4 + [TRIALS // 2] * 2


def test_counts_are_those_of_the_sets(codebook: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "featveil.pipelines.subset_parts.sampler_audit._CHUNK", 100
    )  # many chunks, the last one smaller
    mechanism = Subset(2.0, 3, codebook)
    drawn: dict[int, list[set[int]]] = {A: [], B: []}

    class Watched(Subset):
        def hide(self, words: Integers, rng: Randomness) -> WordSets:
            sets = mechanism.hide(words, rng)
            drawn[int(words[0])] += [set(row.tolist()) for row in sets.words]
            assert len(words) <= 33
            return sets

    result = run(Watched(2.0, 3, codebook), trials=501)
    assert [len(sets) for sets in drawn.values()] == [501, 501]
    for place, (one, other) in enumerate(((A, B), (B, A))):
        event = result.events[2 * place]
        counts = [sum(one in words and other not in words for words in drawn[word]) for word in (A, B)]
        assert [event.seen_a, event.seen_b] == counts
    for event in result.events[4:]:
        word = int(event.name.split()[1])
        assert event.trials == 251
        assert event.seen_a == sum(word in words for words in drawn[A][250:])
        assert event.seen_b == sum(word in words for words in drawn[B][250:])


def test_too_few_trials_are_told_and_the_bound_stays_finite(codebook: Database) -> None:
    result = run(Subset(25.0, 2, codebook), trials=1000)
    assert 0 < result.bound < 25
    assert not result.resolved
    assert result.expected_rare < 1e-6
    assert result.trials_needed > 10**9
    enough = run(Subset(2.0, 2, codebook))
    assert enough.resolved
    assert enough.trials_needed * enough.expected_rare / TRIALS == pytest.approx(10, rel=0.05)


def test_seeds_pairs_and_progress(codebook: Database) -> None:
    mechanism = Subset(1.0, 2, codebook)
    steps: list[tuple[int, int]] = []
    first = audit(mechanism, 1001, np.random.default_rng(5), report=lambda done, total: steps.append((done, total)))
    assert first == audit(mechanism, 1001, np.random.default_rng(5))
    assert first.pair[0] != first.pair[1]
    assert steps[-1] == (2002, 2002)
    assert {audit(mechanism, 2).pair for _ in range(5)} != {first.pair}  # without a seed: the system's entropy


@pytest.mark.parametrize(
    ("trials", "confidence", "pair", "message"),
    [
        (1, 0.95, None, "trials"),
        (10, 1.0, None, "confidence"),
        (10, 0.0, None, "confidence"),
        (10, 0.95, (1, 1), "different words"),
        (10, 0.95, (0, WORDS), "different words"),
    ],
)
def test_impossible_settings(
    codebook: Database, trials: int, confidence: float, pair: tuple[int, int] | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        audit(Subset(1.0, 2, codebook), trials, None, confidence, pair)


def test_there_must_be_a_claim_and_a_codebook(codebook: Database) -> None:
    with pytest.raises(InputError, match="infinite"):
        audit(Subset(math.inf, 2, codebook), 10)
    with pytest.raises(NotFittedError):
        audit(Subset(1.0), 10)
