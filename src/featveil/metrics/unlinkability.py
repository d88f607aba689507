"""Whether two templates can be told to be of one person: the measures of Gomez-Barrero et al. (2018).

With LR(s) the likelihood ratio of a score s between mated and non-mated templates, and both as likely before one looks:

    D(s)  = 2 LR(s) / (1 + LR(s)) - 1 where LR(s) > 1, else 0         how far one score links
    D_sys = integral of p(s | mated) D(s) ds                           0: never, 1: each pair is told

Densities are histograms with as many bins as their authors take. Bins are few where scores are, because every empty
one looks like a link: with n scores of one distribution D_sys comes out at some 0.3 sqrt(bins / n) instead of 0.
"""

import numpy as np

from featveil.core import InputError
from featveil.core.arrays import Float64, floats

_MOST_BINS = 100
_SCORES_A_BIN = 10


def global_unlinkability(mated: object, non_mated: object) -> float:
    """D_sys of scores between `mated` (k,) and `non_mated` (l,) templates, at equal priors.

    Which end of the scale stands for likeness does not matter. Raises InputError for fewer than ten of either.
    """
    one: Float64 = floats("mated scores", mated, (None,), np.float64)
    two: Float64 = floats("non-mated scores", non_mated, (None,), np.float64)
    if min(len(one), len(two)) < _SCORES_A_BIN:
        raise InputError(f"unlinkability needs at least {_SCORES_A_BIN} scores of either sort")
    low, high = min(one.min(), two.min()), max(one.max(), two.max())
    if low == high:
        return 0.0
    bins = min(_MOST_BINS, max(2, min(len(one), len(two)) // _SCORES_A_BIN))
    edges = np.linspace(low, high, bins + 1)
    p_mated = np.histogram(one, edges)[0] / len(one)
    p_other = np.histogram(two, edges)[0] / len(two)
    total = p_mated + p_other
    # 2 LR / (1 + LR) - 1 = (p_mated - p_other) / (p_mated + p_other)
    links = np.divide(p_mated - p_other, total, out=np.zeros(bins), where=total > 0).clip(0)
    return float((p_mated * links).sum())
