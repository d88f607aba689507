"""The dual form: a subspace as the set of points that d - m hyperplanes have in common (supplement A).

A subspace is offset + span(normals)^perp with orthonormal normals. Point distances in this form need d - m products
instead of m, so `frames` uses it by itself for points against subspaces of dimension d / 2 and more. The dual system
(13) between two subspaces is here for completeness and for checking: where the paper recommends it (m > 3/4 d), two
subspaces generically meet and every distance is zero.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from featveil.core import InputError, Points, Subspaces
from featveil.core.arrays import Float64, Floats, Integers, floats


@dataclass(frozen=True, eq=False)
class Dual:
    """`offset` (n, d) and `normals` (n, d - m, d) with orthonormal rows, both float64."""

    offset: Float64
    normals: Float64

    def __post_init__(self) -> None:
        object.__setattr__(self, "offset", floats("offsets", self.offset, (None, None), np.float64))
        n, d = self.offset.shape
        object.__setattr__(self, "normals", floats("normals", self.normals, (n, None, d), np.float64))
        gram = self.normals @ self.normals.transpose(0, 2, 1)
        if gram.size and np.abs(gram - np.eye(gram.shape[1])).max() > 1e-4:
            raise InputError("normals must have orthonormal rows")

    def __len__(self) -> int:
        return len(self.offset)

    def take(self, indices: Integers) -> Self:
        """The subspaces at `indices`."""
        return type(self)(self.offset[indices], self.normals[indices])


def to_dual(subspaces: Subspaces) -> Dual:
    """The same subspaces, given by their normals."""
    return Dual(subspaces.offset.astype(np.float64), complement(subspaces.basis))


def from_dual(dual: Dual) -> Subspaces:
    """The same subspaces, given by their directions."""
    return Subspaces(dual.offset.astype(np.float32), complement(dual.normals).astype(np.float32))


def complement(basis: Floats) -> Float64:
    """Orthonormal bases (n, d - m, d) of what is orthogonal to the rows of `basis` (n, m, d)."""
    _, m, d = basis.shape
    full: Float64 = np.linalg.qr(basis.astype(np.float64).transpose(0, 2, 1), mode="complete").Q
    return np.ascontiguousarray(full[:, :, m:d].transpose(0, 2, 1))


def dual_matrix(a: Points | Dual, b: Dual) -> Float64:
    """Distances (n1, n2) from the dual representation: Eq. 17 for points, system (13) for subspaces."""
    result = np.empty((len(a), len(b)))
    for j in range(len(b)):
        for i in range(len(a)):
            if isinstance(a, Points):
                heights = b.normals[j] @ (a.values[i].astype(np.float64) - b.offset[j])
            else:
                heights = _solve_system(a.take(np.array([i])), b.take(np.array([j])))
            result[i, j] = np.linalg.norm(heights)
    return result


def _solve_system(a: Dual, b: Dual) -> Float64:
    """nu of system (13): the coordinates of the shortest connection in the normals of `b`."""
    first, second = a.normals[0], b.normals[0]
    (k1, d), k2 = first.shape, len(second)
    system = np.zeros((k1 + k2 + d, d + k1 + k2))
    system[:k1, :d] = first
    system[k1 : k1 + k2, :d] = second
    system[k1 : k1 + k2, d + k1 :] = np.eye(k2)
    system[k1 + k2 :, d : d + k1] = first.T
    system[k1 + k2 :, d + k1 :] = -second.T
    right = np.concatenate([first @ a.offset[0], second @ b.offset[0], np.zeros(d)])
    # Subspaces that meet in more than a point leave the foot point free: take the shortest solution.
    solution = np.linalg.lstsq(system, right, rcond=None)[0]
    return np.asarray(solution[d + k1 :])
