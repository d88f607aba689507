"""What attacks on subspaces share: what they were given, projections, where two meet, and a guess without any idea."""

from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from featveil.attacks.knowledge import Knowledge
from featveil.core import InputError, PrivateFeatures, Subspaces
from featveil.core.arrays import Float64, Floats, Integers
from featveil.databases import Database, builtin
from featveil.distances import matrix

# What counts as distance zero. Measured on photographs, with the built-in database and m = 2 to 16: what meets comes
# out at 5e-7 at most (1.3e-3 when stored in half precision), what does not at 0.03 at least.
INSIDE = 5e-3
_ROWS = 512  # of subspaces that are compared with all others at a time


def subspaces_of(seen: PrivateFeatures) -> Subspaces:
    """The private descriptors, which `attack` has checked to be subspaces."""
    if not isinstance(seen.descriptors, Subspaces):
        raise InputError(f"this attack is on subspaces, not on {type(seen.descriptors).__name__}")
    return seen.descriptors


def database_of(knowledge: Knowledge) -> Database:
    """The attacker's own database, which `attack` has checked to be there."""
    if knowledge.database is None:
        raise InputError("this attack needs a database of descriptors")
    return knowledge.database


def project(values: Floats, subspaces: Subspaces, rows: Integers | slice = slice(None)) -> Float64:
    """The point of subspace `rows[i]` nearest to `values[i]`: (n, d) or, for several a subspace, (n, k, d)."""
    offset, basis = subspaces.offset[rows].astype(np.float64), subspaces.basis[rows].astype(np.float64)
    several = values.ndim == 3
    seen_from = values - (offset[:, None] if several else offset)
    coordinates = (seen_from if several else seen_from[:, None]) @ basis.transpose(0, 2, 1)
    moved = coordinates @ basis
    return np.asarray(offset[:, None] + moved if several else offset + moved[:, 0])


def central(subspaces: Subspaces, kind: str) -> Float64:
    """The point (n, d) of each subspace nearest to the mean descriptor of `kind`: the answer without any idea.

    The mean is that of the built-in database; where there is none for the kind, it is the origin.
    """
    mean = np.zeros(subspaces.size)
    with suppress(InputError):
        usual = builtin(kind)
        if usual.size == subspaces.size:
            mean = usual.as_points.values.mean(axis=0, dtype=np.float64)
    return project(np.tile(mean, (len(subspaces), 1)), subspaces)


def meeting_pairs(subspaces: Subspaces, others: Subspaces) -> Iterator[tuple[Integers, Integers]]:
    """Which of `subspaces` (rows) meet which of `others` (columns), some at a time, in no special order.

    With itself (the same object) each pair is found in both orders but computed once, and none meets itself.
    """
    same = others is subspaces
    for start in range(0, len(subspaces), _ROWS):
        rows = np.arange(start, min(start + _ROWS, len(subspaces)))
        first = start if same else 0
        # `matrix` is the fast kernel, and recomputes in float64 whatever that finds to be almost zero.
        i, j = np.nonzero(matrix(subspaces.take(rows), others.take(np.arange(first, len(others)))) <= INSIDE)
        i, j = i + start, j + first
        if same:
            once = i < j
            i, j = np.concatenate([i[once], j[once]]), np.concatenate([j[once], i[once]])
        yield i, j
