"""Frames in, nearest out: what goes over all pairs of two sets. A backend is one file here and one line in BACKENDS.

A backend works in float32 and in units of the frames, where the farthest point has length 1. What it hands back is
allowed to be off by half of MARGIN; `search` decides in float64 wherever that could change an answer. That float64
work, like making frames, is the same for every backend and stays outside, compiled by `compiling.jit`.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from featveil.core import InputError
from featveil.core.arrays import Float32, Integers

Indices = NDArray[np.int32]

# In units of squared distance after scaling. The kernel was seen to be off by up to 4e-6, so two values that differ by
# less than twice that, with some to spare, are compared in float64.
MARGIN = np.float32(1e-5)

# A pair whose smallest pivot is below NEAR_PARALLEL is not trusted and comes back as UNSURE, to be computed in float64.
NEAR_PARALLEL = 1e-2
UNSURE = -1.0

FAR = np.float32(1e30)  # no candidate yet, or a column that only fills up a tile: never nearest, and still finite


@dataclass(frozen=True, eq=False)
class Frames:
    """`stack` (n, rows, d) float32 and `norms` (n,) float32, the squared length of each d0.

    A stack is d0, the point nearest the origin, and then orthonormal directions, to which d0 is orthogonal. In a
    `complementary` stack the rows after d0 are the subspace's normals instead; points compared with it have norm 0.
    """

    stack: Float32
    norms: Float32
    complementary: bool = False

    def __len__(self) -> int:
        return len(self.norms)

    @property
    def rows(self) -> int:
        """Vectors in each stack: 1 + the dimension, or the number of normals."""
        return int(self.stack.shape[1])

    @property
    def reach(self) -> float:
        """The largest squared length of a d0, also where points count with norm 0."""
        if self.norms.any():
            return float(self.norms.max())
        points = self.stack[:, 0].astype(np.float64)
        return float(np.einsum("nd,nd->n", points, points).max(initial=0.0))

    @cached_property
    def flat(self) -> Float32:
        """The stack as one matrix (n * rows, d)."""
        return self.stack.reshape(-1, self.stack.shape[2])

    def take(self, indices: Integers) -> "Frames":
        """The frames at `indices`."""
        return Frames(np.ascontiguousarray(self.stack[indices]), self.norms[indices], self.complementary)


@dataclass(frozen=True, eq=False)
class Rows:
    """Of each row the k smallest `values` (n1, k), sorted, UNSURE before all others, and their column `indices`.

    Of equal values, any may be kept. Where there are fewer than k columns, the rest is FAR.
    """

    values: Float32
    indices: Indices


@dataclass(frozen=True, eq=False)
class Columns:
    """Of each column the `best` and the `second` best value (n2,) and the best's row.

    `rivals` (t, 2) are pairs (row, column), among them every one within MARGIN of its column's best, the best included.
    They are not `complete` when there were too many to list.
    """

    best: Float32
    second: Float32
    rows: Indices
    rivals: Integers
    complete: bool


class Walker(Protocol):
    """Goes over all pairs of two sets of frames; built from the two."""

    def against(self, first: Frames) -> "Walker":
        """A walker over other rows, as many vectors each, and the same columns, which are not prepared again."""

    def stripes(self) -> list[slice]:
        """The rows in the portions that `matrix` likes best."""

    def matrix(self, stripe: slice) -> Float32:
        """Squared distances of some rows to all columns (rows, n2), UNSURE where subspaces are almost parallel."""

    def nearest(self, k: int) -> Rows:
        """The k nearest columns of each row."""

    def nearest_both_ways(self, k: int) -> tuple[Rows, Columns]:
        """The k nearest columns of each row and the nearest row of each column, in one pass."""

    def nearest_pruned(self, bounds: "Walker", k: int, spare: int) -> Rows:
        """As `nearest` of k + `spare`, where only the first k and what is within MARGIN of those have to be right.

        `bounds`, of the same backend, has a lower bound of each distance. A backend may do without it.
        """


class Backend(Protocol):
    """What BACKENDS names: makes a walker over all pairs of two sets of frames; only the first may be empty."""

    def __call__(self, first: Frames, second: Frames) -> Walker: ...


# Module and name. The first one is what runs unless FEATVEIL_BACKEND says otherwise.
BACKENDS: Mapping[str, str] = {
    "numba": "featveil.distances.backends.numba:NumbaWalker",
}


def walker(first: Frames, second: Frames) -> Walker:
    """Make a walker by the backend in use; raises InputError if FEATVEIL_BACKEND names one that does not exist."""
    name = os.environ.get("FEATVEIL_BACKEND") or next(iter(BACKENDS))
    if name not in BACKENDS:
        raise InputError(f"FEATVEIL_BACKEND is {name!r}, must be one of: {', '.join(BACKENDS)}")
    return _backend(BACKENDS[name])(first, second)


@cache
def _backend(place: str) -> Backend:
    module, _, name = place.partition(":")
    return cast(Backend, getattr(import_module(module), name))
