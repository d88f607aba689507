"""Oracle attack (Dusmanu et al. 2021, supplement C): of the K nearest entries, an oracle names the best.

Knows:      descriptors of its own, and the truth: which entry of its shortlist is closest to the hidden descriptor.
            No adversary has that. It bounds what any choice among those K entries could achieve.
Breaks:     nothing; where even the oracle stays far from the truth, the entries near the subspace are confounders.
Fails:      to be better than the database: at K = |V| it is the entry closest to the truth.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from featveil.attacks.knowledge import Guess, Knowledge, check_count
from featveil.attacks.subspaces import database_of, project, subspaces_of
from featveil.core import InputError, Points, PrivateFeatures, Subspaces
from featveil.core.arrays import Float32, Float64, Integers
from featveil.databases import Database
from featveil.distances import matrix

_CELLS = 2**24  # of features x entries whose distances are held at a time, twice


@dataclass(frozen=True)
class Oracle:
    """Take the best of the nearest entries; `neighbours` is K, at most all entries.

    `projected`: the point of the subspace nearest to that entry. The truth lies in the subspace, so the projection is
    never farther from it, and it is what a bound must use. The oracle chooses before anything is projected.
    """

    neighbours: int = 100
    projected: bool = True

    name: ClassVar[str] = "oracle"
    summary: ClassVar[str] = "the best of the nearest entries of its own database, named by an oracle: no adversary"
    breaks: ClassVar[tuple[type, ...]] = (Subspaces,)
    needs: ClassVar[tuple[str, ...]] = ("database", "truth")
    uses: ClassVar[tuple[str, ...]] = ()
    alone: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count("neighbours", self.neighbours)

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        """The chosen entry for each feature, or its projection."""
        subspaces, database, truth = subspaces_of(seen), database_of(knowledge), _truth_of(knowledge, len(seen))
        counts = [min(self.neighbours, len(database))]
        chosen = np.concatenate([chosen for _, chosen, _ in _choices(subspaces, database, truth, counts)])[:, 0]
        values = database.unit(chosen)
        return Guess.all_of(project(values, subspaces) if self.projected else values)


@dataclass(frozen=True, eq=False)
class OracleCurve:
    """Distances from the truth, as a share of its norm, for K = `neighbours` (k,); the last K is all of the database.

    `plain` and `projected` (n, k) are those of the entry that the oracle chose and of its projection, `chance` (n,)
    the mean over all entries, which is what a random one has.
    """

    neighbours: Integers
    plain: Float64
    projected: Float64
    chance: Float64


def usual_neighbours(size: int) -> list[int]:
    """1, 2, 5, 10, 20, 50, ... below `size`, and `size` itself."""
    steps = [digit * 10**power for power in range(len(str(size))) for digit in (1, 2, 5)]
    return [*(step for step in steps if step < size), size]


def oracle_curve(subspaces: Subspaces, database: Database, truth: Points) -> OracleCurve:
    """What `Oracle` achieves for every K of `usual_neighbours`, in one pass over all features x entries.

    Memory does not grow with their product. Raises InputError when `truth` is not one point for each subspace.
    """
    _check_truth(truth, len(subspaces))
    counts = usual_neighbours(len(database))
    plain, projected = np.empty((2, len(truth), len(counts)))
    chance = np.empty(len(truth))
    for rows, chosen, mean in _choices(subspaces, database, truth, counts):
        true = truth.values[rows, None].astype(np.float64)
        norms = np.linalg.norm(true, axis=2)
        values = database.unit(chosen)
        plain[rows] = np.linalg.norm(values - true, axis=2) / norms
        projected[rows] = np.linalg.norm(project(values, subspaces, rows) - true, axis=2) / norms
        chance[rows] = mean / norms[:, 0]
    return OracleCurve(np.array(counts, np.int64), plain, projected, chance)


def _choices(
    subspaces: Subspaces, database: Database, truth: Points, counts: Sequence[int]
) -> Iterator[tuple[slice, Integers, Float64]]:
    """Some features at a time: which, the chosen entry for each of `counts` (n, k), the mean distance of all (n,)."""
    height = max(1, _CELLS // len(database))
    for start in range(0, len(subspaces), height):
        rows = slice(start, min(start + height, len(subspaces)))
        part = np.arange(rows.start, rows.stop)
        off_subspace = matrix(subspaces.take(part), database.as_points)
        off_truth = matrix(truth.take(part), database.as_points)
        chosen = [_best_of_nearest(*distances, counts) for distances in zip(off_subspace, off_truth, strict=True)]
        yield rows, np.array(chosen, np.int64), off_truth.mean(axis=1, dtype=np.float64)


def _best_of_nearest(off_subspace: Float32, off_truth: Float32, counts: Sequence[int]) -> list[int]:
    """The entry with the smallest of `off_truth` among the K with the smallest `off_subspace`, for rising K = `counts`.

    From the end: the best of all entries stays the best down to its own place in the order by `off_subspace`; below
    that place only the entries nearer than it are left. So nothing is sorted.
    """
    entries: list[int] = []
    left = np.arange(len(off_subspace))
    for count in reversed(counts):
        while len(left) >= count:  # the last choice has len(left) + 1 as its place
            best = int(off_truth[left].argmin())
            entry = int(left[best])
            nearer = off_subspace[left] < off_subspace[entry]
            nearer[:best] |= off_subspace[left[:best]] == off_subspace[entry]  # ties: the lower index comes first
            left = left[nearer]
        entries.append(entry)
    return entries[::-1]


def _truth_of(knowledge: Knowledge, count: int) -> Points:
    if knowledge.truth is None:
        raise InputError("an oracle needs the truth")
    _check_truth(knowledge.truth, count)
    return knowledge.truth


def _check_truth(truth: Points, count: int) -> None:
    if len(truth) != count:
        raise InputError(f"{len(truth)} hidden descriptors are not the truth of {count} private features")
