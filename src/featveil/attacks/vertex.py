"""Vertex attack: SIFT is never negative, often exactly zero, and clipped: the descriptor is a corner of what is left.

Ours. The points of the subspace whose entries lie between 0 and some largest value are a polytope. SIFT sets many
entries to 0 and cuts the largest ones to one value, so more sides of the polytope meet at the descriptor than its
dimension asks for, which happens nowhere else. A linear programme gives one corner; from there walkers go from corner
to corner along edges, each towards corners near to many sides, with other random weights of the sides.
Knows:      nothing but the subspace, and that descriptors have norm 1.
Breaks:     SIFT and RootSIFT under every lifting strategy; best at small m.
Fails:      on descriptors with fewer zeros and clipped entries than dimensions, and where entries may be negative.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from featveil.attacks.knowledge import Guess, Knowledge, check_count
from featveil.attacks.lattice_parts.precision import check_precision, search
from featveil.attacks.subspaces import central, subspaces_of
from featveil.core import PrivateFeatures, Subspaces
from featveil.core.arrays import Float64, Integers

_STEPS = 40  # of a walk; most end sooner
_SURE = 10  # sides beyond those that any corner has: then nothing better is sought
_SETTLED = 4  # of the corners in sight, the best of which are looked at closely
_LEVEL = 1e-9  # an edge that nears a side more slowly runs along it
_SOFTENING = 1e-3  # so that one side at distance zero does not outweigh all others
_CLIPPED_WEIGHT = 0.2  # of the upper sides: there are fewer clipped entries than zeros


@dataclass(frozen=True)
class Vertex:
    """Walk over the corners of the non-negative, bounded part of the subspace and take the sharpest one of norm 1.

    `walkers` go `rounds` walks each. `precision` is the relative precision of the stored numbers; by default single,
    or half where that finds more.
    """

    walkers: int = 16
    rounds: int = 8
    precision: float | None = None

    name: ClassVar[str] = "vertex"
    summary: ClassVar[str] = "the corner of the non-negative part of the subspace where most sides meet"
    breaks: ClassVar[tuple[type, ...]] = (Subspaces,)
    needs: ClassVar[tuple[str, ...]] = ()
    uses: ClassVar[tuple[str, ...]] = ()
    alone: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("walkers", "rounds"):
            check_count(name, getattr(self, name))
        check_precision(self.precision)

    def run(self, seen: PrivateFeatures, knowledge: Knowledge, rng: np.random.Generator) -> Guess:
        """The sharpest corner of norm 1 of each subspace."""
        subspaces = subspaces_of(seen)
        offsets, bases = subspaces.offset.astype(np.float64), subspaces.basis.astype(np.float64)

        def find(row: int, precision: float) -> Float64 | None:
            return self._search(Polytope.of(offsets[row], bases[row], precision), rng)

        values, answered = central(subspaces, seen.kind), np.zeros(len(seen), np.bool_)
        for row, corner in enumerate(search(len(seen), self.precision, find)):
            if corner is not None:
                values[row], answered[row] = corner, True
        return Guess(values.astype(np.float32), answered)

    def _search(self, polytope: "Polytope", rng: np.random.Generator) -> Float64 | None:
        """The entries (d,) of the best corner, or None where no corner stands out."""
        first = polytope.corner()
        if first is None:
            return None
        best = _Best(polytope)
        best.look(first[None])
        active = np.tile(np.argsort(first)[: polytope.dimension], (self.walkers, 1))
        for _ in range(self.rounds):
            weights = rng.exponential(size=(self.walkers, len(first))) ** 3
            weights[:, polytope.size :] *= _CLIPPED_WEIGHT
            for _ in range(_STEPS):
                with np.errstate(all="ignore"):  # a corner of nearly parallel sides has no finite neighbours
                    moved = not best.sure and _step(polytope, active, weights, best)
                if not moved:
                    break
        return best.entries


@dataclass(frozen=True, eq=False)
class Polytope:
    """All points with `levels` + `normals` @ point >= 0: distances (2d,) from d lower and d upper sides.

    A point is m coordinates in the subspace and the upper bound. Sides are moved outwards by `margin`, because rounded
    numbers may leave nothing between them. Distances below `tolerance` count as none.
    """

    normals: Float64
    levels: Float64
    margin: float
    tolerance: float

    @classmethod
    def of(cls, offset: Float64, basis: Float64, precision: float) -> "Polytope":
        """That of the subspace offset + span(basis), whose numbers have a relative `precision`."""
        lower = np.pad(basis.T, ((0, 0), (0, 1)))
        upper = np.pad(-basis.T, ((0, 0), (0, 1)), constant_values=1)
        margin, tolerance = 0.3 * precision, max(1e-5, 0.6 * precision)
        return cls(np.vstack([lower, upper]), np.concatenate([offset, -offset]) + margin, margin, tolerance)

    @property
    def size(self) -> int:
        """Descriptor size d."""
        return len(self.levels) // 2

    @property
    def dimension(self) -> int:
        """As many sides meet at any corner: m + 1."""
        return int(self.normals.shape[1])

    def corner(self) -> Float64 | None:
        """The distances (2d,) of the flattest corner, or None where the polytope is empty."""
        flat = 0.02 * self.normals[: self.size].sum(axis=0)
        flat[-1] = 1
        optimum = linprog(flat, A_ub=-self.normals, b_ub=self.levels, bounds=(None, None), method="highs-ds")
        return np.asarray(self.levels + self.normals @ optimum.x) if optimum.status == 0 else None

    def settle(self, sides: NDArray[np.bool_]) -> Float64:
        """The entries (d,) of the point that is nearest to all of `sides`, without the margin."""
        point = np.linalg.lstsq(self.normals[sides], self.margin - self.levels[sides], rcond=None)[0]
        return np.asarray((self.levels + self.normals @ point)[: self.size] - self.margin)


class _Best:
    """The corner of norm 1 with the most sides so far: `entries` (d,), and how many sides `beyond` those of any."""

    def __init__(self, polytope: Polytope) -> None:
        self.polytope = polytope
        self.beyond = int(1.2e4 * polytope.tolerance)  # as many may be near by chance
        self.entries: Float64 | None = None

    @property
    def sure(self) -> bool:
        return self.beyond >= _SURE

    def look(self, distances: Float64) -> None:
        """Compare with corners at `distances` (k, 2d)."""
        near = distances < self.polytope.tolerance
        beyond = near.sum(axis=1) - self.polytope.dimension
        for corner in np.argsort(-beyond)[:_SETTLED]:
            if beyond[corner] <= self.beyond:
                break
            entries = self.polytope.settle(near[corner])
            if abs(np.linalg.norm(entries) - 1) < self.polytope.tolerance:
                self.beyond, self.entries = int(beyond[corner]), entries


def _step(polytope: Polytope, active: Integers, weights: Float64, best: _Best) -> bool:
    """Move each walker, at the corner of its `active` sides (w, m+1), to its best neighbour; False when none gains."""
    try:
        edges = np.linalg.inv(polytope.normals[active])
    except np.linalg.LinAlgError:
        # Some walker is where its sides do not meet in one point: it goes astray, the others go on.
        edges = np.linalg.pinv(polytope.normals[active])
    points = -(edges @ polytope.levels[active][..., None])[..., 0]
    here = np.maximum(polytope.levels + points @ polytope.normals.T, 0)
    rates = (polytope.normals @ edges).transpose(0, 2, 1)
    nearing = rates < -_LEVEL
    lengths = np.where(nearing, here[:, None] / np.where(nearing, -rates, 1), np.inf)
    met = lengths.argmin(axis=2)
    reach = np.take_along_axis(lengths, met[..., None], axis=2)
    there = np.maximum(here[:, None] + np.where(np.isfinite(reach), reach, 0) * rates, 0)
    best.look(there.reshape(-1, there.shape[2]))
    cost = (weights[:, None] * np.log(there + _SOFTENING)).sum(axis=2)
    walkers, edge = np.arange(len(active)), cost.argmin(axis=1)
    gains = cost[walkers, edge] < (weights * np.log(here + _SOFTENING)).sum(axis=1) - _LEVEL
    active[walkers[gains], edge[gains]] = met[walkers[gains], edge[gains]]
    return bool(gains.any())
