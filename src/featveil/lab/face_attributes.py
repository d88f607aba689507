"""What attackers read off face templates: gender, race and age band (Dusmanu et al. 2021, section 4.3, figure 5).

Faces are split into those that lifting hides others among, those that the attacker has labels of, and victims, three
parts without a person in common (`groups_of_people`). Attackers:
chance:    the most frequent label of the attacker's own faces, for everyone.
knn:       the paper's: its ten nearest faces vote, by point-to-subspace distance.
trained:   learns from its own faces, hidden by the same defense.
unmix:     knows the lifting database, removes the confounders and reads what is left as a raw descriptor is read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from featveil.attacks import Knowledge, Unmix, attack
from featveil.attacks.on_faces.attributes import TrainedLabels
from featveil.core import Flats, Guarantee, InputError, Points, PrivateFeatures
from featveil.core.arrays import Integers
from featveil.core.records import Parameter, Record
from featveil.core.resuming import Key, Plan, Report, resume, versions
from featveil.core.seeding import check_seed, generator
from featveil.databases import Database
from featveil.databases.nearest_labels import NearestLabels
from featveil.datasets.face_sets import FaceSet
from featveil.pipelines.face_schemes import (
    HARDENED,
    RAW,
    FaceScheme,
    apart_from,
    groups_of_people,
    lifting_database,
)

TASK = "face-attributes"
AGE_BANDS = (13, 20, 40, 60)  # the first years of the bands after the youngest
ATTACKERS = ("chance", "knn", "trained", "unmix")
NEIGHBOURS = 10
_KEY = ("scheme", "attack", "attribute")
_MOST_EXAMPLES = 4000  # that are learned from: the time grows with their third power


@dataclass(frozen=True, eq=False)
class Split:
    """Three parts of one set of faces, by person."""

    lifting: FaceSet
    attacker: FaceSet
    victims: FaceSet


@dataclass(frozen=True, eq=False)
class AttributeStudy:
    """Whose attributes are attacked; `shares` are those of the lifting database and of the attacker."""

    name: str
    faces: FaceSet
    attributes: tuple[str, ...] = ("gender", "race", "age")
    shares: tuple[float, float] = (0.35, 0.4)
    seed: int = 0

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if min(self.shares) <= 0 or sum(self.shares) >= 1:
            raise InputError(f"shares of the lifting database and the attacker leave victims over, got {self.shares}")
        for attribute in self.attributes:
            if (self.faces.attribute(attribute) < 0).any():
                raise InputError(f"labels of {attribute} must be 0 or more")

    @cached_property
    def split(self) -> Split:
        """The faces, split by person, the same for the same seed."""
        person = groups_of_people(self.faces)
        people = int(person.max()) + 1
        place = generator(self.seed, TASK, "split").permutation(people)[person] / people
        limits = np.cumsum(self.shares)
        parts = [np.flatnonzero(np.searchsorted(limits, place, side="right") == part) for part in range(3)]
        if min(map(len, parts)) < NEIGHBOURS:
            raise InputError(f"{people} people are too few for a lifting database, an attacker and victims")
        return Split(*(self.faces.take(rows) for rows in parts))

    def labels(self, faces: FaceSet, attribute: str) -> Integers:
        """Labels (n,) of an attribute; years of age become bands."""
        found = faces.attribute(attribute)
        return np.digitize(found, AGE_BANDS) if attribute == "age" else found

    def shared(self) -> dict[str, Parameter]:
        """Settings that all records of a file have."""
        return {"shares": list(self.shares), "faces": len(self.faces), "neighbours": NEIGHBOURS}


def run(study: AttributeStudy, schemes: Sequence[FaceScheme], done: frozenset[Key] = frozenset()) -> Iterator[Record]:
    """One record for each scheme, attacker and attribute that is not in `done`: the share of labels that are right."""
    for scheme in schemes:
        wanted = [key for key in _keys(study, scheme) if key not in done]
        # A strategy that balances an attribute makes other templates for each of them.
        groups = [(one,) for one in study.attributes] if scheme.needs_labels else [study.attributes]
        for group in groups:
            if any(key[2] in group for key in wanted):
                victims = _Victims(study, scheme, group)
                for _, attacker, attribute in [key for key in wanted if key[2] in group]:
                    yield _record(victims, attacker, attribute)


def run_resumable(
    study: AttributeStudy,
    schemes: Sequence[FaceScheme],
    path: str | Path,
    report: Report = lambda done, total: None,
) -> list[Record]:
    """Run what `path` does not hold yet, append each record once measured, return all that were asked for."""
    shared = {"dataset": study.name, "seed": study.seed, **study.shared()}
    wanted = {key: scheme.parameters() for scheme in schemes for key in _keys(study, scheme)}
    return resume(path, Plan(TASK, _KEY, shared, wanted), lambda done: run(study, schemes, done), report)


class _Victims:
    """Templates of all victims under one scheme, and what each attacker makes of them."""

    def __init__(self, study: AttributeStudy, scheme: FaceScheme, attributes: tuple[str, ...]) -> None:
        self.study, self.scheme, self.attributes = study, scheme, attributes
        balanced = attributes[0] if scheme.needs_labels else None
        lifting = study.split.lifting
        labelled = lifting
        if balanced is not None:
            bands = {balanced: study.labels(lifting, balanced)}
            labelled = FaceSet(lifting.values, lifting.names, lifting.kind, bands)
        self.database: Database = lifting_database(labelled, balanced, generator(study.seed, "database"))
        self.rng = generator(study.seed, TASK, scheme.name, *attributes)
        self.seen = self._hidden(study.split.victims, balanced, self.database)
        self._balanced = balanced

    def guesses(self, attacker: str, attribute: str) -> Integers:
        """The attribute of each victim, as an attacker guesses it."""
        known, study = self.study.split.attacker, self.study
        labels = study.labels(known, attribute)
        match attacker:
            case "chance":
                return np.full(len(self.seen), np.bincount(labels).argmax())
            case "knn":
                return NearestLabels(NEIGHBOURS).fit(Points(known.values), labels).predict(self.seen)
            case "trained":
                return self._trained[attribute].predict(self.seen)
        return self._readers[attribute].predict(self._unmixed)

    @cached_property
    def _trained(self) -> dict[str, TrainedLabels]:
        own = self.study.split.attacker
        count = min(_MOST_EXAMPLES, 2 * len(own) // 3)
        order = self.rng.permutation(len(own))  # files may be sorted by a label
        known, rest = own.take(order[:count]), own.take(order[count:])
        many = [self.study.labels(known, one) for one in self.attributes]
        # Nobody has the faces of a private pool: the attacker hides its own among the rest of them.
        among = self.database
        if self.scheme.strategy == HARDENED:
            among = lifting_database(apart_from(rest, known), None, self.rng)
        fitted = TrainedLabels().fit_many(self._hidden(known, self._balanced, among), many)
        return dict(zip(self.attributes, fitted, strict=True))

    @cached_property
    def _readers(self) -> dict[str, NearestLabels]:
        known = self.study.split.attacker
        return {
            one: NearestLabels(NEIGHBOURS).fit(Points(known.values), self.study.labels(known, one))
            for one in self.attributes
        }

    @cached_property
    def _unmixed(self) -> Points:
        seen = PrivateFeatures(
            self.seen, self.database.kind, self.scheme.lifting(self.database).spec(), Guarantee("empirical")
        )
        return Points(attack(seen, Unmix(), Knowledge(lifting_database=self.database), self.rng).values)

    def _hidden(self, faces: FaceSet, balanced: str | None, among: Database) -> Flats:
        labels = None if balanced is None else self.study.labels(faces, balanced)
        return self.scheme.hide(faces.values, among, self.rng, labels)


def _keys(study: AttributeStudy, scheme: FaceScheme) -> list[Key]:
    """Of a scheme: whoever has no confounders, or none that are known, is not unmixed."""
    unmixed = scheme.confounders > 0 and scheme.strategy not in (RAW, HARDENED)
    attackers = [one for one in ATTACKERS if one != "unmix" or unmixed]
    return [(scheme.name, one, attribute) for one in attackers for attribute in study.attributes]


def _record(victims: _Victims, attacker: str, attribute: str) -> Record:
    study = victims.study
    right = victims.guesses(attacker, attribute) == study.labels(study.split.victims, attribute)
    return Record(
        task=TASK,
        dataset=study.name,
        scheme=victims.scheme.name,
        metric="accuracy",
        value=round(float(right.mean()), 6),
        unit="share",
        count=len(right),
        seed=study.seed,
        versions=versions(),
        attack=attacker,
        parameters={"attribute": attribute, **victims.scheme.parameters(), **study.shared()},
    )
