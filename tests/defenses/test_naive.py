import math

import numpy as np
import pytest

from featveil.core import Guarantee, InputError, Points, SecureRandomness
from featveil.databases import builtin
from featveil.defenses import Naive

RAW = Points(builtin("sift").points()[:200])


def test_it_practically_never_sends_the_descriptor() -> None:
    sent = Naive(10.0).privatize(RAW, SecureRandomness()).values
    assert sent.min() >= 0
    assert sent.max() < 0.5
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
