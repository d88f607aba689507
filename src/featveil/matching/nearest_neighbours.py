"""Nearest neighbours: mutual check, ratio test, distance threshold; by plain distance or on the unit sphere."""

from dataclasses import dataclass

import numpy as np

from featveil.core import Descriptors, Flats, InputError, Matches
from featveil.core.arrays import Float64, Integers
from featveil.core.descriptors import as_flats
from featveil.distances import (
    Nearest,
    distances_to_sphere,
    nearest,
    nearest_both_ways,
    nearest_pruned,
    sphere_distances,
)

# From here on the bound of `nearest_pruned` saves more than it costs (benchmarks/kernels.py).
_PRUNE_FROM = 4000
_PRUNE_DIMENSION = 4

# Candidates of each descriptor that are compared on the sphere; more find hardly more (docs/distances.md).
_RERANKED = 10
_NORM_TOLERANCE = 1e-2


@dataclass(frozen=True)
class NearestMatcher:
    """Matches each descriptor of one set with its nearest of the other.

    `mutual` keeps a pair only if each is the other's nearest. `ratio` keeps it only if the nearest is closer than that
    share of the second nearest (Lowe's test). `max_distance` keeps it only if it is at most that far.

    `on_sphere` is for lifted descriptors of norm 1: the nearest few of each descriptor, seen from either side, are
    ranked again by the distance between those parts of their subspaces that lie on the unit sphere, and the tests
    apply to that distance. Between two subspaces it finds more right matches, between a point and a subspace it does
    not (docs/distances.md). It takes about three times as long.
    """

    mutual: bool = True
    ratio: float | None = None
    max_distance: float | None = None
    on_sphere: bool = False

    def __post_init__(self) -> None:
        if self.ratio is not None and not 0 < self.ratio <= 1:
            raise InputError(f"ratio must be above 0 and at most 1, got {self.ratio}")
        if self.max_distance is not None and not self.max_distance >= 0:
            raise InputError(f"max_distance must be 0 or more, got {self.max_distance}")

    def match(self, a: Descriptors, b: Descriptors) -> Matches:
        """The pairs that pass, ordered by their index in `a`.

        Raises InputError when sizes differ, or `on_sphere` is asked of descriptors that do not have norm 1.
        """
        a, b = as_flats(a), as_flats(b)
        if len(a) == 0 or len(b) == 0:
            return Matches(np.empty((0, 2), np.int64), np.empty(0, np.float32))
        neighbours, back = self._neighbours(a, b)
        rows = np.flatnonzero(self._passes(neighbours.distances))
        columns = neighbours.indices[rows, 0]
        if self.mutual:
            if back is None:
                # Only columns that are still in play need their own nearest.
                wanted, place = np.unique(columns, return_inverse=True)
                back_of_wanted = nearest_pruned(b.take(wanted), a, 1).indices[:, 0]
                agree = back_of_wanted[place] == rows
            else:
                agree = back[columns] == rows
            rows, columns = rows[agree], columns[agree]
        return Matches(np.stack([rows, columns], axis=1), neighbours.distances[rows, 0])

    def _neighbours(self, a: Flats, b: Flats) -> tuple[Nearest, Integers | None]:
        """The nearest of `b` for each of `a`, and for each of `b` its nearest of `a` where that came along."""
        if self.on_sphere:
            return _nearest_on_sphere(a, b)
        k = 1 if self.ratio is None else 2
        if _worth_pruning(a, b):
            return nearest_pruned(a, b, k), None
        if self.mutual:
            return nearest_both_ways(a, b, k)
        return nearest(a, b, k), None

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


def _worth_pruning(a: Flats, b: Flats) -> bool:
    small = min(a.dimension, b.dimension) >= 1 and max(a.dimension, b.dimension) <= _PRUNE_DIMENSION
    return small and min(len(a), len(b)) >= _PRUNE_FROM


def _nearest_on_sphere(a: Flats, b: Flats) -> tuple[Nearest, Integers]:
    """The two nearest of `b` for each of `a`, and the nearest of `a` for each of `b`, among the re-ranked pairs."""
    for side in (a, b):
        if distances_to_sphere(side).max() > _NORM_TOLERANCE:
            raise InputError(
                "on_sphere is for descriptors of norm 1 or subspaces that contain such, and some here do not:"
                " normalise them before lifting, or match without it"
            )
    search = nearest_pruned if _worth_pruning(a, b) else nearest
    forth, back = search(a, b, _RERANKED).indices, search(b, a, _RERANKED).indices
    rows = np.concatenate([np.repeat(np.arange(len(a)), _RERANKED), back.reshape(-1)])
    columns = np.concatenate([forth.reshape(-1), np.repeat(np.arange(len(b)), _RERANKED)])
    listed = (rows >= 0) & (columns >= 0)
    rows, columns = np.divmod(np.unique(rows[listed] * len(b) + columns[listed]), len(b))
    distances = sphere_distances(a, b, rows, columns)
    return _two_nearest(rows, columns, distances), _two_nearest(columns, rows, distances).indices[:, 0]


def _two_nearest(owners: Integers, others: Integers, distances: Float64) -> Nearest:
    """The two nearest `others` of each owner, every one of which has at least one; ties go to the lower index."""
    order = np.lexsort((others, distances, owners))
    _, first, counts = np.unique(owners[order], return_index=True, return_counts=True)
    chosen = order[np.stack([first, first + (counts > 1)], axis=1)]
    neighbours = Nearest(others[chosen], distances[chosen])
    neighbours.indices[counts == 1, 1], neighbours.distances[counts == 1, 1] = -1, np.inf
    return neighbours
