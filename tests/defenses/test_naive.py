import math
from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from executions import Tape, executions
from featveil.core import Guarantee, InputError, Points, SecureRandomness
from featveil.core.arrays import Float32, Integers
from featveil.databases import builtin
from featveil.defenses import Naive
from featveil.defenses.subset import subset_coin

RAW = Points(builtin("sift").points()[:200])


class AgainError(Exception):
    """The true vector was drawn where another one is to be sent: it is drawn again."""


class Once:
    """A tape that ends where vectors are drawn a second time."""

    def __init__(self, tape: Tape) -> None:
        self.tape, self.vectors = tape, 0

    def random(self, size: tuple[int, ...], /, dtype: type[np.float32]) -> Float32:
        return self.tape.random(size, dtype)

    def integers(self, low: int, high: int, /, size: tuple[int, ...]) -> Integers:
        self.vectors += len(size) == 2
        if self.vectors > 1:
            raise AgainError
        return self.tape.integers(low, high, size)


def sent_shares(true: tuple[int, ...], epsilon: float, values: int) -> dict[tuple[int, ...], Fraction]:
    """Of every vector of `values` numbers, how often the sampler that ships sends it for `true`."""
    coin = subset_coin(epsilon, values ** len(true), 1)

    def send(tape: Tape) -> tuple[int, ...] | None:
        try:
            sent = Naive(epsilon).privatize(Points(np.array([true], np.float32)), Once(tape)).values[0]
        except AgainError:
            return None
        return tuple(np.rint(512 * sent).astype(int).tolist())

    shares: Counter[tuple[int, ...] | None] = Counter()
    for vector, weight in executions(send, coin):
        shares[vector] += weight  # type: ignore[assignment]
    again = Fraction(shares.pop(None))
    others = sum(Fraction(share) for vector, share in shares.items() if vector != true)
    # What is drawn again is dealt among the others as they were: the same draw, any number of times.
    return {v: Fraction(share) * (1 if v == true else 1 + again / others) for v, share in shares.items() if v}


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 16.0])
def test_no_output_tells_inputs_apart_by_more_than_epsilon(epsilon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sequence of draws is run, with bytes that have three values."""
    monkeypatch.setattr("featveil.defenses.naive._BYTE", 3)
    monkeypatch.setattr("featveil.defenses.naive.quantized", lambda rows: rows.astype(np.uint8))
    inputs = list(product(range(3), repeat=2))
    every = [sent_shares(true, epsilon, 3) for true in inputs]
    assert all(sum(shares.values()) == 1 and shares.keys() == set(inputs) for shares in every)
    worst = max(a[output] / b[output] for output in inputs for a in every for b in every)
    assert math.log(worst) <= epsilon * (1 + 1e-12)
    assert math.log(worst) > epsilon * (1 - 1e-9)


def test_it_practically_never_sends_the_descriptor() -> None:
    sent = Naive(10.0).privatize(RAW, SecureRandomness()).values
    levels = np.unique(np.rint(sent * 512))
    assert (levels == np.arange(256)).all() and (sent * 512 == np.rint(sent * 512)).all()  # every byte is sent
    assert np.linalg.norm(sent - RAW.values, axis=1).min() > 1
    assert abs(sent.mean() * 512 - 127.5) < 2  # uniform bytes, whatever the input


def test_without_a_bound_it_sends_the_descriptor_as_bytes() -> None:
    sent = Naive(math.inf).privatize(RAW, SecureRandomness()).values
    assert np.abs(sent - RAW.values).max() < 1 / 512
    assert Naive(math.inf).guarantee() == Guarantee("none")


def test_its_bound_is_of_the_same_kind() -> None:
    assert Naive(10.0).guarantee() == Guarantee("local-dp", 10.0)
    assert Naive(10.0).spec() == {"name": "naive", "epsilon": 10.0}


def test_descriptors_that_are_not_bytes_are_refused() -> None:
    with pytest.raises(InputError, match="not bytes"):
        Naive(10.0).for_kind("hardnet")
    with pytest.raises(InputError, match="negative"):
        Naive(10.0).privatize(Points(-RAW.values), SecureRandomness())


@pytest.mark.parametrize("epsilon", [0, math.nan, -3.0])
def test_a_bad_epsilon_is_refused(epsilon: float) -> None:
    with pytest.raises(InputError, match="epsilon must be"):
        Naive(epsilon)
