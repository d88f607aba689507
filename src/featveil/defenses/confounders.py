"""Which database entries each descriptor is lifted through.

Labels are attributes of a person. `other_labels` takes only entries that differ from the descriptor in theirs (hybrid+
of Dusmanu et al. 2021, section 4.3): with more than one of them the label that is missing among the confounders is the
secret one, and an attacker who learns that reads it off. `balanced_labels` (ours) makes descriptor and confounders
together as many of each label as can be. What is over is drawn without a look at the descriptor's own label, so that
the labels in a subspace say nothing of which of them is its own.
"""

from dataclasses import dataclass

import numpy as np

from featveil.core import InputError, Randomness
from featveil.core.arrays import Integers
from featveil.core.draws import distinct
from featveil.databases import Database


@dataclass(frozen=True)
class Strategy:
    """How directions are drawn: the usual share of random ones, and from which entries the others come."""

    random_share: float
    sub_database: bool = False
    other_labels: bool = False
    balanced_labels: bool = False

    @property
    def needs_labels(self) -> bool:
        """Whether features and database must have attribute labels."""
        return self.other_labels or self.balanced_labels


STRATEGIES = {
    "random": Strategy(1.0),
    "adversarial": Strategy(0.0),
    "hybrid": Strategy(0.5),
    "hybrid+": Strategy(0.5, other_labels=True),
    "balanced": Strategy(0.5, balanced_labels=True),
    "sub-adversarial": Strategy(0.0, sub_database=True),
    "sub-hybrid": Strategy(0.5, sub_database=True),
}


@dataclass(frozen=True, eq=False)
class Confounders:
    """Sets of database indices, and which of them each feature draws each of its entries from: `choice` (n, k)."""

    entries: list[Integers]
    choice: Integers

    def part(self, rows: slice) -> "Confounders":
        """Those of some features."""
        return Confounders(self.entries, self.choice[rows])

    def draw(self, rows: Integers, rng: Randomness) -> Integers:
        """Different entries (len(rows), k) for each of `rows`, uniformly from the sets that they may draw from."""
        wanted = self.choice[rows]
        chosen = np.empty(wanted.shape, np.int64)
        if (wanted == wanted[:, :1]).all():
            for index, pool in enumerate(self.entries):
                mine = np.flatnonzero(wanted[:, 0] == index)
                chosen[mine] = pool[distinct(len(mine), wanted.shape[1], len(pool), rng)]
            return chosen
        again = np.arange(len(wanted))
        while len(again):
            for index, pool in enumerate(self.entries):
                row, column = np.nonzero(wanted[again] == index)
                chosen[again[row], column] = pool[rng.integers(0, len(pool), size=(len(row),))]
            ordered = np.sort(chosen[again], axis=1)
            again = again[(ordered[:, 1:] == ordered[:, :-1]).any(axis=1)]
        return chosen


def confounders_for(
    database: Database, name: str, n: int, count: int, labels: Integers | None, rng: Randomness
) -> Confounders:
    """What `n` features may draw `count` entries each from, by the strategy called `name`.

    Raises InputError where labels are missing or do not fit, and for a database that is too small.
    """
    strategy, everything = STRATEGIES[name], np.arange(len(database))
    entries, choice, fewest = [everything], np.zeros((n, count), np.int64), len(database)
    if strategy.sub_database:
        fewest = len(database) // database.parts  # of any part, so that the same call does not fail by chance
        entries = [everything[database.part(int(rng.integers(0, database.parts, size=(1,))[0]))]]
    if strategy.needs_labels:
        if database.labels is None or labels is None:
            raise InputError(f"{name} needs attribute labels, both in the database and on the features")
        if len(labels) != n:
            raise InputError(f"{len(labels)} labels do not fit {n} descriptors")
        if strategy.balanced_labels:
            values = np.union1d(database.labels, labels)
            entries = [everything[database.labels == value] for value in values]
            choice = balanced(np.searchsorted(values, labels), len(values), count, rng)
            most = -(-(count + 1) // len(values))  # of one label
            fewest = min(map(len, entries)) // most * count
        else:
            values, own = np.unique(labels, return_inverse=True)
            entries = [everything[database.labels != value] for value in values]
            choice = np.repeat(own[:, None], count, axis=1)
            fewest = min(map(len, entries), default=count)
    if fewest < count:
        raise InputError(
            f"{count} different database entries are needed for each feature, {fewest} are there to draw from: lower"
            " the dimension or use a larger database"
        )
    return Confounders(entries, choice)


def balanced(own: Integers, kinds: int, count: int, rng: Randomness) -> Integers:
    """Labels (n, count) of confounders, below `kinds`, for features whose labels are `own` (n,)."""
    rounds, rest = divmod(count + 1, kinds)
    counts = np.full((len(own), kinds), rounds)
    rows = np.arange(len(own))
    if rounds == 0:  # too few for one of each: as many different ones as there are places
        others = distinct(len(own), count, kinds - 1, rng)
        counts[rows[:, None], others + (others >= own[:, None])] = 1
    else:
        counts[rows[:, None], distinct(len(own), rest, kinds, rng)] += 1
        counts[rows, own] -= 1
    return np.repeat(np.tile(np.arange(kinds), len(own)), counts.ravel()).reshape(len(own), count)
