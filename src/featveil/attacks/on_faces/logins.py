"""Login attack: one person's descriptor from a history of private logins, each from another photograph.

Dusmanu et al. 2021, section 5, name the danger and leave it open. Two ways in, both ours:
`meeting_point`     the point that is near all subspaces and looks like a face: the more of them, the nearer.
`varying_part`      where the same confounders hide every login they are what all subspaces share; what changes from
                    login to login, and resembles none of them, is the person.
Knows:      the history; what descriptors are like in general.
Breaks:     a fresh lift at each login (the first), the same confounders at each login (the second).
Fails:      where the subspaces are parallel: then all that changes is seen at the first login.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from featveil.core import InputError, Subspaces
from featveil.core.arrays import Float32, Float64
from featveil.distances.orthonormal import orthonormalise

_SHARED = 0.98  # mean squared cosine from which on a direction is one of all subspaces
_MEET = 0.05  # distance from all subspaces below which they share a point


@dataclass(frozen=True, eq=False)
class Population:
    """What an attacker knows of descriptors in general.

    `mean` (d,), the variance of one component over all people, and that over the photographs of one person.
    """

    mean: Float64
    between: float
    within: float

    @classmethod
    def of(cls, values: Float32, people: NDArray[np.str_]) -> "Population":
        """From descriptors (n, d) of other people, of some more than one; raises InputError where there is none."""
        _, person, counts = np.unique(people, return_inverse=True, return_counts=True)
        sums = np.zeros((len(counts), values.shape[1]))
        np.add.at(sums, person, values.astype(np.float64))
        repeated = counts[person] > 1
        if not repeated.any():
            raise InputError("how photographs of one person differ is seen from people with several of them")
        away = values[repeated] - (sums / counts[:, None])[person[repeated]]
        freedom = repeated.sum() - (counts > 1).sum()
        mean = values.mean(axis=0, dtype=np.float64)
        between = float(((values - mean) ** 2).mean())
        return cls(mean, between, float((away**2).sum() / (freedom * values.shape[1])))


def meeting_point(logins: Sequence[Subspaces], population: Population) -> Float64:
    """The most likely descriptor (n, d) of each of n people, given one subspace of each in every login.

    Normal distributions around the person and of people: with projectors P and offsets a, it solves
    (sum of (I - P) / within + I / between) x = sum of (I - P) a / within + mean / between.
    """
    d = logins[0].size
    matrix = np.tile(np.eye(d) / population.between, (len(logins[0]), 1, 1))
    right = np.tile(population.mean / population.between, (len(logins[0]), 1))
    for login in logins:
        basis, offset = _upright(login)
        matrix += (np.eye(d) - basis.transpose(0, 2, 1) @ basis) / population.within
        right += offset / population.within
    return np.asarray(np.linalg.solve(matrix, right[:, :, None])[:, :, 0])


def varying_part(logins: Sequence[Subspaces], population: Population) -> tuple[Float64, NDArray[np.bool_]]:
    """What hides behind confounders that all logins share (n, d), and for whom there are any (n,)."""
    values = np.tile(population.mean, (len(logins[0]), 1))
    answered = np.zeros(len(values), np.bool_)
    parts = [_upright(login) for login in logins]
    for person in range(len(values)):
        bases = np.array([basis[person] for basis, _ in parts])
        offsets = np.array([offset[person] for _, offset in parts]) - population.mean
        guess = _beside_shared(bases, offsets)
        if guess is not None:
            values[person] += guess
            answered[person] = True
    return values, answered


def _beside_shared(bases: Float64, offsets: Float64) -> Float64 | None:
    """A direction (d,) at right angles to what subspaces offsets (t, d) + span of bases (t, m, d) share.

    They share all their directions but one and a point: what is left of each is a line through that point. Its part at
    right angles to the shared ones points to the hidden descriptor, or away from it: the point at right angles to the
    shared point tells which. None where they share something else.
    """
    count, m, d = bases.shape
    projectors = bases.transpose(0, 2, 1) @ bases
    weights, axes = np.linalg.eigh(projectors.mean(axis=0))
    shared = axes[:, weights > _SHARED].T
    if count < 2 or len(shared) != m - 1:
        return None
    lines = np.linalg.svd(bases - (bases @ shared.T) @ shared)[2][:, :1]  # (t, 1, d): the one direction that is left
    starts = offsets - (offsets @ shared.T) @ shared
    away = np.eye(d) - lines.transpose(0, 2, 1) @ lines
    point = np.linalg.lstsq(away.sum(axis=0), (away @ starts[:, :, None]).sum(axis=0)[:, 0], rcond=1e-9)[0]
    point -= (point @ shared.T) @ shared
    missed = np.linalg.norm((away @ (point - starts)[:, :, None])[:, :, 0], axis=1)
    if missed.max() > _MEET:
        return None
    along = lines[:, 0] @ point
    steps = -(point @ point) / np.where(np.abs(along) < 1e-9, 1e-9, along)
    reached = point + steps[:, None] * lines[:, 0]
    reached /= np.linalg.norm(reached, axis=1, keepdims=True)
    total = reached.sum(axis=0)
    return np.asarray(total / max(float(np.linalg.norm(total)), 1e-12))


def _upright(login: Subspaces) -> tuple[Float64, Float64]:
    """Orthonormal bases, and offsets without their part along them."""
    basis = login.basis.astype(np.float64)
    orthonormalise(basis)
    offset = login.offset.astype(np.float64)
    offset -= ((offset[:, None] @ basis.transpose(0, 2, 1)) @ basis)[:, 0]
    return basis, offset
