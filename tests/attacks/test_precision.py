"""Which precision a search settles on, and when it gives up."""

import pytest

from featveil.attacks.lattice_parts.precision import HALF, SINGLE, check_precision, search
from featveil.core import InputError


def searched(count: int, precision: float | None, found: dict[float, float]) -> tuple[list[str | None], list[float]]:
    """What a search finds that has something at that share of the features, and the precisions it asked in turn."""
    asked: list[float] = []

    def find(row: int, level: float) -> str | None:
        asked.append(level)
        share = found.get(level, 0)
        return f"{row} at {level}" if int((row + 1) * share) > int(row * share) else None

    return search(count, precision, find), asked


def test_single_precision_is_enough_where_it_finds_most() -> None:
    results, asked = searched(40, None, {SINGLE: 1.0, HALF: 1.0})
    assert results == [f"{row} at {SINGLE}" for row in range(40)]
    assert asked == [SINGLE] * 40


def test_half_precision_is_taken_where_it_finds_more() -> None:
    results, asked = searched(40, None, {SINGLE: 0.25, HALF: 0.5})
    assert results == searched(40, HALF, {HALF: 0.5})[0]
    assert sum(result is not None for result in results) == 20
    assert asked == [SINGLE] * 16 + [HALF] * 40


def test_single_precision_is_taken_where_half_finds_less() -> None:
    assert searched(40, None, {SINGLE: 0.25, HALF: 0.125})[0] == searched(40, SINGLE, {SINGLE: 0.25})[0]


def test_it_gives_up_where_the_first_have_nothing() -> None:
    results, asked = searched(40, None, {})
    assert results == [None] * 40
    assert asked == [SINGLE] * 16 + [HALF] * 16


@pytest.mark.parametrize("count", [0, 1, 16, 17])
def test_one_answer_for_each_feature(count: int) -> None:
    assert len(searched(count, None, {HALF: 1.0})[0]) == count
    assert len(searched(count, HALF, {})[0]) == count


def test_only_the_given_precision_is_asked() -> None:
    assert set(searched(20, 1e-5, {SINGLE: 1.0})[1]) == {1e-5}


@pytest.mark.parametrize("precision", [0.0, 1e-9, 0.01, float("nan")])
def test_a_precision_must_make_sense(precision: float) -> None:
    with pytest.raises(InputError, match="precision"):
        check_precision(precision)
    check_precision(SINGLE)
    check_precision(None)
