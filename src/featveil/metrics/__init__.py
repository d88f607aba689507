"""(guess, truth) -> number: the only place where ground truth meets a result."""

from featveil.metrics.matching import THRESHOLDS, matching_accuracy, mean_matching_accuracy, transfer_errors

__all__ = ["THRESHOLDS", "matching_accuracy", "mean_matching_accuracy", "transfer_errors"]
