"""Clustering attack (Pittaluga and Zhuang 2023, section 4.2): what subspaces share is a confounder, not the secret.

Knows:      descriptors of its own; the other subspaces of the image, or those of other images.
Breaks:     lifting whose confounders are drawn again and again: two subspaces that share one meet in it.
Fails:      where no other subspace shares a confounder (few features, a large database, images that drew another
            sub-database), and where its own database has nothing like the hidden descriptor.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from featveil.attacks.database import closeness, confounders_of, weighted_means
from featveil.attacks.knowledge import Guess, Knowledge, check_count
from featveil.attacks.subspaces import INSIDE, database_of, meeting_pairs, project, subspaces_of
from featveil.core import InputError, PrivateFeatures, Subspaces
from featveil.core.arrays import Float32, Float64, Integers
from featveil.databases import Database
from featveil.distances import nearest

AUXILIARY = ("same-image", "other-images", "both")
_ROWS = 512  # of features that are clustered at a time
_NUMBERS = 2**22  # that the scores of some pairs of subspaces may take at a time
_ROUNDS = 10


@dataclass(frozen=True)
class Clustering:
    """Cluster what is near the subspace and take the centre that is farthest from all subspaces that meet it.

    `neighbours` (|V| in the paper) entries of its own database are clustered. `auxiliary` says where the other
    subspaces (Q) come from: one of AUXILIARY; "both" does with what is there.
    """

    neighbours: int = 100
    auxiliary: str = "both"

    name: ClassVar[str] = "clustering"
    summary: ClassVar[str] = "clusters what is near the subspace and leaves out what other subspaces share"
    breaks: ClassVar[tuple[type, ...]] = (Subspaces,)
    needs: ClassVar[tuple[str, ...]] = ("database",)
    uses: ClassVar[tuple[str, ...]] = ("others",)
    alone: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_count("neighbours", self.neighbours)
        if self.auxiliary not in AUXILIARY:
            raise InputError(f"auxiliary must be one of {', '.join(AUXILIARY)}, got {self.auxiliary!r}")

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        """The centre with the highest score; not answered where no other subspace meets this one."""
        subspaces, confounders = subspaces_of(seen), confounders_of(seen)
        others = self._others(subspaces, knowledge)
        centres, filled = self._centres(subspaces, database_of(knowledge), confounders + 1, rng)
        scores = np.full(filled.shape, np.inf)
        for other in others if confounders else ():
            scores = np.minimum(scores, _score(centres, filled, meeting_pairs(subspaces, other), other))
        # Where nothing was met all scores are infinite and the smallest cluster is taken: confounders are centroids, so
        # they lie among more entries than the hidden descriptor does.
        best = np.where(filled, scores, -np.inf).argmax(axis=1)
        answered = np.isfinite(scores).any(axis=1) if confounders else np.ones(len(scores), np.bool_)
        return Guess(centres[np.arange(len(centres)), best], answered)

    def _others(self, subspaces: Subspaces, knowledge: Knowledge) -> list[Subspaces]:
        """Q, an image at a time."""
        if self.auxiliary == "other-images" and not any(len(other) for other in knowledge.others):
            raise InputError(
                "attack clustering with auxiliary other-images needs others: private images lifted with the same"
                " database. Without any, use same-image"
            )
        others = [subspaces_of(other) for other in knowledge.others if len(other)]
        return {"same-image": [subspaces], "other-images": others, "both": [subspaces, *others]}[self.auxiliary]

    def _centres(
        self, subspaces: Subspaces, database: Database, clusters: int, rng: np.random.Generator
    ) -> tuple[Float32, NDArray[np.bool_]]:
        """Eq. 2: centres (n, clusters, d), those of the smallest clusters first, and which are there."""
        neighbours = nearest(subspaces, database.as_points, min(self.neighbours, len(database)))
        centres = np.empty((len(subspaces), clusters, subspaces.size), np.float32)
        filled = np.empty(centres.shape[:2], np.bool_)
        for start in range(0, len(subspaces), _ROWS):
            rows = np.arange(start, min(start + _ROWS, len(subspaces)))
            entries = database.as_points.values[neighbours.indices[rows]]
            members = _cluster(entries, clusters, rng)
            filled[rows] = members.any(axis=2)
            weights = members * closeness(neighbours.distances[rows])[:, None]
            centres[rows] = project(weighted_means(entries, weights), subspaces, rows)
        return centres, filled


def _cluster(entries: Float32, clusters: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which of `entries` (n, v, d) are in which cluster (n, clusters, v), smallest first, by k-means for each row.

    All rows at once, from a start of entries far from each other: with random ones, as faiss has them, two clusters
    often share one confounder (m = 4: 0.34 of the guesses came within 0.5 instead of 0.51). Some clusters are empty
    where there are fewer different entries.
    """
    centres = _start(entries, clusters, rng)
    numbers = np.arange(clusters)[:, None]
    for _ in range(_ROUNDS):
        # Entries have norm 1: without it their squared distances have the same order.
        away = (centres**2).sum(axis=2)[:, :, None] - 2 * centres @ entries.transpose(0, 2, 1)
        members = away.argmin(axis=1)[:, None] == numbers
        counts = members.sum(axis=2, dtype=np.float32)[:, :, None]
        centres = np.where(counts > 0, members.astype(np.float32) @ entries / np.maximum(counts, 1), centres)
    order = np.argsort(counts[:, :, 0], axis=1, kind="stable")
    return np.take_along_axis(members, order[:, :, None], axis=1)


def _start(entries: Float32, clusters: int, rng: np.random.Generator) -> Float32:
    """A random entry of each row, then, again and again, the one farthest from all that were taken (n, clusters, d)."""
    rows = np.arange(len(entries))
    centres = np.empty((len(entries), clusters, entries.shape[2]), np.float32)
    centres[:, 0] = entries[rows, rng.integers(0, entries.shape[1], len(entries))]
    closest = np.full(entries.shape[:2], -1.0, np.float32)
    for k in range(1, clusters):
        cosines = (entries @ centres[:, k - 1, :, None])[:, :, 0]
        closest = np.maximum(closest, cosines)
        centres[:, k] = entries[rows, closest.argmin(axis=1)]
    return centres


def _score(
    centres: Float32, filled: NDArray[np.bool_], pairs: Iterator[tuple[Integers, Integers]], other: Subspaces
) -> Float64:
    """Distance (n, k) of each centre from the nearest of `other` that its subspace is paired with, or infinity."""
    scores = np.full(filled.shape, np.inf)
    step = max(1, _NUMBERS // (centres[0].size + other.basis[0].size))
    for rows, columns in pairs:
        for start in range(0, len(rows), step):
            i, j = rows[start : start + step], columns[start : start + step]
            points = centres[i].astype(np.float64)
            away = np.linalg.norm(points - project(points, other, j), axis=2)
            # A subspace that holds every centre is the same one, sent again: it tells nothing.
            telling = (filled[i] & (away > INSIDE)).any(axis=1)
            np.minimum.at(scores, i[telling], away[telling])
    return scores
