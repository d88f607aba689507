"""(guess, truth) -> number: the only place where ground truth meets a result."""

from featveil.metrics.homography_error import (
    CORRECT_PIXELS,
    FARTHEST,
    Verified,
    corner_error,
    count_verified,
)
from featveil.metrics.leakage import (
    BIN,
    BINS,
    CLOSE,
    EXACT,
    NEAR,
    Leakage,
    guess_distances,
    histogram,
    ranks,
    summarize_leakage,
)
from featveil.metrics.matching_accuracy import (
    THRESHOLDS,
    matching_accuracy,
    mean_matching_accuracy,
    transfer_errors,
)
from featveil.metrics.patch_ranking import average_precision, false_positive_rate
from featveil.metrics.pose_errors import (
    POSE_THRESHOLDS,
    TIGHT_POSE_THRESHOLDS,
    find_similarity,
    move_points,
    pose_errors,
    shares_within,
)
from featveil.metrics.pose_errors import align as align_poses
from featveil.metrics.truth import Truth, align

__all__ = [
    "BIN",
    "BINS",
    "CLOSE",
    "CORRECT_PIXELS",
    "EXACT",
    "FARTHEST",
    "NEAR",
    "POSE_THRESHOLDS",
    "THRESHOLDS",
    "TIGHT_POSE_THRESHOLDS",
    "Leakage",
    "Truth",
    "Verified",
    "align",
    "align_poses",
    "average_precision",
    "corner_error",
    "count_verified",
    "false_positive_rate",
    "find_similarity",
    "guess_distances",
    "histogram",
    "matching_accuracy",
    "mean_matching_accuracy",
    "move_points",
    "pose_errors",
    "ranks",
    "shares_within",
    "summarize_leakage",
    "transfer_errors",
]
