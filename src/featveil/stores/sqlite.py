"""Rows of a store in one SQLite file that several processes use, or in memory for studies.

Whole transactions that outlive a power cut, and nothing unexpected: each one begins with a check of what the file is.
"""

import os
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from featveil.core.errors import FeatveilError, FormatError, InputError
from featveil.core.files import check_folder
from featveil.stores.storage import Schema, Storage

_PRAGMAS = (
    "PRAGMA trusted_schema = OFF",
    "PRAGMA synchronous = EXTRA",  # a commit outlives a power cut, the end of its journal included
    "PRAGMA fullfsync = ON",  # macOS only, where a plain fsync stops at the drive's cache
    "PRAGMA secure_delete = ON",
)
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
# Statements and values are ours: where they fail, such as by a sum that is too large, the rows are to blame.
_DAMAGE = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_NOTADB)
_LONGEST_WAIT = 3600


def storage_of(place: str | Path | Storage, schema: Schema, wait: float) -> Storage:
    """The file at `place`, or the storage that `place` is; raises InputError for one of another store."""
    if isinstance(place, str | Path):
        return SqliteFile(Path(place), schema, wait)
    if place.schema != schema:
        raise InputError(f"{place.name} is a storage for a {place.schema.noun}, not for a {schema.noun}")
    return place


@dataclass(frozen=True)
class SqliteFile:
    """The file `path`, with exactly the tables of its `schema`. It waits up to `wait` seconds for other processes."""

    path: Path
    schema: Schema
    wait: float = 10.0

    def __post_init__(self) -> None:
        if not 0 <= self.wait <= _LONGEST_WAIT:
            raise InputError(f"wait must be 0 to {_LONGEST_WAIT} seconds, got {self.wait}")

    @property
    def name(self) -> str:
        """Its path."""
        return str(self.path)

    @contextmanager
    def create(self) -> Iterator[sqlite3.Connection]:
        """The first transaction of a new file that only its owner can read; see `Storage.create`."""
        self._reserve()
        try:
            with self._begun("rw", "BEGIN IMMEDIATE", "") as connection:
                _fill(connection, self.schema)
                yield connection
        except BaseException:
            self.path.unlink(missing_ok=True)
            raise

    @contextmanager
    def transaction(self, writes: bool = True, make: bool = False, outcome: str = "") -> Iterator[sqlite3.Connection]:
        """A checked connection inside one transaction; see `Storage.transaction`."""
        so = _so(outcome)
        new = self._is_missing(make, so)
        try:
            with self._begun("rwc" if new else "rw", "BEGIN IMMEDIATE" if writes else "BEGIN", so) as connection:
                # Another process may have made it meanwhile.
                if new and _is_empty(connection):
                    _fill(connection, self.schema)
                self._check(connection, so)
                yield connection
        finally:
            if new and self.path.is_file() and self.path.stat().st_size == 0:
                self.path.unlink()

    def damage(self) -> FormatError:
        """What to raise where the content cannot be."""
        return self._damaged("")

    def _reserve(self) -> None:
        """Make an empty file; raises InputError where there is one."""
        check_folder(self.path.parent)
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError as error:
            raise InputError(f"{self.path} exists: use it, or name another file") from error
        except (OSError, ValueError) as error:  # ValueError: a null character, which would end the name early
            reason = getattr(error, "strerror", error)
            raise InputError(f"cannot make {self.schema.noun} {self.path}: {reason}") from error

    @contextmanager
    def _begun(self, mode: str, begin: str, so: str) -> Iterator[sqlite3.Connection]:
        """A connection inside one transaction. Closing it without the commit, for whatever reason, takes all back."""
        address = f"{self.path.absolute().as_uri()}?mode={mode}"
        try:
            with closing(sqlite3.connect(address, self.wait, isolation_level=None, uri=True)) as connection:
                for statement in (*_PRAGMAS, begin):
                    connection.execute(statement)
                yield connection
                connection.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            raise self._refusal(error, so) from error

    def _is_missing(self, make: bool, so: str) -> bool:
        """Whether there is no file and one is to be made; raises InputError where that, or what is there, cannot be."""
        noun = self.schema.noun
        try:
            self.path.stat()
        except (FileNotFoundError, NotADirectoryError) as error:
            if not make:
                advice = self._advice(self.schema.missing)
                raise InputError(f"{noun} {self.path} does not exist{so}: {advice}") from error
            check_folder(self.path.parent)
            return True
        except (OSError, ValueError) as error:  # ValueError: a null character
            reason = getattr(error, "strerror", error)
            raise InputError(f"cannot use {noun} {self.path} ({reason}){so}: check its permissions") from error
        if not self.path.is_file():
            raise InputError(f"{self.path} is not a file{so}: name a {noun}")
        return False

    def _check(self, connection: sqlite3.Connection, so: str) -> None:
        """Raise FormatError unless the file is a sound one of this schema."""
        noun, size = self.schema.noun, self.path.stat().st_size
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != self.schema.application:
            if size == 0:  # of an interrupted creation, or cut to nothing, which must not start again
                advice = f"{self._advice(self.schema.damaged)}; delete it only if it is new"
                raise FormatError(f"{noun} {self.path} is empty{so}: {advice}")
            raise FormatError(f"{self.path} is not a {noun} of featveil{so}: name another file")
        if version != self.schema.version:
            raise FormatError(f"{noun} {self.path} has version {version}{so}: update featveil")
        # Anything beside these tables, such as a trigger, could change what is written.
        tables = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid").fetchall()
        (page,) = connection.execute("PRAGMA page_size").fetchone()
        # SQLite itself takes the rest of a page that was cut off for zeros.
        if tables != [(statement,) for statement in self.schema.tables] or size % page:
            raise self._damaged(so)
        if self.schema.whole and connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise self._damaged(so)

    def _damaged(self, so: str, what: str = "damaged") -> FormatError:
        return FormatError(f"{self.schema.noun} {self.path} is {what}{so}: {self._advice(self.schema.damaged)}")

    def _advice(self, text: str) -> str:
        return text.format(name=shlex.quote(self.name))

    def _refusal(self, error: sqlite3.Error | OSError, so: str) -> FeatveilError:
        # The last byte is the primary code. Text that cannot be decoded comes without any.
        otherwise = sqlite3.SQLITE_IOERR if isinstance(error, OSError) else sqlite3.SQLITE_CORRUPT
        code = getattr(error, "sqlite_errorcode", otherwise) & 0xFF
        name = f"{self.schema.noun} {self.path}"
        if code in _BUSY:
            return InputError(f"another process holds {name}{so}: try again later")
        if code in _DAMAGE:
            return self._damaged(so, f"damaged or no {self.schema.noun} at all")
        return InputError(f"cannot use {name} ({error}){so}: check its permissions and the disk")


@dataclass(frozen=True, eq=False)
class SqliteMemory:
    """The same for one process and as long as it lasts."""

    schema: Schema
    _connection: sqlite3.Connection = field(
        default_factory=lambda: sqlite3.connect(":memory:", isolation_level=None), repr=False
    )

    @property
    def name(self) -> str:
        """There is only one."""
        return "in memory"

    @contextmanager
    def create(self) -> Iterator[sqlite3.Connection]:
        """The first transaction; see `Storage.create`."""
        if not _is_empty(self._connection):
            raise InputError(f"there is a {self.schema.noun} {self.name}: use it")
        with self.transaction(make=True) as connection:
            yield connection

    @contextmanager
    def transaction(self, writes: bool = True, make: bool = False, outcome: str = "") -> Iterator[sqlite3.Connection]:
        """A connection inside one transaction; see `Storage.transaction`."""
        with self._connection as connection:
            connection.execute("BEGIN")
            if _is_empty(self._connection):
                if not make:
                    raise InputError(f"there is no {self.schema.noun} {self.name}{_so(outcome)}: make it first")
                _fill(connection, self.schema)
            yield connection

    def damage(self) -> FormatError:
        """What to raise where the content cannot be."""
        return FormatError(f"the {self.schema.noun} {self.name} is damaged")


def _fill(connection: sqlite3.Connection, schema: Schema) -> None:
    """Make the tables, and say what file this is."""
    about = (f"PRAGMA application_id = {schema.application}", f"PRAGMA user_version = {schema.version}")
    for statement in (*schema.tables, *about):
        connection.execute(statement)


def _is_empty(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None


def _so(outcome: str) -> str:
    return f", so {outcome}" if outcome else ""
