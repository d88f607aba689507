"""Database attack (Pittaluga and Zhuang 2023, section 4.1): the confounders are known, what else is near is the secret.

Knows:      the database that lifting drew its confounders from.
Breaks:     lifting with confounders: those are the entries at distance zero, and entries that are near the subspace
            but far from all of them lie around the hidden descriptor.
Fails:      where the hidden descriptor is unlike every entry of the database, and where it is one of them: nothing
            tells it from the confounders.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from featveil.attacks.knowledge import Guess, Knowledge, check_count
from featveil.attacks.subspaces import INSIDE, project, subspaces_of
from featveil.core import InputError, PrivateFeatures, Subspaces
from featveil.core.arrays import Float32, Float64, Integers
from featveil.databases import Database
from featveil.distances import nearest

_ROUNDING = 1e-6  # the error of a float32 subspace: nothing is known to be nearer
_ROWS = 32  # of features whose neighbours are held at a time: more leave the cache


@dataclass(frozen=True)
class DatabaseAttack:
    """Find the confounders exactly, then average the entries near the subspace that are farthest from them.

    `neighbours` (|V| in the paper) entries are looked at beyond the confounders; of those the `kept` (|U|) that are
    farthest from every confounder are averaged. The paper names neither. Measured on photographs (sub-hybrid, built-in
    database of 16,384, m = 2, 4, 8, 16), the mean error is 0.34, 0.47, 0.60, 0.70 with 50 and 5, 0.15, 0.23, 0.31, 0.46
    with 800 and 2, and rises again with more: most of what is near a subspace is near its confounders. Of 256,000
    entries 3200 are better still.
    """

    neighbours: int = 800
    kept: int = 2

    name: ClassVar[str] = "database"
    summary: ClassVar[str] = "what lies near the subspace in the lifting database, away from the confounders"
    breaks: ClassVar[tuple[type, ...]] = (Subspaces,)
    needs: ClassVar[tuple[str, ...]] = ("lifting_database",)
    uses: ClassVar[tuple[str, ...]] = ()
    alone: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count("neighbours", self.neighbours)
        check_count("kept", self.kept)
        if self.kept > self.neighbours:
            raise InputError(f"kept must be at most neighbours, got {self.kept} of {self.neighbours}")

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        """Eq. 1; not answered where the subspace does not hold as many entries as it was lifted with."""
        subspaces, database, confounders = subspaces_of(seen), _database_of(knowledge), confounders_of(seen)
        if len(database) <= confounders:
            raise InputError(
                f"each of these subspaces holds {confounders} entries of the lifting database, the one that was given"
                f" has {len(database)}: give the one that was used"
            )
        neighbours = nearest(subspaces, database.as_points, min(confounders + self.neighbours, len(database)))
        values = np.empty((len(subspaces), subspaces.size), np.float32)
        for start in range(0, len(values), _ROWS):
            rows = np.arange(start, min(start + _ROWS, len(values)))
            entries, distances = (
                database.as_points.values[neighbours.indices[rows]],
                neighbours.distances[rows, confounders:],
            )
            chosen = self._choose(entries[:, :confounders], entries[:, confounders:])
            kept = np.take_along_axis(entries[:, confounders:], chosen[:, :, None], axis=1)
            weights = closeness(np.take_along_axis(distances, chosen, axis=1))
            values[rows] = project(weighted_means(kept, weights[:, None]), subspaces, rows)[:, 0]
        inside = neighbours.distances[:, :confounders].max(axis=1, initial=0.0) <= INSIDE
        return Guess(values, inside, note=_note(inside))

    def _choose(self, confounders: Float32, near: Float32) -> Integers:
        """Which of `near` (n, v, d) are farthest from the nearest of `confounders` (n, c, d): (n, kept)."""
        # Entries have norm 1, so the nearest has the largest cosine. Without confounders `near` keeps its order.
        cosines = (near @ confounders.transpose(0, 2, 1)).max(axis=2, initial=-1.0)
        return np.argsort(cosines, axis=1, kind="stable")[:, : self.kept]


def confounders_of(seen: PrivateFeatures) -> int:
    """How many entries of the lifting database each subspace was drawn through, as the release says.

    Raises InputError for a release that does not say so.
    """
    random, dimension = seen.defense.get("random_directions"), subspaces_of(seen).dimension
    if type(random) is not int or not 0 <= random <= dimension:
        raise InputError("the release does not say how many directions are random: this attack is on lifting only")
    return dimension - random


def closeness(distances: Float64) -> Float64:
    """Weights of Eq. 1, the inverse distances; an entry in the subspace, up to rounding, outweighs all others."""
    return np.asarray(1 / np.maximum(distances, _ROUNDING))


def weighted_means(values: Float32, weights: Float64) -> Float64:
    """Means (n, k, d) of `values` (n, v, d) with `weights` (n, k, v); zero where all weights are."""
    sums = weights.sum(axis=2, keepdims=True)
    return np.asarray(weights @ values / np.where(sums > 0, sums, 1))


def _database_of(knowledge: Knowledge) -> Database:
    if knowledge.lifting_database is None:
        raise InputError("this attack needs the database that lifting drew from")
    return knowledge.lifting_database


def _note(inside: NDArray[np.bool_]) -> str:
    if inside.all():
        return ""
    if not inside.any():
        return "no subspace holds entries of this database: it is not the one that was used"
    return (
        f"{int((~inside).sum())} of {len(inside)} subspaces do not hold the entries of this database that they should"
    )
