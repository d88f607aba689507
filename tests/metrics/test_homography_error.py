"""Corner error and counts, against values worked out by hand."""

import numpy as np
import pytest

from featveil.core import InputError, Matches
from featveil.metrics import FARTHEST, Verified, corner_error, count_verified

TRUTH = np.array([[0.9, 0.1, 20], [-0.05, 1.1, 5], [1e-4, -5e-5, 1]])


@pytest.mark.parametrize("factor", [1.0, -0.3])
def test_the_truth_has_no_error_whatever_its_scale(factor: float) -> None:
    assert corner_error(factor * TRUTH, TRUTH, (320, 240)) == pytest.approx(0, abs=1e-9)


def test_a_shift_is_as_long_as_it_is() -> None:
    assert corner_error(np.array([[1.0, 0, 3], [0, 1, 4], [0, 0, 1]]), np.eye(3), (7, 9)) == pytest.approx(5)


def test_the_error_is_the_mean_over_four_corners() -> None:
    # Twice as wide: the two corners on the right move by the width.
    assert corner_error(np.diag([2.0, 1, 1]), np.eye(3), (100, 50)) == pytest.approx(50)
    assert corner_error(np.diag([1.0, 2, 1]), np.eye(3), (100, 50)) == pytest.approx(25)


@pytest.mark.parametrize(
    "estimate",
    [
        None,
        np.full((3, 3), np.nan),
        np.array([[1.0, 0, 0], [0, 1, 0], [-0.01, 0, 1]]),  # puts the right edge at infinity
        np.zeros((3, 3)),
        np.array([[1.0, 0, 1e300], [0, 1, 0], [0, 0, 1]]),
    ],
)
def test_no_homography_is_as_far_as_can_be_recorded(estimate: object) -> None:
    assert corner_error(estimate, np.eye(3), (100, 50)) == FARTHEST  # type: ignore[arg-type]


def test_a_wrong_truth_is_refused() -> None:
    with pytest.raises(InputError, match="true homography"):
        corner_error(np.eye(3), np.eye(2), (100, 50))


def test_a_private_feature_counts_once() -> None:
    pairs = np.array([[0, 7], [1, 7], [2, 8], [3, 8], [4, 9], [5, 6]])
    matches = Matches(pairs, np.zeros(6, np.float32))
    agree = np.array([True, True, True, False, True, False])
    errors = np.array([1.0, 5.0, 5.1, 2.0, np.inf, 0.0])
    # Features 7, 8 and 9 agree; of 8 the candidate that agrees is wrong, and the right one does not agree.
    assert count_verified(matches, agree, errors) == Verified(6, 4, 3, 1)
    assert count_verified(matches, agree, errors, pixels=1) == Verified(6, 2, 3, 1)


def test_nothing_to_count() -> None:
    none = Matches(np.empty((0, 2), np.int64), np.empty(0, np.float32))
    assert count_verified(none, np.empty(0, np.bool_), np.empty(0)) == Verified(0, 0, 0, 0)
