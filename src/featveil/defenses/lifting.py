"""Lifting: each descriptor becomes an affine subspace that contains it (Dusmanu et al. 2021, sections 3.2 and 4.2).

Hides:          where in the subspace the descriptor lies, among real descriptors drawn into it.
From:           whoever receives the features, without a look at the descriptor itself.
Does not hide:  keypoint positions, the number of features, the subspace; matched features (docs/threat-model.md).
Known breaks:   a database that resembles the lifting database; integer descriptors (plain SIFT) by lattice reduction;
                two lifts of one descriptor; overlapping keypoints. No proof of privacy exists for this method.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from featveil.core import Guarantee, InputError, NotFittedError, Points, PrivacyError, Randomness, Spec, Subspaces
from featveil.core.arrays import Float64, Integers
from featveil.core.options import option
from featveil.databases import Database, builtin
from featveil.databases.entries import DATABASE_OPTION
from featveil.defenses.confounders import STRATEGIES, Confounders, confounders_for
from featveil.distances.orthonormal import orthonormalise, remove_span

_CHUNK = 1024
INDEPENDENT = 1e-4  # directions that keep less than this share of their length are drawn again
_ATTEMPTS = 16


@dataclass(frozen=True)
class Lifting:
    """Lift to subspaces of `dimension`, by one of STRATEGIES.

    `random_share` is the part of the directions that is random (rounded down; default: the strategy's). `database`
    is where the others come from (default: the built-in one of the descriptor's kind). `allow_line` permits dimension
    1 on descriptors of one norm, where two points of the line fit and one is usually implausible.
    """

    strategy: str = option("sub-hybrid", help="random, adversarial, hybrid, sub-adversarial or sub-hybrid.")
    dimension: int = option(4, help="dimension of the subspaces.")
    random_share: float | None = option(None, help="share of random directions.", shown="the strategy's")
    database: Database | None = option(None, help="file of the database that it draws from.", **DATABASE_OPTION)
    allow_line: bool = option(False, help="permit dimension 1, which hides almost nothing.")

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise InputError(f"unknown lifting strategy {self.strategy!r}: use one of {', '.join(STRATEGIES)}")
        if isinstance(self.dimension, bool) or not isinstance(self.dimension, int) or self.dimension < 1:
            raise InputError(f"dimension must be a whole number of at least 1, got {self.dimension!r}")
        if self.random_share is not None and not 0 <= self.random_share <= 1:
            raise InputError(f"random_share must be between 0 and 1, got {self.random_share}")
        usual = STRATEGIES[self.strategy].random_share
        if usual != 0.5 and self.random_share not in (None, usual):
            raise InputError(f"{self.strategy} lifting has random_share {usual:g}: use a hybrid strategy for others")
        if not isinstance(self.database, Database | None):
            raise InputError(f"database must be a Database (see load_database), got {type(self.database).__name__}")

    @property
    def random_directions(self) -> int:
        """How many of the directions are random; the others lead to database entries."""
        share = STRATEGIES[self.strategy].random_share if self.random_share is None else self.random_share
        return int(self.dimension * share + 1e-9)

    @property
    def adversarial_directions(self) -> int:
        """How many of the directions lead to database entries."""
        return self.dimension - self.random_directions

    def for_kind(self, kind: str) -> Self:
        """This lifting with the built-in database of `kind`, unless it has its own or needs none."""
        if self.adversarial_directions == 0:
            return self
        if self.database is None:
            return replace(self, database=builtin(kind))
        if self.database.kind != kind:
            raise InputError(
                f"the database holds {self.database.kind} descriptors, the features are {kind}: use a {kind} database"
            )
        return self

    def guarantee(self) -> Guarantee:
        """Measured against known attacks only."""
        return Guarantee("empirical")

    def spec(self) -> Spec:
        """Strategy, dimension, random directions and the digest of the database."""
        digest = self.database.digest if self.database is not None and self.adversarial_directions else None
        return {
            "name": "lifting",
            "strategy": self.strategy,
            "dimension": self.dimension,
            "random_directions": self.random_directions,
            "database": digest,
        }

    def privatize(self, points: Points, rng: Randomness, labels: Integers | None = None) -> Subspaces:
        """Lift each point; one sub-database is drawn for the whole call, which is one image.

        The result is a function of the subspaces only: offset (Eq. 9) and basis (Eq. 10) are redrawn, so that nothing
        in them depends on where in its subspace a descriptor lies.
        """
        self._check(points)
        confounders = self._confounders(len(points), rng, labels)
        offset = np.empty(points.values.shape, np.float32)
        basis = np.empty((len(points), self.dimension, points.size), np.float32)
        for start in range(0, len(points), _CHUNK):
            part = slice(start, start + _CHUNK)
            values = points.values[part].astype(np.float64)
            directions = self._directions(values, confounders and confounders.part(part), rng)
            drawn = uniform((len(values), self.dimension + 1, points.size), rng)
            offset[part], basis[part] = redraw(values, directions, drawn)
        return Subspaces(offset, basis)

    def _check(self, points: Points) -> None:
        if self.dimension >= points.size:
            raise InputError(f"dimension must be below the descriptor size {points.size}, got {self.dimension}")
        norms = np.linalg.norm(points.values, axis=1)
        if len(norms) and not norms.all():
            raise InputError(f"descriptor {int(np.argmin(norms))} has zero norm: remove it first")
        same_norm = len(norms) > 0 and float(np.ptp(norms)) < 1e-2 * float(norms.max())
        if self.dimension == 1 and same_norm and not self.allow_line:
            raise PrivacyError(
                "dimension 1 hides nothing when all descriptors have one norm: a line meets the sphere in two points."
                " Use dimension 2 or more (or allow_line, --allow-line, for studies)"
            )
        if self.adversarial_directions and self.database is None:
            raise NotFittedError("this lifting has no database: call for_kind(kind), or give one")
        if self.database is not None and self.adversarial_directions and self.database.size != points.size:
            raise InputError(
                f"database entries have size {self.database.size}, descriptors {points.size}: use a matching database"
            )

    def _confounders(self, n: int, rng: Randomness, labels: Integers | None) -> Confounders | None:
        """What each feature may draw; None where all directions are random."""
        if self.database is None or not self.adversarial_directions:
            return None
        return confounders_for(self.database, self.strategy, n, self.adversarial_directions, labels, rng)

    def _directions(self, values: Float64, confounders: Confounders | None, rng: Randomness) -> Float64:
        """Orthonormal directions (n, m, d) of the initial subspaces; drawn again where they depend on each other."""
        directions = np.empty((len(values), self.dimension, values.shape[1]))
        rows = np.arange(len(values))
        for _ in range(_ATTEMPTS):
            fresh = np.empty((len(rows), *directions.shape[1:]))
            random = self.random_directions
            fresh[:, :random] = uniform((len(rows), random, values.shape[1]), rng)
            if self.database is not None and confounders is not None:
                chosen = confounders.draw(rows, rng)
                norms = np.linalg.norm(values[rows], axis=1)[:, None, None]
                fresh[:, random:] = self.database.unit(chosen) * norms - values[rows, None]
            independent = orthonormalise(fresh) > INDEPENDENT
            directions[rows] = fresh
            rows = rows[~independent]
            if len(rows) == 0:
                return directions
        raise InputError("descriptors coincide with too many database entries: use a larger or another database")


def uniform(size: tuple[int, ...], rng: Randomness) -> Float64:
    """Uniform in [-1, 1), on a grid of 2^-23."""
    return rng.random(size, dtype=np.float32).astype(np.float64) * 2 - 1


def redraw(values: Float64, directions: Float64, drawn: Float64) -> tuple[Float64, Float64]:
    """An offset (n, d) and orthonormal basis (n, m, d) of the subspaces values + span(directions).

    `drawn` (n, m + 1, d) are the uniform points e_0 to e_m that they follow from, beside the subspaces.

    Eq. 9: the offset is the projection of a uniform point e_0. Eq. 10: the basis are the projections of uniform points
    e_i, seen from the offset, here orthonormalised in their order. In coordinates of the (orthonormal) directions,
    projecting is one product, so the second orthonormalisation works on m x m matrices.
    """
    coordinates = drawn @ directions.transpose(0, 2, 1)
    nearest_origin = values.copy()
    remove_span(nearest_origin, directions)
    offset = nearest_origin + (coordinates[:, :1] @ directions)[:, 0]
    turned = np.ascontiguousarray(coordinates[:, 1:] - coordinates[:, :1])
    orthonormalise(turned)
    return offset, turned @ directions
