"""Enrolled face templates, private ones only. One SQLite file, which knows the network and the defense of all of them.

A template is an affine subspace. A probe is a raw descriptor that stays on the device which compares it, or a subspace
parallel to the template (`featveil.defenses.parallel`); both have the same distance from it, so one threshold serves.
"""

import json
import math
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np

from featveil.core.descriptors import Points, Subspaces
from featveil.core.errors import FormatError, InputError
from featveil.core.features import Features, PrivateFeatures, check_kind
from featveil.core.guarantees import Guarantee
from featveil.distances import Gallery, pair_distances
from featveil.stores.sqlite import SqliteFile
from featveil.stores.template_records import (
    Calibration,
    Settings,
    Verdict,
    check_name,
    check_network,
    check_parallel,
    digest_of,
    encoded,
)

__all__ = ["Calibration", "Settings", "TemplateStore", "Verdict"]

_APPLICATION, _VERSION = 0x66767473, 1  # "fvts", in the header of the file
_TABLES = (
    "CREATE TABLE settings (kind TEXT NOT NULL, size INTEGER NOT NULL, model TEXT, defense TEXT NOT NULL, among TEXT)",
    "CREATE TABLE templates (id INTEGER PRIMARY KEY, person TEXT NOT NULL UNIQUE, template BLOB NOT NULL,"
    " digest BLOB NOT NULL, time TEXT NOT NULL)",
    "CREATE TABLE calibrations (id INTEGER PRIMARY KEY, far REAL NOT NULL, threshold REAL NOT NULL,"
    " strangers INTEGER NOT NULL, mated INTEGER NOT NULL, true_accept_rate REAL NOT NULL, time TEXT NOT NULL)",
)
_NOW = "strftime('%Y-%m-%dT%H:%M:%SZ', 'now')"
_LARGEST_SIZE, _LARGEST_DIMENSION = 65_536, 4096
_BATCH = 1000  # templates of a transaction


class TemplateStore:
    """The store in the file `path`, which `create` makes. It waits up to `wait` seconds for other processes."""

    def __init__(self, path: str | Path, wait: float = 10.0) -> None:
        missing, damaged = "make it with featveil face create", "restore it from a copy"
        self._file = SqliteFile(Path(path), "template store", _APPLICATION, _VERSION, _TABLES, missing, damaged, wait)

    @classmethod
    def create(cls, path: str | Path, settings: Settings) -> Self:
        """A new store; raises InputError where the file exists, and for a defense that makes no subspaces."""
        check_kind(settings.kind)
        dimension = settings.defense.get("dimension")
        if type(dimension) is not int or not 2 <= dimension < settings.size <= _LARGEST_SIZE:
            raise InputError(f"templates of size {settings.size} are subspaces of dimension 2 or more, below it")
        if dimension > _LARGEST_DIMENSION:
            raise InputError(f"the dimension of templates is at most {_LARGEST_DIMENSION}, got {dimension}")
        store = cls(path)
        store._file.reserve()
        values = settings.kind, settings.size, settings.model, json.dumps(settings.defense), settings.among
        try:
            with store._file.transaction(new=True) as connection:
                store._file.fill(connection)
                connection.execute("INSERT INTO settings VALUES (?, ?, ?, ?, ?)", values)
        except BaseException:
            store._file.path.unlink(missing_ok=True)
            raise
        return store

    def settings(self) -> Settings:
        """What all templates share."""
        with self._reading() as connection:
            return self._settings(connection)

    def people(self) -> list[str]:
        """Everyone enrolled, in the order of their enrolment."""
        with self._reading() as connection:
            people = [person for (person,) in connection.execute("SELECT person FROM templates ORDER BY id")]
        if not all(type(person) is str for person in people):
            raise self._file.damage()
        return people

    def check_new(self, faces: Iterable[tuple[str, Features]]) -> None:
        """Raise InputError for people that `enroll` would refuse, before anything is spent on their templates."""
        settings, enrolled = self.settings(), set(self.people())
        for person, features in faces:
            check_name(person)
            check_network(features, settings)
            if person in enrolled:
                raise _enrolled_already(person)

    def enroll(self, templates: Iterable[tuple[str, PrivateFeatures]]) -> int:
        """Add templates by person, and return how many; they are on the disk once this returns.

        Many are added in parts, each whole or not at all: what was added before an interruption stays. Raises
        InputError for someone enrolled already and for templates of another network or defense.
        """
        added = 0
        for part in _parts(templates):
            with self._file.transaction() as connection:
                settings = self._settings(connection)
                for person, private in part:
                    blob = encoded(person, private, settings)
                    values = person, blob, digest_of(person, blob)
                    try:
                        connection.execute(f"INSERT INTO templates VALUES (NULL, ?, ?, ?, {_NOW})", values)
                    except sqlite3.IntegrityError as error:
                        raise _enrolled_already(person) from error
            added += len(part)
        return added

    def revoke(self, person: str) -> None:
        """Delete someone's template, also from the file's free pages; raises InputError for someone unknown."""
        self._check_text(person)
        with self._file.transaction() as connection:
            if connection.execute("DELETE FROM templates WHERE person = ?", (person,)).rowcount == 0:
                raise self._unknown(person)

    def template(self, person: str) -> PrivateFeatures:
        """Someone's template; raises InputError for someone unknown."""
        self._check_text(person)
        with self._reading() as connection:
            settings = self._settings(connection)
            found = connection.execute(
                "SELECT person, template, digest FROM templates WHERE person = ?", (person,)
            ).fetchall()
        if not found:
            raise self._unknown(person)
        descriptors = self._decoded(found, settings)
        return PrivateFeatures(descriptors, settings.kind, settings.defense, Guarantee("empirical"))

    def verify(self, person: str, probe: Features | PrivateFeatures) -> Verdict:
        """Whether `probe`, one descriptor, is of `person`.

        Raises InputError for an unknown person, a probe of another network, and a private one that is not parallel.
        """
        enrolled, values = self.template(person), self._probe(probe)
        assert isinstance(enrolled.descriptors, Subspaces)
        if isinstance(values, Subspaces):
            check_parallel(values, enrolled.descriptors)
            # Parallel subspaces are equally far everywhere. Nearly parallel ones meet: their distance says nothing.
            values = Points(values.offset)
        zero = np.zeros(1, np.int64)
        distance = float(pair_distances(values, enrolled.descriptors, zero, zero)[0])
        found = self.calibration()
        return Verdict(person, distance, None if found is None else found.threshold)

    def identify(self, probe: Features, most: int = 5) -> list[Verdict]:
        """The `most` enrolled people whose templates are nearest to `probe`, nearest first.

        A private probe is refused: it is parallel to one template only, and near to all others.
        """
        if not isinstance(probe, Features):
            raise InputError("only raw probes are identified, on the device that compares them: verify private ones")
        values, (people, gallery) = self._probe(probe), self.gallery()
        found = self.calibration()
        threshold = None if found is None else found.threshold
        nearest = gallery.nearest(values, max(1, min(most, len(people))))
        chosen = zip(nearest.indices[0], nearest.distances[0], strict=True)
        return [Verdict(people[index], float(away), threshold) for index, away in chosen if index >= 0]

    def gallery(self) -> tuple[list[str], Gallery]:
        """Everyone, and their templates ready to be searched many times; raises InputError where there is nobody."""
        with self._reading() as connection:
            settings = self._settings(connection)
            found = connection.execute("SELECT person, template, digest FROM templates ORDER BY id").fetchall()
        if not found:
            raise InputError(f"nobody is enrolled in {self._file.path}")
        return [person for person, _, _ in found], Gallery(self._decoded(found, settings))

    def calibration(self) -> Calibration | None:
        """The latest calibration, or None."""
        query = "SELECT far, threshold, strangers, mated, true_accept_rate FROM calibrations ORDER BY id DESC LIMIT 1"
        with self._reading() as connection:
            found = connection.execute(query).fetchone()
        if found is None:
            return None
        if not all(isinstance(value, int | float) and math.isfinite(value) for value in found):
            raise self._file.damage()
        return Calibration(*found)

    def calibrate(self, calibration: Calibration) -> None:
        """Use this threshold from now on."""
        values = (
            calibration.far,
            calibration.threshold,
            calibration.strangers,
            calibration.mated,
            calibration.true_accept_rate,
        )
        if not all(math.isfinite(value) for value in values):
            raise InputError(f"a calibration is made of finite numbers, got a threshold of {calibration.threshold}")
        with self._file.transaction() as connection:
            connection.execute(f"INSERT INTO calibrations VALUES (NULL, ?, ?, ?, ?, ?, {_NOW})", values)

    def _reading(self) -> Any:
        return self._file.transaction("BEGIN")

    def _settings(self, connection: sqlite3.Connection) -> Settings:
        found = connection.execute("SELECT kind, size, defense, model, among FROM settings").fetchall()
        try:
            ((kind, size, defense, model, among),) = found
            made = Settings(kind, size, json.loads(defense), model, among)
            check_kind(made.kind)
            known = type(made.defense["name"]) is str and all(
                type(text) in (str, type(None)) for text in (model, among)
            )
            if not known or type(size) is not int or not 2 <= made.dimension < size <= _LARGEST_SIZE:
                raise self._file.damage()
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise self._file.damage() from error
        return made

    def _decoded(self, found: list[tuple[str, bytes, bytes]], settings: Settings) -> Subspaces:
        """Templates as they were stored; raises FormatError where one of them was changed."""
        rows = settings.dimension + 1
        for person, blob, digest in found:
            if type(person) is not str:
                raise self._file.damage()
            whole = type(blob) is bytes and len(blob) == 4 * rows * settings.size
            if not whole or digest != digest_of(person, blob):
                raise FormatError(
                    f"the template of {person!r:.80} in {self._file.path} is damaged: restore the store from a copy,"
                    " or revoke it and enroll again"
                )
        stack = np.frombuffer(b"".join(blob for _, blob, _ in found), "<f4").reshape(len(found), rows, settings.size)
        try:
            return Subspaces(stack[:, 0], stack[:, 1:])
        except InputError as error:
            raise self._file.damage() from error

    def _probe(self, probe: Features | PrivateFeatures) -> Points | Subspaces:
        descriptors = probe.descriptors
        if len(probe) != 1 or not isinstance(descriptors, Points | Subspaces):
            raise InputError(f"a probe is one descriptor, raw or lifted, got {len(probe)}")
        check_network(probe, self.settings())
        return descriptors

    def _check_text(self, person: str) -> None:
        """Raise InputError for what is no text, such as a name that came as other bytes: nobody is called that."""
        try:
            person.encode()
        except (UnicodeEncodeError, AttributeError) as error:
            raise self._unknown(person) from error

    def _unknown(self, person: str) -> InputError:
        return InputError(f"{person!r:.80} is not enrolled in {self._file.path}")


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
