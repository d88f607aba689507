"""What studies of face templates share: schemes, faces that hide others, and templates made of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from featveil.core import Flats, InputError, Points, Randomness
from featveil.core.arrays import Float32, Integers
from featveil.core.records import Parameter
from featveil.databases import Database
from featveil.databases.nearest_labels import NearestLabels
from featveil.datasets.face_sets import FaceSet
from featveil.defenses import STRATEGIES, Lifting
from featveil.distances import nearest
from featveil.pipelines.face_parts.face_templates import HARDENED as HARDENED
from featveil.pipelines.face_parts.face_templates import SAME_PERSON as SAME_PERSON
from featveil.pipelines.face_parts.face_templates import groups_of_people as groups_of_people
from featveil.pipelines.face_parts.face_templates import halves as halves
from featveil.pipelines.face_parts.face_templates import hide_by_pools

RAW = "raw"
FACE_STRATEGIES = ("random", "adversarial", "hybrid", "hybrid+", "balanced", HARDENED)
DIMENSIONS = (2, 4, 8, 16, 32)


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
            return hide_by_pools(values, database, rng, self.confounders, self.dimension)
        return self.lifting(database).privatize(Points(values), rng, labels if self.needs_labels else None)

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
