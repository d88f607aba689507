"""What attacks on subspaces share: what they were given, projections, and points where there is no better guess."""

from contextlib import suppress

import numpy as np

from featveil.attacks.knowledge import Knowledge
from featveil.core import InputError, PrivateFeatures, Subspaces
from featveil.core.arrays import Float64, Floats, Integers
from featveil.databases import Database, builtin


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
