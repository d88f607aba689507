"""Subspaces of concealed descriptors -> the raw descriptors behind them, sought through subspace and network at once.

Behind a concealer no descriptor has zeros, but the raw one has: what vertex.py and candidates.py find in a subspace can
be sought as the raw descriptor with many zeros whose concealed one lies in the subspace. Searches start at what the way
back makes of random points of the subspace; the lowest energy wins, unless it is a known confounder.
"""

import numpy as np
from numpy.typing import NDArray

from featveil.attacks.discriminator_parts.candidates import PULL, Prior, anywhere_in, energy
from featveil.attacks.subspaces import INSIDE
from featveil.attacks.unconceal_parts.inverse import Way, plausible
from featveil.attacks.unconceal_parts.refining import Expected, refine
from featveil.core import ConcealingNetwork, Points, Subspaces
from featveil.core.arrays import Float32, Float64
from featveil.databases import ConcealedDatabase
from featveil.distances import matrix, pair_distances

_LEARNED = 8192  # descriptors are enough for what is usual
_FITS = 0.02  # how far the network may put a candidate from the subspace
_NEVER, _CONFOUNDER = 1e4, 1e5  # energy of what does not fit, and of what is known
_KNOWN = 0.2  # a candidate that near to a known confounder is that one


def seek(
    subspaces: Subspaces,
    network: ConcealingNetwork,
    back: Way,
    raw: Float32,
    known: ConcealedDatabase | None,
    search: tuple[int, int, np.random.Generator],
) -> Float32:
    """Estimates (n, d) of the raw descriptors behind `subspaces`.

    `back` estimates a raw descriptor from a concealed one, `raw` (s, d) are descriptors to learn what is usual from,
    `known` is the database that confounders were drawn from, if it is known. `search` are the number of searches in a
    subspace, their steps, and where they start from.
    """
    starts, steps, rng = search
    prior = Prior.of(raw[:_LEARNED])
    rows = np.repeat(np.arange(len(subspaces)), starts)
    each = subspaces.take(rows)
    first = back(anywhere_in(subspaces, starts, rng).reshape(-1, subspaces.size).astype(np.float32))
    centre = np.broadcast_to(prior.mean, first.shape)
    expected = Expected(centre, PULL * prior.precision, prior.signed, not prior.signed)
    ends = plausible(refine(network, each, first.astype(np.float64), expected, steps), prior.signed)
    away = pair_distances(each, Points(network.apply(ends)), np.arange(len(ends)), np.arange(len(ends)))
    costs = energy(ends.astype(np.float64), prior) + _NEVER * (away > _FITS)
    if known is not None:
        costs += _CONFOUNDER * _are_confounders(ends.reshape(len(subspaces), starts, -1), subspaces, known)
    best = costs.reshape(len(subspaces), starts).argmin(axis=1)
    return np.asarray(ends.reshape(len(subspaces), starts, -1)[np.arange(len(best)), best])


def _are_confounders(ends: Float32, subspaces: Subspaces, known: ConcealedDatabase) -> NDArray[np.bool_]:
    """Which of `ends` (n, s, d) are near an entry whose concealed one lies in the subspace: (n * s,)."""
    inside = matrix(subspaces, known.as_points) <= INSIDE
    entries, spotted = known.source.as_points.values, np.zeros(ends.shape[:2], np.bool_)
    for row in np.flatnonzero(inside.any(axis=1)):
        away: Float64 = np.linalg.norm(ends[row][:, None] - entries[inside[row]][None], axis=2)
        spotted[row] = away.min(axis=1) < _KNOWN
    return spotted.reshape(-1)
