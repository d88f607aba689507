"""Hardened lifting: subspaces through real descriptors that only the device knows (ours).

Hides:          which of the k + 1 real descriptors in a subspace is the true one.
From:           whoever receives the features, without a look at the descriptor itself or at the pool.
Does not hide:  keypoint positions, the number of features, that it is one of these k + 1; matched features.
Known breaks:   overlapping keypoints (attack overlap; release only those that lie apart), a pool that is known, and a
                pool of photographs so unlike this one that a ranker can tell (attack discriminator).

If the true descriptor and its confounders are exchangeable for all that the attacker sees, no attack names the true
one more often than 1 time in k + 1. This is no proof: it is as good as the pool is like the photograph. What is done
for it: confounders are verbatim descriptors, each used once; chosen to balance what tells photographs apart
(balance.py); all of them, the true one included, are dithered by half a step, so that no whole number and no exact zero
is left. The other m - k directions are random: they cost few matches and keep the k + 1 descriptors from being read
off. All draws follow from a secret of the device (stores/pool.py): a photograph sent again gives the same subspaces
again. With other parameters they share as many confounders and random directions as the release with fewer has, so that
two releases together hide the descriptor among the smaller number.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from featveil.core import Guarantee, InputError, NotFittedError, Points, Randomness, Spec, Subspaces
from featveil.core.arrays import Float32, Float64, Integers
from featveil.core.keyed import KeyedDraws
from featveil.core.options import option
from featveil.defenses.balance import Balance
from featveil.defenses.lifting import INDEPENDENT, redraw
from featveil.distances.orthonormal import orthonormalise
from featveil.stores.pool import Pool

_STEP = 1 / 512  # of the norm: the step that SIFT descriptors are rounded to
_CHUNK = 1024


@dataclass(frozen=True)
class Hardened:
    """Lift through `confounders` descriptors of a private `pool`, to subspaces of `dimension`."""

    confounders: int = option(4, help="real descriptors that each is hidden among.")
    dimension: int = option(16, help="dimension of the subspaces.")
    pool: Pool | None = option(
        None,
        help="pool of the device's own photographs (featveil pool create).",
        needed="descriptors that only this device has: see featveil pool create",
    )

    def __post_init__(self) -> None:
        for name in ("confounders", "dimension"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
        if self.confounders > self.dimension:
            raise InputError(f"{self.confounders} confounders need a dimension of as many, got {self.dimension}")
        if not isinstance(self.pool, Pool | None):
            raise InputError(f"pool must be a Pool, got {type(self.pool).__name__}")

    def for_kind(self, kind: str) -> Self:
        """This defense, if its pool serves descriptors of `kind`."""
        there = self._own_pool().holdings().kind
        if there != kind:
            raise InputError(f"the pool holds {there} descriptors, the features are {kind}: use a {kind} pool")
        return self

    def guarantee(self) -> Guarantee:
        """Measured against known attacks only."""
        return Guarantee("empirical")

    def spec(self) -> Spec:
        """Dimension, confounders and random directions; nothing of the pool."""
        return {
            "name": "hardened",
            "dimension": self.dimension,
            "confounders": self.confounders,
            "random_directions": self.dimension - self.confounders,
        }

    def privatize(self, points: Points, rng: Randomness, labels: Integers | None = None) -> Subspaces:
        """Lift each point; points that were lifted before get the subspaces that they had.

        Raises PrivacyError when the pool is too small, or the photograph is one of the pool.
        """
        del labels
        if self.dimension >= points.size:
            raise InputError(f"dimension must be below the descriptor size {points.size}, got {self.dimension}")
        pool = self._own_pool()
        norms = np.linalg.norm(points.values, axis=1)
        if not norms.all():
            raise InputError(f"descriptor {int(np.argmin(norms))} has zero norm: remove it first")
        balance = Balance(pool.holdings().kind)
        hiding = pool.hide(
            points.values, self.confounders, lambda own, free, count: balance.choose(own, free, count, rng)
        )
        offset = np.empty(points.values.shape, np.float32)
        basis = np.empty((len(points), self.dimension, points.size), np.float32)
        for start in range(0, len(points), _CHUNK):
            part = slice(start, start + _CHUNK)
            draws = KeyedDraws(hiding.draws.secret, hiding.draws.tags[part])
            all_of = _dithered(points.values[part].astype(np.float64), hiding.confounders[part], draws)
            directions = self._directions(all_of, draws)
            offset[part], basis[part] = redraw(
                all_of[:, 0], directions, draws.uniform("offset and basis", self.dimension + 1, points.size)
            )
        return Subspaces(offset, basis)

    def _own_pool(self) -> Pool:
        if self.pool is None:
            raise NotFittedError("hardened lifting needs a pool of the device's own photographs: featveil pool create")
        return self.pool

    def _directions(self, all_of: Float64, draws: KeyedDraws) -> Float64:
        """Orthonormal directions (n, m, d): to the confounders, then random ones."""
        random = draws.uniform("directions", self.dimension - self.confounders, all_of.shape[2])
        directions = np.concatenate([all_of[:, 1:] - all_of[:, :1], random], axis=1)
        if not (orthonormalise(directions) > INDEPENDENT).all():
            raise InputError("a descriptor and its confounders lie in one plane: use a larger pool")
        return directions


def _dithered(points: Float64, confounders: Float32, draws: KeyedDraws) -> Float64:
    """Points (n, d) and their confounders (n, k, d), at the norms of the points and moved alike: (n, k + 1, d)."""
    norms = np.linalg.norm(points, axis=1)[:, None, None]
    together = np.concatenate([points[:, None], confounders], axis=1)
    together /= np.linalg.norm(together, axis=2, keepdims=True)
    together += draws.uniform("dither", together.shape[1], together.shape[2]) * (_STEP / 2)
    together *= norms / np.linalg.norm(together, axis=2, keepdims=True)
    return together
