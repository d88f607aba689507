"""(guess, truth) -> number: the only place where ground truth meets a result."""

from featveil.metrics.homography import CORRECT_PIXELS, FARTHEST, Verified, corner_error, count_verified
from featveil.metrics.matching import THRESHOLDS, matching_accuracy, mean_matching_accuracy, transfer_errors

__all__ = [
    "CORRECT_PIXELS",
    "FARTHEST",
    "THRESHOLDS",
    "Verified",
    "corner_error",
    "count_verified",
    "matching_accuracy",
    "mean_matching_accuracy",
    "transfer_errors",
]
