"""How well distances tell matching patches from others: the measures of PhotoTour and of HPatches.

Of equal distances the wrong ones count first: a descriptor that says the same of everything must not look good.
"""

import numpy as np
from numpy.typing import NDArray

from featveil.core import InputError
from featveil.core.arrays import Float64, floats

RECALL = 0.95


def false_positive_rate(distances: object, match: object, recall: float = RECALL) -> float:
    """The share of non-matching pairs at most as far apart as the pair that completes a `recall` of the matching ones.

    `distances` (k,) of pairs and which `match` (k,). At 0.95 this is FPR@95 (Winder and Brown, CVPR 2007). Raises
    InputError without matching or without other pairs.
    """
    values, right = _checked(distances, match)
    if not 0 < recall <= 1:
        raise InputError(f"recall must be above 0 and at most 1, got {recall}")
    if right.all() or not right.any():
        raise InputError("a false positive rate needs both matching and non-matching pairs")
    matching = np.sort(values[right])
    threshold = matching[int(np.ceil(recall * len(matching) - 1e-9)) - 1]
    return float((values[~right] <= threshold).mean())


def average_precision(distances: object, right: object, positives: int | None = None) -> float:
    """The area under precision over recall, nearest first, by the trapezoid rule as in HPatches; 0 if none is right.

    `right` (k,) says which answers are. `positives` is how many there are to find, where some may not be among them.
    """
    values, good = _checked(distances, right)
    right_ones = int(good.sum())
    wanted = right_ones if positives is None else positives
    if wanted < right_ones:
        raise InputError(f"there are {right_ones} right answers: more than the {wanted} to find")
    if right_ones == 0:
        return 0.0
    hits = np.cumsum(good[np.lexsort((good, values))])
    recall = np.concatenate([[0.0], hits / wanted])
    precision = np.concatenate([[1.0], hits / np.arange(1, len(hits) + 1)])
    return float(np.trapezoid(precision, recall))


def _checked(distances: object, right: object) -> tuple[Float64, NDArray[np.bool_]]:
    values: Float64 = floats("distances", distances, (None,), np.float64)
    labels = np.asarray(right)
    if labels.dtype != np.bool_ or labels.shape != values.shape:
        raise InputError(f"{len(values)} distances need as many labels, true or false")
    return values, labels
