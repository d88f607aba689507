"""How near guesses come to the hidden descriptors."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from featveil.core import InputError, Points
from featveil.core.arrays import Float32, Float64, Integers
from featveil.distances import matrix

CLOSE, NEAR = 0.3, 0.5  # shares are counted below these distances
EXACT = 1e-3  # nearer than any other 8-bit descriptor of norm 512
# What records of an attack state, in this order: the fields of Leakage but the count, their names, and their units.
MEASURED = ("mean", "median", "below_close", "below_near", "exact", "rank", "answered")
METRIC = f"mean, median, below {CLOSE:g}, below {NEAR:g}, exact, rank, answered"
UNIT = "share of norm, share of norm, share, share, share, place, share"
BIN, BINS = 0.05, 32  # of histograms of distances; non-negative descriptors of one norm are at most 1.42 apart
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

    def measured(self) -> tuple[float, ...]:
        """What MEASURED names."""
        return tuple(getattr(self, name) for name in MEASURED)


def guess_distances(values: Float32, truth: Points) -> Float64:
    """Distance (n,) of each guess from the truth, as a share of the truth's norm.

    Raises InputError when guesses and truth have different shapes or a true descriptor is zero.
    """
    if values.shape != truth.values.shape:
        raise InputError(f"guesses {values.shape} do not fit the truth {truth.values.shape}")
    true = truth.values.astype(np.float64)
    norms = np.linalg.norm(true, axis=1)
    if not norms.all():
        raise InputError("a true descriptor has zero norm: leave it out")
    return np.asarray(np.linalg.norm(values - true, axis=1) / norms)


def ranks(values: Float32, hidden: Points, rows: Integers | None = None) -> Integers:
    """The place (n,) of its own truth among all of `hidden` by distance to each guess, from 1.

    The truth of guess i is hidden[rows[i]], without `rows` hidden[i]. Raises InputError when they do not fit.
    """
    rows = np.arange(len(hidden)) if rows is None else rows
    if values.shape != (len(rows), hidden.size):
        raise InputError(f"guesses {values.shape} do not fit {len(rows)} hidden descriptors of size {hidden.size}")
    places = np.empty(len(rows), np.int64)
    for start in range(0, len(rows), _ROWS):
        part = slice(start, start + _ROWS)
        table = matrix(Points(values[part]), hidden)
        own = table[np.arange(len(table)), rows[part]]
        places[part] = (table < own[:, None]).sum(axis=1) + 1
    return places


def summarize_leakage(
    values: Float32,
    answered: NDArray[np.bool_],
    hidden: Points,
    rows: Integers | None = None,
    exact: NDArray[np.bool_] | None = None,
) -> Leakage:
    """The leakage of guessed `values` (n, d), whose truths are hidden[rows], or without `rows` all of `hidden`.

    `exact` (n,) overrides what counts as found, for words. Raises InputError when nothing is to be compared.
    """
    truth = hidden if rows is None else hidden.take(rows)
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
        rank=float(np.median(ranks(values, hidden, rows))),
        answered=float(answered.mean()),
    )


def histogram(distances: Float64) -> Integers:
    """How many distances fall into each of BINS bins of width BIN; the last one also holds all beyond."""
    # The edges are no binary fractions: what lies on one belongs above it, as a distance of CLOSE is not below CLOSE.
    places = np.minimum(np.floor(distances / BIN + 1e-9), BINS - 1)
    return np.bincount(places.astype(np.int64), minlength=BINS).astype(np.int64)
