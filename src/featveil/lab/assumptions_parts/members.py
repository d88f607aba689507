"""Members of subspaces, which are the hidden descriptor and what it was lifted with: which entries come near them,
and which of them other subspaces give away. The bench of assumptions measures both.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from featveil.attacks.subspaces import INSIDE, meeting_pairs
from featveil.core import InputError, Points, Subspaces
from featveil.core.arrays import Float64, Integers
from featveil.databases import Database
from featveil.defenses import Lifting
from featveil.distances import matrix, nearest
from featveil.metrics.leakage import CLOSE, NEAR

MEMBERS, COLLISIONS = "members", "collisions"
VARIANTS = {MEMBERS: ("with members", "without members"), COLLISIONS: ("same image", "other images")}
COUNTED = ("met", "all found", "no collision", "no collision and all found", "clear by 0.3", "clear by 0.5", "meeting")
NEIGHBOURS = (50, 20, 10, 5)  # N of table S2
SPARE = 2  # entries that may lie in a subspace without having been drawn: doubles

_RATIO = 0.8


def member_success(subspaces: Subspaces, truth: Points, lifting: Lifting) -> dict[str, Float64]:
    """Share of the N nearest entries that pass the ratio test between members, for each N of NEIGHBOURS.

    Once with the entries that are members themselves, which always pass, and once with the next N after them.
    """
    database = database_of(lifting)
    count = lifting.adversarial_directions
    neighbours = nearest(subspaces, database.as_points, max(NEIGHBOURS) + count + SPARE)
    inside = neighbours.distances <= INSIDE
    entries = database.unit(neighbours.indices)
    away = [np.linalg.norm(entries - truth.values[:, None], axis=2)]
    for place in range(count + SPARE):  # members are the nearest of all, so they come first
        off = np.linalg.norm(entries - entries[:, place, None], axis=2)
        away.append(np.where(inside[:, place, None], off, np.inf))
    two = np.partition(np.stack(away), 1, axis=0)[:2]
    passed = two[0] < _RATIO * two[1]
    outside_first = np.argsort(inside, axis=1, kind="stable")
    others = np.take_along_axis(passed, outside_first, axis=1)
    with_members, without = VARIANTS[MEMBERS]
    return {
        with_members: np.array([passed[:, :n].mean() for n in NEIGHBOURS]),
        without: np.array([others[:, :n].mean() for n in NEIGHBOURS]),
    }


@dataclass(frozen=True, eq=False)
class Lifted:
    """Subspaces (n), the hidden descriptors, and the `entries` (n, c) of the database that each was lifted with."""

    subspaces: Subspaces
    truth: Points
    entries: Integers
    database: Database

    @classmethod
    def of(cls, truth: Points, lifting: Lifting, rng: np.random.Generator) -> "Lifted":
        """Lift, and find what was drawn."""
        subspaces, database = lifting.privatize(truth, rng), database_of(lifting)
        neighbours = nearest(subspaces, database.as_points, lifting.adversarial_directions)
        return cls(subspaces, truth, neighbours.indices, database)

    def meeting(self, others: "Lifted") -> tuple[Integers, Integers]:
        """Which subspaces of this (rows) and of `others` (columns) meet, apart from each with itself."""
        pairs = [np.stack(pair) for pair in meeting_pairs(self.subspaces, others.subspaces)]
        rows, columns = np.concatenate(pairs, axis=1)
        return rows, columns

    def scores(self, others: "Lifted", rows: Integers, columns: Integers) -> Float64:
        """How far each member (n, 1 + c), the hidden descriptor first, is from the subspaces of `others` met."""
        scores = np.full((len(self.truth), 1 + self.entries.shape[1]), np.inf)
        if len(rows) == 0:
            return scores
        used, place = np.unique(self.entries, return_inverse=True)
        points = Points(np.concatenate([self.truth.values, self.database.unit(used)]))
        away = matrix(points, others.subspaces)
        own = np.arange(len(self.truth))
        members = np.column_stack([own, len(own) + place.reshape(self.entries.shape)])
        for member in range(scores.shape[1]):
            np.minimum.at(scores[:, member], rows, away[members[rows, member], columns])
        return scores


def collisions(own: Lifted, others: Sequence[tuple[Lifted, Integers, Integers]]) -> Float64:
    """What COUNTED names, for the subspaces of `own` with those of `others` that they meet (rows, columns)."""
    scores = np.full((len(own.truth), 1 + own.entries.shape[1]), np.inf)
    meeting = np.zeros(len(scores))
    for lifted, rows, columns in others:
        np.minimum(scores, own.scores(lifted, rows, columns), out=scores)
        meeting += np.bincount(rows, minlength=len(scores))
    hidden, worst = scores[:, 0], scores[:, 1:].max(axis=1)
    met, given_away = meeting > 0, worst <= INSIDE
    first = (hidden > worst) & (hidden > INSIDE)  # of several at zero, none is farthest
    counted = (met, given_away, first, first & given_away, hidden >= CLOSE, hidden >= NEAR, meeting)
    return np.array([values.mean() for values in counted])


def database_of(lifting: Lifting) -> Database:
    """What it draws from."""
    if lifting.database is None:
        raise InputError("this lifting has no database: give one")
    return lifting.database
