"""What studies of face templates share: schemes, faces that hide others, and templates made of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from featveil.core import Flats, InputError, Points, Randomness, Subspaces
from featveil.core.arrays import Float32, Integers
from featveil.core.records import Parameter
from featveil.databases import Database
from featveil.databases.nearest_labels import NearestLabels
from featveil.datasets.face_sets import FaceSet
from featveil.defenses import STRATEGIES, Hardened, Lifting
from featveil.distances import nearest
from featveil.stores.pool import Pool

RAW, HARDENED = "raw", "hardened"
FACE_STRATEGIES = ("random", "adversarial", "hybrid", "hybrid+", "balanced", HARDENED)
DIMENSIONS = (2, 4, 8, 16, 32)
# Photographs whose descriptors are nearer show one person, where names do not tell: of 5,749 people in LFW 0.5 % have
# another so near, and of 16,592 photographs in UTKFace, which names nobody, 19 %.
SAME_PERSON = 0.7
_ALIKE = 12  # nearest photographs that are looked at for it
_TOGETHER = 16  # hidden in one call: too few for hardened lifting to fit anything to them, as it must be for one face


@dataclass(frozen=True)
class FaceScheme:
    """A way to hide face descriptors; half of the directions lead to confounders where a strategy has both sorts."""

    strategy: str = RAW
    dimension: int = 0

    @property
    def name(self) -> str:
        """Strategy and dimension."""
        return self.strategy if self.strategy == RAW else f"{self.strategy}-{self.dimension}"

    @property
    def confounders(self) -> int:
        """Real descriptors in each subspace beside the hidden one."""
        if self.strategy == RAW:
            return 0
        return self.dimension // 2 if self.strategy == HARDENED else self._lifting().adversarial_directions

    @property
    def needs_labels(self) -> bool:
        """Whether it balances an attribute."""
        return self.strategy in STRATEGIES and STRATEGIES[self.strategy].needs_labels

    def parameters(self) -> dict[str, Parameter]:
        """Strategy, dimension and confounders."""
        return {"strategy": self.strategy, "dimension": self.dimension, "confounders": self.confounders}

    def lifting(self, database: Database) -> Lifting:
        """The lifting with `database`; raises InputError where this scheme is none."""
        if self.strategy not in STRATEGIES:
            raise InputError(f"{self.name} is not lifting")
        return Lifting(self.strategy, self.dimension, database=database)

    def hide(self, values: Float32, database: Database, rng: Randomness, labels: Integers | None = None) -> Flats:
        """Templates of the descriptors `values` (n, d). `labels` (n,) are of the attribute that is balanced."""
        if self.strategy == RAW:
            return Points(values)
        if self.strategy == HARDENED:
            return self._hardened(values, database, rng)
        return self.lifting(database).privatize(Points(values), rng, labels if self.needs_labels else None)

    def _hardened(self, values: Float32, database: Database, rng: Randomness) -> Subspaces:
        """As if each face had a device with a pool of its own: confounders are new for each, and nobody has them."""
        made: list[Subspaces] = []
        pool = Pool.in_memory(database.points(), database.kind, rng)
        capacity = left = pool.holdings().free // self.confounders
        if capacity < 1:
            raise InputError(f"{self.confounders} confounders need as many other faces, there are {len(database)}")
        for start in range(0, len(values), min(_TOGETHER, capacity)):
            part = Points(values[start : start + min(_TOGETHER, capacity)])
            if left < len(part):
                pool, left = Pool.in_memory(database.points(), database.kind, rng), capacity
            left -= len(part)
            made.append(Hardened(self.confounders, self.dimension, pool).privatize(part, rng))
        return Subspaces(np.concatenate([one.offset for one in made]), np.concatenate([one.basis for one in made]))

    def _lifting(self) -> Lifting:
        return Lifting(self.strategy, self.dimension)


def make_schemes(
    strategies: Sequence[str] = FACE_STRATEGIES, dimensions: Sequence[int] = DIMENSIONS
) -> list[FaceScheme]:
    """Raw descriptors, then every strategy x dimension; raises InputError for unknown ones."""
    for strategy in strategies:
        if strategy not in FACE_STRATEGIES:
            raise InputError(f"unknown strategy {strategy!r:.80}: use one of {', '.join(FACE_STRATEGIES)}")
    for dimension in dimensions:
        if dimension < 2:
            raise InputError(f"face descriptors have one norm, so a dimension is at least 2, got {dimension}")
    wanted = product(dict.fromkeys(strategies), dict.fromkeys(dimensions))
    return [FaceScheme(), *(FaceScheme(*one) for one in wanted)]


def lifting_database(faces: FaceSet, attribute: str | None, rng: np.random.Generator) -> Database:
    """The faces that others are hidden among, with the labels of `attribute` where they have it."""
    labels = faces.attributes.get(attribute) if attribute is not None else None
    return Database.from_array(faces.values, faces.kind, 1, labels, rng)


def labels_for(faces: FaceSet, database: Database, attribute: str | None) -> Integers | None:
    """Labels (n,) of `attribute`: their own, else what the labelled database suggests by its nearest ten; or None."""
    if attribute is not None and attribute in faces.attributes:
        return faces.attributes[attribute]
    if database.labels is None:
        return None
    return NearestLabels().fit(database.as_points, database.labels).predict(Points(faces.values))


def without(faces: FaceSet, others: FaceSet) -> FaceSet:
    """The faces of everyone who is not in `others` by name; raises InputError where that is nobody."""
    rows = np.flatnonzero(~np.isin(faces.people, others.people))
    if len(rows) == 0:
        raise InputError("everyone is both tested and hidden among: name other faces to hide among")
    return faces.take(rows)


def apart_from(others: FaceSet, faces: FaceSet) -> FaceSet:
    """Those of `others` who do not look like anyone of `faces`; raises InputError where nobody is left."""
    away = nearest(Points(others.values), Points(faces.values), 1).distances[:, 0]
    rows = np.flatnonzero(away >= SAME_PERSON)
    if len(rows) == 0:
        raise InputError("all of the faces to hide among look like someone tested: name other faces")
    return others.take(rows)


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
    found = nearest(Points(faces.values), Points(faces.values), min(_ALIKE, len(faces)))
    i, place = np.nonzero(found.distances < SAME_PERSON)
    j = found.indices[i, place]
    links = coo_matrix((np.ones(len(i)), (person[i], person[j])), shape=(person.max() + 1,) * 2)
    return np.asarray(connected_components(links, directed=False)[1][person], np.int64)
