"""Labelled descriptors vote: what the nearest of them say of a descriptor, raw or private."""

from dataclasses import dataclass, field
from typing import Self

import numpy as np

from featveil.core import Flats, InputError, Points
from featveil.core.arrays import Integers, integers
from featveil.distances import nearest


@dataclass(frozen=True, eq=False)
class NearestLabels:
    """The label that most of the `k` nearest of the known descriptors have; of equal votes the nearer one counts."""

    k: int = 10
    known: Points | None = field(default=None, repr=False)
    labels: Integers | None = field(default=None, repr=False)

    def fit(self, known: Points, labels: object) -> Self:
        """With the known descriptors and a label (n,) for each, 0 or more."""
        return type(self)(self.k, known, checked_labels(labels, len(known)))

    def predict(self, seen: Flats) -> Integers:
        """A label (n,) for each of `seen`, points or subspaces."""
        if self.known is None or self.labels is None:
            raise InputError("fit it first")
        neighbours = nearest(seen, self.known, min(self.k, len(self.known))).indices
        votes = self.labels[neighbours]
        counts = np.zeros((len(votes), int(self.labels.max()) + 1))
        # All that is added to a vote is less than one of them, so that only equal counts are decided by it, and what
        # is added to the nearest is more than what all others are given together.
        weights = 1 + 0.25 * 0.5 ** np.arange(votes.shape[1])
        np.add.at(counts, (np.arange(len(votes))[:, None], votes), weights)
        return np.asarray(counts.argmax(axis=1))


def checked_labels(labels: object, n: int) -> Integers:
    """Labels (n,), 0 or more; raises InputError for others, and for none."""
    values: Integers = integers("attribute labels", labels, (n,))
    if n == 0 or values.min() < 0:
        raise InputError("voting needs labelled descriptors, with labels of 0 or more")
    return values
