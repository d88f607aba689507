"""How near guesses come to the hidden descriptors."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from featveil.core import InputError, Points
from featveil.core.arrays import Float32, Float64, Integers
from featveil.distances import matrix

CLOSE, NEAR = 0.3, 0.5  # shares are counted below these distances
EXACT = 1e-3  # nearer than any other 8-bit descriptor of norm 512
_ROWS = 2048  # of guesses whose distances to every truth are held at a time


@dataclass(frozen=True)
class Leakage:
    """Distances are those of guess and truth, as a share of the truth's norm: `mean`, `median`, shares below.

    `exact` is the share of guesses that are the hidden descriptor (or word), `rank` the median place of the true
    descriptor among all hidden ones of the file by distance to the guess (1: singled out), `answered` the share of
    features for which the attack found anything. Unanswered features count with their fallback.
    """

    count: int
    mean: float
    median: float
    below_close: float
    below_near: float
    exact: float
    rank: float
    answered: float


def guess_distances(values: Float32, truth: Points) -> Float64:
    """Distance (n,) of each guess from the truth, as a share of the truth's norm."""
    if values.shape != truth.values.shape:
        raise InputError(f"guesses {values.shape} do not fit the truth {truth.values.shape}")
    true = truth.values.astype(np.float64)
    return np.asarray(np.linalg.norm(values - true, axis=1) / np.linalg.norm(true, axis=1))


def ranks(values: Float32, truth: Points) -> Integers:
    """The place (n,) of its own truth among all of `truth` by distance to each guess, from 1."""
    places = np.empty(len(truth), np.int64)
    for start in range(0, len(truth), _ROWS):
        part = np.arange(start, min(start + _ROWS, len(truth)))
        table = matrix(Points(values[part]), truth)
        own = table[np.arange(len(part)), part]
        places[part] = (table < own[:, None]).sum(axis=1) + 1
    return places


def summarize_leakage(
    values: Float32, answered: NDArray[np.bool_], truth: Points, exact: NDArray[np.bool_] | None = None
) -> Leakage:
    """The leakage of guessed `values` (n, d). `exact` (n,) overrides what counts as found, for words."""
    if len(truth) == 0:
        raise InputError("there is no feature whose truth is known")
    distances = guess_distances(values, truth)
    return Leakage(
        count=len(truth),
        mean=float(distances.mean()),
        median=float(np.median(distances)),
        below_close=float((distances < CLOSE).mean()),
        below_near=float((distances < NEAR).mean()),
        exact=float((distances < EXACT if exact is None else exact).mean()),
        rank=float(np.median(ranks(values, truth))),
        answered=float(answered.mean()),
    )
