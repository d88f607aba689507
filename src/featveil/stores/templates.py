"""Enrolled face templates, private ones only. One SQLite file, which knows the network and the defense of all of them.

A template is an affine subspace. A probe is a raw descriptor that stays on the device which compares it, or a subspace
parallel to the template (`featveil.defenses.parallel`); both have the same distance from it, so one threshold serves.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Self

import numpy as np

from featveil.core.arrays import Float32
from featveil.core.descriptors import Points, Subspaces
from featveil.core.errors import FormatError, InputError, PrivacyError
from featveil.core.features import Features, PrivateFeatures, Spec, check_kind
from featveil.core.guarantees import Guarantee
from featveil.distances import Gallery, pair_distances
from featveil.stores.sqlite import storage_of
from featveil.stores.storage import Connection, Schema, Storage, now

SCHEMA = Schema(
    "template store",
    0x66767473,  # "fvts", in the header of the file
    1,
    (
        "CREATE TABLE settings"
        " (kind TEXT NOT NULL, size INTEGER NOT NULL, model TEXT, defense TEXT NOT NULL, among TEXT)",
        "CREATE TABLE templates (id INTEGER PRIMARY KEY, person TEXT NOT NULL UNIQUE, template BLOB NOT NULL,"
        " digest BLOB NOT NULL, time TEXT NOT NULL)",
        "CREATE TABLE calibrations (id INTEGER PRIMARY KEY, far REAL NOT NULL, threshold REAL NOT NULL,"
        " strangers INTEGER NOT NULL, mated INTEGER NOT NULL, true_accept_rate REAL NOT NULL, time TEXT NOT NULL)",
    ),
    "make it with featveil face create",
    "restore it from a copy",
)
_SET = "INSERT INTO settings (kind, size, model, defense, among) VALUES (?, ?, ?, ?, ?)"
_SETTINGS = "SELECT kind, size, defense, model, among FROM settings"
_ENROLL = "INSERT INTO templates (person, template, digest, time) VALUES (?, ?, ?, ?)"
_REVOKE = "DELETE FROM templates WHERE person = ?"
_PEOPLE = "SELECT person FROM templates ORDER BY id"
_IS_ENROLLED = "SELECT 1 FROM templates WHERE person = ?"
_TEMPLATE = "SELECT person, template, digest FROM templates WHERE person = ?"
_TEMPLATES = "SELECT person, template, digest FROM templates ORDER BY id"
_CALIBRATE = """INSERT INTO calibrations (far, threshold, strangers, mated, true_accept_rate, time)
  VALUES (?, ?, ?, ?, ?, ?)"""
_CALIBRATION = """SELECT far, threshold, strangers, mated, true_accept_rate
  FROM calibrations ORDER BY id DESC LIMIT 1"""

_LARGEST_SIZE, _LARGEST_DIMENSION = 65_536, 4096
_BATCH = 1000  # templates of a transaction
_PARALLEL = 1e-3  # how far a direction of a probe may point out of those of the template
_LONGEST_NAME = 200


@dataclass(frozen=True)
class Settings:
    """What all templates of a store share. `among` is where the faces are that they are hidden among, if known."""

    kind: str
    size: int
    defense: Spec
    model: str | None = None
    among: str | None = None

    @property
    def dimension(self) -> int:
        """Of the subspaces."""
        return int(str(self.defense["dimension"]))


@dataclass(frozen=True)
class Calibration:
    """A threshold that accepted a share of at most `far` of `strangers` pairs, and what it did to `mated` ones."""

    far: float
    threshold: float
    strangers: int
    mated: int
    true_accept_rate: float


@dataclass(frozen=True)
class Verdict:
    """How far a probe is from a template; `accepted` is None where the store has no threshold yet."""

    person: str
    distance: float
    threshold: float | None

    @property
    def accepted(self) -> bool | None:
        """Whether the probe is that person."""
        return None if self.threshold is None else self.distance <= self.threshold


class TemplateStore:
    """The store in the file or the storage at `place`, which `create` makes.

    Of a file it waits up to `wait` seconds for other processes.
    """

    def __init__(self, place: str | Path | Storage, wait: float = 10.0) -> None:
        self._storage = storage_of(place, SCHEMA, wait)

    @classmethod
    def create(cls, place: str | Path | Storage, settings: Settings) -> Self:
        """A new store; raises InputError where there is one, and for a defense that makes no subspaces."""
        check_kind(settings.kind)
        dimension = settings.defense.get("dimension")
        if type(dimension) is not int or not 2 <= dimension < settings.size <= _LARGEST_SIZE:
            raise InputError(f"templates of size {settings.size} are subspaces of dimension 2 or more, below it")
        if dimension > _LARGEST_DIMENSION:
            raise InputError(f"the dimension of templates is at most {_LARGEST_DIMENSION}, got {dimension}")
        store = cls(place)
        values = settings.kind, settings.size, settings.model, json.dumps(settings.defense), settings.among
        with store._storage.create() as connection:
            connection.execute(_SET, values)
        return store

    def settings(self) -> Settings:
        """What all templates share."""
        with self._reading() as connection:
            return self._settings(connection)

    def people(self) -> list[str]:
        """Everyone enrolled, in the order of their enrolment."""
        with self._reading() as connection:
            people = [person for (person,) in connection.execute(_PEOPLE)]
        if not all(type(person) is str for person in people):
            raise self._storage.damage()
        return people

    def check_new(self, faces: Iterable[tuple[str, Features]]) -> None:
        """Raise InputError for people that `enroll` would refuse, before anything is spent on their templates."""
        settings, enrolled = self.settings(), set(self.people())
        for person, features in faces:
            _check_name(person)
            _check_network(features, settings)
            if person in enrolled:
                raise _enrolled_already(person)

    def enroll(self, templates: Iterable[tuple[str, PrivateFeatures]]) -> int:
        """Add templates by person, and return how many; they are on the disk once this returns.

        Many are added in parts, each whole or not at all: what was added before an interruption stays. Raises
        InputError for someone enrolled already and for templates of another network or defense.
        """
        added = 0
        for part in _parts(templates):
            with self._storage.transaction() as connection:
                settings = self._settings(connection)
                for person, private in part:
                    blob = _encoded(person, private, settings)
                    if connection.execute(_IS_ENROLLED, (person,)).fetchone() is not None:
                        raise _enrolled_already(person)
                    connection.execute(_ENROLL, (person, blob, digest_of(person, blob), now()))
            added += len(part)
        return added

    def revoke(self, person: str) -> None:
        """Delete someone's template, also from the file's free pages; raises InputError for someone unknown."""
        self._check_text(person)
        with self._storage.transaction() as connection:
            if connection.execute(_REVOKE, (person,)).rowcount == 0:
                raise self._unknown(person)

    def template(self, person: str) -> PrivateFeatures:
        """Someone's template; raises InputError for someone unknown."""
        self._check_text(person)
        with self._reading() as connection:
            settings = self._settings(connection)
            rows = connection.execute(_TEMPLATE, (person,)).fetchall()
        if not rows:
            raise self._unknown(person)
        descriptors = self._decoded(rows, settings)
        return PrivateFeatures(descriptors, settings.kind, settings.defense, Guarantee("empirical"))

    def verify(self, person: str, probe: Features | PrivateFeatures) -> Verdict:
        """Whether `probe`, one descriptor, is of `person`.

        Raises InputError for an unknown person, a probe of another network, and a private one that is not parallel.
        """
        enrolled, values = self.template(person), self._probe(probe)
        assert isinstance(enrolled.descriptors, Subspaces)
        if isinstance(values, Subspaces):
            _check_parallel(values, enrolled.descriptors)
            # Parallel subspaces are equally far everywhere. Nearly parallel ones meet: their distance says nothing.
            values = Points(values.offset)
        zero = np.zeros(1, np.int64)
        distance = float(pair_distances(values, enrolled.descriptors, zero, zero)[0])
        return Verdict(person, distance, self._threshold())

    def identify(self, probe: Features, most: int = 5) -> list[Verdict]:
        """The `most` enrolled people whose templates are nearest to `probe`, nearest first.

        A private probe is refused: it is parallel to one template only, and near to all others.
        """
        if not isinstance(probe, Features):
            raise InputError("only raw probes are identified, on the device that compares them: verify private ones")
        values, (people, gallery) = self._probe(probe), self.gallery()
        threshold = self._threshold()
        nearest = gallery.nearest(values, max(1, min(most, len(people))))
        chosen = zip(nearest.indices[0], nearest.distances[0], strict=True)
        return [Verdict(people[index], float(away), threshold) for index, away in chosen if index >= 0]

    def gallery(self) -> tuple[list[str], Gallery]:
        """Everyone, and their templates ready to be searched many times; raises InputError where there is nobody."""
        with self._reading() as connection:
            settings = self._settings(connection)
            rows = connection.execute(_TEMPLATES).fetchall()
        if not rows:
            raise InputError(f"nobody is enrolled in {self._storage.name}")
        return [person for person, _, _ in rows], Gallery(self._decoded(rows, settings))

    def calibration(self) -> Calibration | None:
        """The latest calibration, or None."""
        with self._reading() as connection:
            values = connection.execute(_CALIBRATION).fetchone()
        if values is None:
            return None
        if not all(isinstance(value, int | float) and math.isfinite(value) for value in values):
            raise self._storage.damage()
        return Calibration(*values)

    def calibrate(self, calibration: Calibration) -> None:
        """Use this threshold from now on."""
        values = astuple(calibration)
        if not all(math.isfinite(value) for value in values):
            raise InputError(f"a calibration is made of finite numbers, got a threshold of {calibration.threshold}")
        with self._storage.transaction() as connection:
            connection.execute(_CALIBRATE, (*values, now()))

    def _threshold(self) -> float | None:
        calibration = self.calibration()
        return None if calibration is None else calibration.threshold

    def _reading(self) -> AbstractContextManager[Connection]:
        return self._storage.transaction(writes=False)

    def _settings(self, connection: Connection) -> Settings:
        rows = connection.execute(_SETTINGS).fetchall()
        try:
            ((kind, size, defense, model, among),) = rows
            settings = Settings(kind, size, json.loads(defense), model, among)
            check_kind(settings.kind)
            known = type(settings.defense["name"]) is str and all(
                type(text) in (str, type(None)) for text in (model, among)
            )
            if not known or type(size) is not int or not 2 <= settings.dimension < size <= _LARGEST_SIZE:
                raise self._storage.damage()
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise self._storage.damage() from error
        return settings

    def _decoded(self, stored: list[tuple[str, bytes, bytes]], settings: Settings) -> Subspaces:
        """Templates as they were stored; raises FormatError where one of them was changed."""
        rows = settings.dimension + 1
        for person, blob, digest in stored:
            if type(person) is not str:
                raise self._storage.damage()
            whole = type(blob) is bytes and len(blob) == 4 * rows * settings.size
            if not whole or digest != digest_of(person, blob):
                raise FormatError(
                    f"the template of {person!r:.80} in {self._storage.name} is damaged: restore the store from a copy,"
                    " or revoke it and enroll again"
                )
        stack = np.frombuffer(b"".join(blob for _, blob, _ in stored), "<f4").reshape(len(stored), rows, settings.size)
        try:
            return Subspaces(stack[:, 0], stack[:, 1:])
        except InputError as error:
            raise self._storage.damage() from error

    def _probe(self, probe: Features | PrivateFeatures) -> Points | Subspaces:
        descriptors = probe.descriptors
        if len(probe) != 1 or not isinstance(descriptors, Points | Subspaces):
            raise InputError(f"a probe is one descriptor, raw or lifted, got {len(probe)}")
        _check_network(probe, self.settings())
        return descriptors

    def _check_text(self, person: str) -> None:
        """Raise InputError for what is no text, such as a name that came as other bytes: nobody is called that."""
        try:
            person.encode()
        except (UnicodeEncodeError, AttributeError) as error:
            raise self._unknown(person) from error

    def _unknown(self, person: str) -> InputError:
        return InputError(f"{person!r:.80} is not enrolled in {self._storage.name}")


def _parts(templates: Iterable[tuple[str, PrivateFeatures]]) -> Iterator[list[tuple[str, PrivateFeatures]]]:
    part: list[tuple[str, PrivateFeatures]] = []
    for one in templates:
        part.append(one)
        if len(part) == _BATCH:
            yield part
            part = []
    if part:
        yield part


def _enrolled_already(person: str) -> InputError:
    return InputError(f"{person!r} is enrolled already: revoke that template first, then enroll again")


def _encoded(person: str, private: PrivateFeatures, settings: Settings) -> bytes:
    """The bytes of a template: offset and basis; raises InputError where it does not belong to the store."""
    _check_name(person)
    if not isinstance(private, PrivateFeatures):
        raise PrivacyError("only private templates are stored: lift the descriptor first")
    descriptors = private.descriptors
    if len(private) != 1 or not isinstance(descriptors, Subspaces):
        raise InputError(f"a template is one lifted descriptor, got {len(private)}")
    _check_network(private, settings)
    if private.defense != settings.defense:
        raise InputError("the store holds templates of another defense: lift with the settings of the store")
    stack: Float32 = np.concatenate([descriptors.offset[:, None], descriptors.basis], axis=1)
    return stack.astype("<f4").tobytes()


def _check_name(person: str) -> None:
    """Raise InputError for what cannot be someone's name."""
    if not isinstance(person, str) or not (
        0 < len(person) <= _LONGEST_NAME and person.isprintable() and person.strip()
    ):
        raise InputError(f"a person is named by 1 to {_LONGEST_NAME} printable characters, got {person!r:.80}")


def _check_network(features: Features | PrivateFeatures, settings: Settings) -> None:
    """Raise InputError for a descriptor of another network, or of another size."""
    size = features.descriptors.size if isinstance(features.descriptors, Points | Subspaces) else 0
    if features.kind != settings.kind or size != settings.size:
        raise InputError(
            f"the store holds templates of {settings.kind} (size {settings.size}), this one is of {features.kind}"
            f" (size {size}): describe it by the same network"
        )


def digest_of(person: str, blob: bytes) -> bytes:
    """What tells that a template, or whose it is, was changed."""
    return hashlib.sha256(person.encode() + b"\0" + blob).digest()


def _check_parallel(probe: Subspaces, enrolled: Subspaces) -> None:
    """Raise InputError unless `probe` has the directions of `enrolled`."""
    if probe.dimension == enrolled.dimension:
        own, theirs = probe.basis[0].astype(np.float64), enrolled.basis[0].astype(np.float64)
        if np.abs(own - (own @ theirs.T) @ theirs).max() <= _PARALLEL:
            return
    raise InputError("a private probe must be parallel to the template of whom it claims to be: lift it along that one")
