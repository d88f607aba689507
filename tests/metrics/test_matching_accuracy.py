"""Mean matching accuracy, against values worked out by hand."""

import numpy as np
import pytest

from featveil.core import InputError, Keypoints, Matches
from featveil.metrics import THRESHOLDS, matching_accuracy, mean_matching_accuracy, transfer_errors


def test_errors_are_measured_in_the_second_image() -> None:
    first = Keypoints(np.array([[0, 0], [10, 0], [5, 5]], np.float32))
    second = Keypoints(np.array([[20, 3], [0, 0]], np.float32))
    matches = Matches(np.array([[1, 0], [0, 1], [2, 1]]), np.zeros(3, np.float32))
    errors = transfer_errors(matches, first, second, np.diag([2.0, 2, 1]))
    np.testing.assert_allclose(errors, [3, 0, np.hypot(10, 10)])


@pytest.mark.parametrize("factor", [1.0, -0.3])
def test_a_homography_has_no_scale_or_sign(factor: float) -> None:
    xy = Keypoints(np.array([[3, 4], [50, 60]], np.float32))
    matches = Matches(np.array([[0, 0], [1, 1]]), np.zeros(2, np.float32))
    np.testing.assert_allclose(transfer_errors(matches, xy, xy, factor * np.eye(3)), 0, atol=1e-6)


def test_a_point_at_infinity_is_infinitely_wrong() -> None:
    homography = np.array([[1.0, 0, 0], [0, 1, 0], [1, 0, -5]])
    xy = Keypoints(np.array([[5, 0]], np.float32))
    assert transfer_errors(Matches(np.array([[0, 0]]), np.zeros(1, np.float32)), xy, xy, homography) == [np.inf]


def test_accuracy_counts_errors_up_to_and_at_the_threshold() -> None:
    accuracy = matching_accuracy(np.array([0.5, 1.0, 2.5, 100]))
    assert accuracy.tolist() == [0.5, 0.5] + [0.75] * 8
    assert len(accuracy) == len(THRESHOLDS) == 10


def test_no_match_is_no_accuracy() -> None:
    assert matching_accuracy(np.empty(0)).tolist() == [0.0] * 10


def test_the_mean_is_over_pairs() -> None:
    assert mean_matching_accuracy([(1.0, 1.0), (0.0, 0.5)]).tolist() == [0.5, 0.75]
    with pytest.raises(InputError, match="at least one"):
        mean_matching_accuracy([])
