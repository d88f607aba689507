"""Nearest neighbours: mutual check, ratio test, distance threshold."""

from dataclasses import dataclass

import numpy as np

from featveil.core import Descriptors, Flats, InputError, Matches
from featveil.core.descriptors import as_flats
from featveil.distances import nearest, nearest_both_ways, nearest_pruned

# From here on the bound of `nearest_pruned` saves more than it costs (benchmarks/kernels.py).
_PRUNE_FROM = 4000
_PRUNE_DIMENSION = 4


@dataclass(frozen=True)
class NearestMatcher:
    """Matches each descriptor of one set with its nearest of the other.

    `mutual` keeps a pair only if each is the other's nearest. `ratio` keeps it only if the nearest is closer than that
    share of the second nearest (Lowe's test). `max_distance` keeps it only if it is at most that far.
    """

    mutual: bool = True
    ratio: float | None = None
    max_distance: float | None = None

    def __post_init__(self) -> None:
        if self.ratio is not None and not 0 < self.ratio <= 1:
            raise InputError(f"ratio must be above 0 and at most 1, got {self.ratio}")
        if self.max_distance is not None and not self.max_distance >= 0:
            raise InputError(f"max_distance must be 0 or more, got {self.max_distance}")

    def match(self, a: Descriptors, b: Descriptors) -> Matches:
        """The pairs that pass, ordered by their index in `a`."""
        a, b = as_flats(a), as_flats(b)
        if len(a) == 0 or len(b) == 0:
            return Matches(np.empty((0, 2), np.int64), np.empty(0, np.float32))
        k = 1 if self.ratio is None else 2
        back = None
        if self._worth_pruning(a, b):
            found = nearest_pruned(a, b, k)
        elif self.mutual:
            found, back = nearest_both_ways(a, b, k)
        else:
            found = nearest(a, b, k)
        rows = np.flatnonzero(self._passes(found.distances))
        columns = found.indices[rows, 0]
        if self.mutual:
            if back is None:
                # Only columns that are still in play need their own nearest.
                wanted, place = np.unique(columns, return_inverse=True)
                back_of_wanted = nearest_pruned(b.take(wanted), a, 1).indices[:, 0]
                agree = back_of_wanted[place] == rows
            else:
                agree = back[columns] == rows
            rows, columns = rows[agree], columns[agree]
        return Matches(np.stack([rows, columns], axis=1), found.distances[rows, 0])

    def _passes(
        self, distances: np.ndarray[tuple[int, int], np.dtype[np.float64]]
    ) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        passes = np.isfinite(distances[:, 0])
        if self.max_distance is not None:
            passes &= distances[:, 0] <= self.max_distance
        if self.ratio is not None:
            # Written as a product so that two zero distances (a shared database entry) do not pass.
            passes &= distances[:, 0] < self.ratio * distances[:, 1]
        return passes

    @staticmethod
    def _worth_pruning(a: Flats, b: Flats) -> bool:
        small = min(a.dimension, b.dimension) >= 1 and max(a.dimension, b.dimension) <= _PRUNE_DIMENSION
        return small and min(len(a), len(b)) >= _PRUNE_FROM
