import math
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from executions import executions
from featveil.core import Guarantee, InputError, NotFittedError, Points, SecureRandomness
from featveil.core.draws import Coin
from featveil.databases import Database, builtin, nearest_words
from featveil.defenses import Subset
from featveil.defenses.subset import effective_epsilon, subset_coin

Distribution = dict[frozenset[int], Fraction]


def book(size: int) -> Database:
    return Database.from_array(np.eye(size, 8, dtype=np.float32) + 0.1, "tiny", 1, rng=np.random.default_rng(0))


def distribution(mechanism: Subset, word: int) -> Distribution:
    """Of the sampler that ships: every sequence of its draws is run."""
    share: Counter[frozenset[int]] = Counter()
    for words, weight in executions(lambda tape: mechanism.hide(np.array([word]), tape).words[0], mechanism.coin):
        assert (np.diff(words) > 0).all()
        share[frozenset(words.tolist())] += weight  # type: ignore[assignment]
    return dict(share)  # type: ignore[arg-type]


def power_of_e(epsilon: float) -> Fraction:
    """A fraction below e^epsilon by less than one part in 10^75."""
    with localcontext() as context:
        context.prec = 80
        return Fraction(Decimal(epsilon).exp()) * (1 - Fraction(1, 10**76))


@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 1.0, 4.0, 16.0, 1000.0])
@pytest.mark.parametrize(("size", "k"), [(2, 1), (4, 1), (5, 2), (5, 4), (6, 3), (7, 2)])
def test_no_output_tells_inputs_apart_by_more_than_epsilon(size: int, k: int, epsilon: float) -> None:
    mechanism = Subset(epsilon, k, book(size))
    every = [distribution(mechanism, word) for word in range(size)]
    outputs = [frozenset(chosen) for chosen in combinations(range(size), k)]
    for shares in every:
        assert sum(shares.values()) == 1
        assert shares.keys() == set(
            outputs
        )  # nothing is impossible: an output that rules out an input breaks any bound
    worst = max(a[output] / b[output] for output in outputs for a in every for b in every)
    assert worst <= power_of_e(epsilon)
    if epsilon <= 16:  # and nothing is given away: the bound is reached but for the rounding of the coin
        assert float(worst / power_of_e(epsilon)) > 1 - 1e-12


@pytest.mark.parametrize(("size", "k", "epsilon"), [(5, 2, 1.0), (6, 3, 3.0)])
def test_the_distribution_is_equation_4_with_its_factor_put_right(size: int, k: int, epsilon: float) -> None:
    shares = distribution(Subset(epsilon, k, book(size)), 1)
    scale = size / (k * math.exp(epsilon) + size - k) / math.comb(size, k)
    for output, share in shares.items():
        expected = math.exp(epsilon) * scale if 1 in output else scale
        assert float(share) == pytest.approx(expected, rel=1e-12)
    printed = {output: float(share) * k / size for output, share in shares.items()}
    assert sum(printed.values()) == pytest.approx(k / size)  # what Eq. 4 adds up to as the paper prints it


@pytest.mark.parametrize("k", [1, 3])
def test_an_infinite_epsilon_always_sends_the_word(k: int) -> None:
    mechanism = Subset(math.inf, k, book(6))
    assert all(4 in output for output in distribution(mechanism, 4))
    assert mechanism.guarantee() == Guarantee("none")
    assert mechanism.spec()["epsilon"] is None


@pytest.mark.parametrize(("size", "k"), [(2, 1), (16384, 2), (256_000, 1), (1_024_000, 64), (2**1024, 1)])
@pytest.mark.parametrize("epsilon", [1e-12, 0.5, 10.0, 1000.0])
def test_the_coin_never_exceeds_the_claim(size: int, k: int, epsilon: float) -> None:
    coin = subset_coin(epsilon, size, k)
    sent, factor = coin.probability, power_of_e(epsilon) * (1 + Fraction(1, 10**75))  # just above e^epsilon
    assert sent <= k * factor / (k * factor + size - k)
    assert 0 < sent < 1
    effective = effective_epsilon(coin, size, k)
    assert effective <= epsilon * (1 + 1e-15)
    if epsilon < 60:
        assert effective == pytest.approx(epsilon, rel=1e-6, abs=1e-12)


def test_figures_of_the_paper() -> None:
    assert float(subset_coin(16, 256_000, 1).probability) == pytest.approx(0.97, abs=0.005)
    same = [float(subset_coin(10, size, k).probability) for size, k in ((256_000, 2), (512_000, 4))]
    assert same[0] == pytest.approx(same[1], rel=1e-9)


@pytest.mark.parametrize(("k", "epsilon"), [(1, 6.0), (2, 8.0), (40, 5.0)])
def test_the_vectorised_sampler_sends_the_word_as_often_as_the_coin_says(k: int, epsilon: float) -> None:
    mechanism = Subset(epsilon, k, builtin("sift"))
    words = np.random.default_rng(0).integers(0, 16384, 20_000)
    sets = mechanism.hide(words, SecureRandomness()).words
    assert (np.diff(sets, axis=1) > 0).all()
    share = float((sets == words[:, None]).any(axis=1).mean())
    expected = float(mechanism.coin.probability)
    assert abs(share - expected) < 5 * math.sqrt(expected * (1 - expected) / len(words))
    others = sets[sets != words[:, None]]
    assert np.bincount(others, minlength=16384)[:8192].mean() == pytest.approx(len(others) / 16384, rel=0.03)


def test_a_descriptor_is_replaced_by_the_set_of_its_nearest_word() -> None:
    codebook = builtin("sift")
    raw = Points(codebook.points()[:300] * 512 + np.random.default_rng(0).random((300, 128), np.float32))
    sent = Subset(math.inf, 1, codebook).privatize(raw, SecureRandomness())
    assert (sent.words[:, 0] == nearest_words(raw, codebook)[0]).all()
    assert (sent.words[:, 0] == np.arange(300)).mean() > 0.95
    assert (sent.codebook, sent.codebook_size) == (codebook.digest, 16384)


def test_no_features_and_one_feature() -> None:
    mechanism = Subset(10.0).for_kind("sift")
    assert mechanism.privatize(Points(np.empty((0, 128), np.float32)), SecureRandomness()).words.shape == (0, 2)
    assert mechanism.privatize(Points(np.ones((1, 128), np.float32)), SecureRandomness()).words.shape == (1, 2)


def test_guarantee_and_description() -> None:
    mechanism = Subset(10, 4).for_kind("sift")
    assert mechanism.guarantee() == Guarantee("local-dp", 10.0)
    assert mechanism.guarantee().compose(2048).epsilon == 20480
    digest = builtin("sift").digest
    assert mechanism.spec() == {"name": "subset", "epsilon": 10.0, "subset_size": 4, "codebook": digest}


@pytest.mark.parametrize("epsilon", [0, -1.0, math.nan, -math.inf, 1001.0, 10**400, True, "10", None])
def test_a_bad_epsilon_is_refused(epsilon: object) -> None:
    with pytest.raises(InputError, match="epsilon must be"):
        Subset(epsilon)  # type: ignore[arg-type]


def test_numbers_of_numpy_are_numbers() -> None:
    mechanism = Subset(np.float32(10), np.int64(3), builtin("sift"))  # type: ignore[arg-type]
    assert (type(mechanism.epsilon), type(mechanism.subset_size)) == (float, int)
    assert mechanism.spec()["epsilon"] == 10.0


def test_an_epsilon_that_the_coin_cannot_keep_is_refused() -> None:
    with pytest.raises(InputError, match="too small"):
        subset_coin(1e-60, 1000, 3)


@pytest.mark.parametrize("k", [0, -1, 1.5, True, 1025])
def test_a_bad_subset_size_is_refused(k: object) -> None:
    with pytest.raises(InputError, match="subset_size"):
        Subset(10.0, k)  # type: ignore[arg-type]


@pytest.mark.parametrize("k", [5, 6, 100])
def test_a_subset_that_is_not_smaller_than_the_codebook_is_refused(k: int) -> None:
    with pytest.raises(InputError, match="1 to 4 for 5 words"):
        Subset(10.0, k, book(5))


def test_codebooks_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="codebook must be a Database"):
        Subset(10.0, 2, "book.safetensors")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="use a sift codebook"):
        Subset(10.0, 2, book(5)).for_kind("sift")
    with pytest.raises(InputError, match="words have size 8"):
        Subset(10.0, 2, book(5)).privatize(Points(np.ones((1, 128), np.float32)), SecureRandomness())
    with pytest.raises(NotFittedError):
        Subset(10.0).privatize(Points(np.ones((1, 128), np.float32)), SecureRandomness())
    with pytest.raises(InputError, match="outside the codebook"):
        Subset(10.0, 2, book(5)).hide(np.array([5]), SecureRandomness())


def test_the_tape_would_notice_a_coin_that_is_too_generous() -> None:
    mechanism = Subset(1.0, 2, book(5))
    generous = Coin(mechanism.coin.heads + 2 ** (mechanism.coin.bits - 40), mechanism.coin.bits)
    mechanism.__dict__["coin"] = generous
    every = [distribution(mechanism, word) for word in (0, 1)]
    worst = max(every[0][output] / every[1][output] for output in every[0])
    assert worst > power_of_e(1.0)
