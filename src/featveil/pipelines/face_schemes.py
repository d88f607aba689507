"""Faces that hide by private pools, and parts of a set of faces without a person in common."""

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from featveil.core import InputError, Points, Randomness, Subspaces
from featveil.core.arrays import Float32, Integers
from featveil.databases import Database
from featveil.datasets.face_sets import FaceSet
from featveil.defenses import Hardened
from featveil.distances import nearest
from featveil.stores.pool import Pool

HARDENED = "hardened"
# Photographs whose descriptors are nearer show one person, where names do not tell: of 5,749 people in LFW 0.5 % have
# another so near, and of 16,592 photographs in UTKFace, which names nobody, 19 %.
SAME_PERSON = 0.7
_ALIKE = 12  # nearest photographs that are looked at for it
_TOGETHER = 16  # hidden in one call: too few for hardened lifting to fit anything to them, as it must be for one face


def hide_by_pools(values: Float32, database: Database, dimension: int, rng: Randomness) -> Subspaces:
    """Hardened templates of `values` (n, d), half of whose directions lead to confounders.

    As if each face had a device with a pool of its own: confounders are new for each, and nobody has them.
    """
    confounders = dimension // 2
    hidden: list[Subspaces] = []
    pool = Pool.in_memory(database.points(), database.kind, rng)
    capacity = left = pool.holdings().free // confounders
    if capacity < 1:
        raise InputError(f"{confounders} confounders need as many other faces, there are {len(database)}")
    for start in range(0, len(values), min(_TOGETHER, capacity)):
        part = Points(values[start : start + min(_TOGETHER, capacity)])
        if left < len(part):
            pool, left = Pool.in_memory(database.points(), database.kind, rng), capacity
        left -= len(part)
        hidden.append(Hardened(confounders, dimension, pool).privatize(part, rng))
    return Subspaces(np.concatenate([one.offset for one in hidden]), np.concatenate([one.basis for one in hidden]))


def halves(faces: FaceSet, rng: np.random.Generator) -> tuple[FaceSet, FaceSet]:
    """Two parts of about the same size without a person in common: one to hide among, one for the attacker."""
    person = groups_of_people(faces)
    second = (rng.permutation(int(person.max()) + 1) % 2)[person] == 1
    if second.all() or not second.any():
        raise InputError("the faces to hide among are of one person: name more of them")
    return faces.take(np.flatnonzero(~second)), faces.take(np.flatnonzero(second))


def groups_of_people(faces: FaceSet) -> Integers:
    """A number (n,) for everyone: photographs of one name, or as alike as those of one person, have the same."""
    _, person = np.unique(faces.people, return_inverse=True)
    near = nearest(Points(faces.values), Points(faces.values), min(_ALIKE, len(faces)))
    i, place = np.nonzero(near.distances < SAME_PERSON)
    j = near.indices[i, place]
    links = coo_matrix((np.ones(len(i)), (person[i], person[j])), shape=(person.max() + 1,) * 2)
    return np.asarray(connected_components(links, directed=False)[1][person], np.int64)
