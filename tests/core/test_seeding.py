"""Draws of a study: repeatable, and each its own."""

from collections.abc import Callable
from typing import Any

import pytest

from featveil.core import InputError
from featveil.core.seeding import check_seed, generator, image_generator


def first_draw(make: Callable[..., Any], *names: object) -> int:
    return int(make(*names).integers(0, 2**62))


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (generator, [(0, "a", "b"), (1, "a", "b"), (0, "a/b"), (0, "ab", ""), (0, "a", "c"), (0, "a")]),
        (image_generator, [(0, "a", 1, "x"), (1, "a", 1, "x"), (0, "b", 1, "x"), (0, "a", 2, "x"), (0, "a", 1, "y")]),
    ],
)
def test_each_has_its_own(make: Callable[..., Any], names: list[tuple[object, ...]]) -> None:
    draws = [first_draw(make, *given) for given in names]
    assert len(set(draws)) == len(names)
    assert first_draw(make, *names[0]) == draws[0]


def test_they_stay_as_they_were_for_published_records() -> None:
    assert first_draw(generator, 7, "a.veil", "nearest") == 2654648320442550787
    assert first_draw(image_generator, 7, "v_wall", 3, "sub-hybrid-4") == 2548569503657357400


@pytest.mark.parametrize("seed", [-1, 1.0, True, "0", None])
def test_seeds_that_cannot_be(seed: Any) -> None:
    with pytest.raises(InputError, match="seed must be a whole number of at least 0"):
        check_seed(seed)
    check_seed(0)
