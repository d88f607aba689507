"""Unmix: the hidden descriptor is the point of its subspace that resembles none of the confounders.

Ours. A lifted descriptor and its confounders are different things, as alike as any two descriptors are. Of everything
in the subspace only a neighbourhood of the hidden one has that likeness to all confounders at once.
Knows:      the database that lifting drew its confounders from.
Breaks:     lifting of descriptors that are nearly perpendicular to each other, such as those of faces.
Fails:      where confounders are not known (hardened lifting), or as unlike each other as they are like the secret.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from featveil.attacks.database import confounders_of
from featveil.attacks.knowledge import Guess, Knowledge
from featveil.attacks.subspaces import INSIDE, central, subspaces_of
from featveil.core import InputError, PrivateFeatures, Subspaces
from featveil.core.arrays import Float64, Integers
from featveil.databases import Database
from featveil.distances import nearest

_ROWS = 512  # of features that are held at a time
_SAMPLE = 4096  # of the database, which is in random order, to see where entries lie
_RIDGE = 1e-6


@dataclass(frozen=True)
class Unmix:
    """Find the confounders, then what is at right angles to all of them."""

    name: ClassVar[str] = "unmix"
    summary: ClassVar[str] = "the point of the subspace that resembles none of its confounders"
    breaks: ClassVar[tuple[type, ...]] = (Subspaces,)
    needs: ClassVar[tuple[str, ...]] = ("lifting_database",)
    uses: ClassVar[tuple[str, ...]] = ()
    alone: ClassVar[bool] = True

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        """Not answered where the subspace does not hold as many entries as it was lifted with."""
        subspaces, database, count = subspaces_of(seen), knowledge.lifting_database, confounders_of(seen)
        if database is None or len(database) < count:
            raise InputError("this attack needs the database that lifting drew from")
        if count == 0:
            return Guess.all_of(central(subspaces, seen.kind))
        neighbours = nearest(subspaces, database.as_points, count)
        inside = neighbours.distances.max(axis=1) <= INSIDE
        values = np.empty((len(subspaces), subspaces.size), np.float32)
        population = _Population.of(database)
        for start in range(0, len(values), _ROWS):
            rows = np.arange(start, min(start + _ROWS, len(values)))
            values[rows] = population.unlike(
                subspaces, rows, database.unit(neighbours.indices[rows]).astype(np.float64)
            )
        missing = int((~inside).sum())
        note = f"{missing} of {len(inside)} subspaces do not hold the entries of this database that they should"
        return Guess(values, inside, note=note if missing else "")


@dataclass(frozen=True, eq=False)
class _Population:
    """Where descriptors lie: around `mean` (d,), at a distance of about `radius` from it."""

    mean: Float64
    radius: float

    @classmethod
    def of(cls, database: Database) -> Self:
        sample = database.unit(slice(0, _SAMPLE)).astype(np.float64)
        mean = sample.mean(axis=0)
        return cls(mean, float(np.sqrt(((sample - mean) ** 2).sum(axis=1).mean())))

    def unlike(self, subspaces: Subspaces, rows: Integers, confounders: Float64) -> Float64:
        """What each subspace holds at right angles to all of its confounders (n, k, d), seen from the mean.

        With the point a of the subspace nearest the mean and its basis B, that is a + Bt z for the shortest z with
        C Bt z = -C a. Only its direction is kept: its length depends on how the confounders add up.
        """
        basis, offset = subspaces.basis[rows].astype(np.float64), subspaces.offset[rows] - self.mean
        offset -= ((offset[:, None] @ basis.transpose(0, 2, 1)) @ basis)[:, 0]
        seen = confounders - self.mean
        seen_by = seen @ basis.transpose(0, 2, 1)
        gram = seen_by @ seen_by.transpose(0, 2, 1)
        gram[:, np.arange(gram.shape[1]), np.arange(gram.shape[1])] += _RIDGE
        shortest = seen_by.transpose(0, 2, 1) @ np.linalg.solve(gram, -(seen @ offset[:, :, None]))
        away = offset + (shortest.transpose(0, 2, 1) @ basis)[:, 0]
        away *= self.radius / np.maximum(np.linalg.norm(away, axis=1, keepdims=True), _RIDGE)
        return np.asarray(self.mean + away)
