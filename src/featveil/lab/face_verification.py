"""Face verification (Dusmanu et al. 2021, section 4.3, figure 4): which pairs are one person, by private templates.

raw:    both descriptors as they are.
p-to-s: the first as it is, the second lifted.      s-to-s: both lifted, independently of each other.
The faces that others are hidden among show nobody who is tested.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from featveil.core import Flats, InputError
from featveil.core.arrays import Float64, Integers
from featveil.core.records import Parameter, Record
from featveil.core.resuming import Key, Plan, Report, resume, versions
from featveil.core.seeding import check_seed, generator
from featveil.datasets.face_pairs import FacePairs
from featveil.datasets.face_sets import FaceSet
from featveil.distances import pair_distances
from featveil.metrics.error_rates import error_rates, fold_accuracies
from featveil.pipelines.face_schemes import (
    RAW,
    FaceScheme,
    apart_from,
    labels_for,
    lifting_database,
    without,
)

TASK = "face-verification"
DISTANCES = ("p-to-s", "s-to-s")
FARS = (1e-2, 1e-3)
_KEY = ("scheme", "distance")


@dataclass(frozen=True, eq=False)
class Verification:
    """What is verified: `pairs` of `faces`, hidden among `others`; `attribute` is what some strategies balance."""

    name: str
    faces: FaceSet
    pairs: FacePairs
    others: FaceSet
    attribute: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if self.faces.kind != self.others.kind or self.faces.size != self.others.size:
            raise InputError("the faces to hide among were described by another network: describe both by one")
        shared = self.pairs.people(self.faces) & set(self.others.people)
        if shared:
            raise InputError(
                f"{len(shared)} of the people tested are among the faces to hide among, such as {min(shared)!r:.80}:"
                " leave them out"
            )

    @property
    def tested(self) -> FaceSet:
        """The faces without those to hide among, where these are of the same set."""
        return without(self.faces, self.others)

    def shared(self) -> dict[str, Parameter]:
        """Settings that all records of a file have."""
        return {"attribute": self.attribute, "pairs": len(self.pairs), "others": len(self.others)}


def others_of(faces: FaceSet, pairs: FacePairs) -> FaceSet:
    """The faces of everyone who is in no pair; raises InputError where that is nobody."""
    rows = np.flatnonzero(~np.isin(faces.people, list(pairs.people(faces))))
    if len(rows) == 0:
        raise InputError("everyone in these faces is tested: name other faces to hide among")
    return faces.take(rows)


def distances_of(verification: Verification, scheme: FaceScheme, distance: str) -> Float64:
    """The distance (k,) of each pair under one scheme. Templates of both sides are drawn independently."""
    pairs, faces = verification.pairs, verification.faces
    rng = generator(verification.seed, TASK, scheme.name, distance)
    others = apart_from(verification.others, verification.tested)
    database = lifting_database(others, verification.attribute, generator(verification.seed, "database"))
    labels = labels_for(faces, database, verification.attribute) if scheme.needs_labels else None

    def hidden(rows: Integers, raw: bool) -> tuple[Flats, Integers]:
        used, place = np.unique(rows, return_inverse=True)
        chosen = FaceScheme() if raw else scheme
        made = chosen.hide(faces.values[used], database, rng, None if labels is None else labels[used])
        return made, place

    first, i = hidden(pairs.first, distance != "s-to-s")
    second, j = hidden(pairs.second, scheme.strategy == RAW)
    return pair_distances(first, second, i, j)


def run(
    verification: Verification, schemes: Sequence[FaceScheme], done: frozenset[Key] = frozenset()
) -> Iterator[Record]:
    """One record for each scheme and distance that is not in `done`: its value are the accuracies of the folds."""
    for scheme, distance in _wanted(schemes):
        if (scheme.name, distance) not in done:
            values = distances_of(verification, scheme, distance)
            yield _record(verification, scheme, distance, values)


def run_resumable(
    verification: Verification,
    schemes: Sequence[FaceScheme],
    path: str | Path,
    report: Report = lambda done, total: None,
) -> list[Record]:
    """Run what `path` does not hold yet, append each record once measured, return all that were asked for."""
    shared = {"dataset": verification.name, "seed": verification.seed, **verification.shared()}
    wanted: dict[Key, dict[str, Parameter]] = {
        (scheme.name, distance): scheme.parameters() for scheme, distance in _wanted(schemes)
    }
    return resume(path, Plan(TASK, _KEY, shared, wanted), lambda done: run(verification, schemes, done), report)


def _wanted(schemes: Sequence[FaceScheme]) -> list[tuple[FaceScheme, str]]:
    return [(scheme, name) for scheme in schemes for name in ((RAW,) if scheme.strategy == RAW else DISTANCES)]


def _record(verification: Verification, scheme: FaceScheme, distance: str, distances: Float64) -> Record:
    rates = error_rates(distances, verification.pairs.same)
    far, frr = rates.curve()
    parameters: dict[str, Parameter] = {
        "distance": distance,
        "fars": list(FARS),
        "true_accept_rates": [round(rates.true_accept_rate(one), 6) for one in FARS],
        "equal_error_rate": round(rates.equal_error_rate, 6),
        "det_far": [round(float(one), 6) for one in far],
        "det_frr": [round(float(one), 6) for one in frr],
    }
    return Record(
        task=TASK,
        dataset=verification.name,
        scheme=scheme.name,
        metric="accuracy",
        value=tuple(
            round(float(one), 6) for one in fold_accuracies(distances, verification.pairs.same, verification.pairs.fold)
        ),
        unit="share",
        count=len(distances),
        seed=verification.seed,
        versions=versions(),
        parameters={**parameters, **scheme.parameters(), **verification.shared()},
    )
