"""One SQLite file that several processes use: whole transactions that outlive a power cut, and nothing unexpected."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from featveil.core.errors import FeatveilError, FormatError, InputError
from featveil.core.files import check_folder

_PRAGMAS = (
    "PRAGMA trusted_schema = OFF",
    "PRAGMA synchronous = EXTRA",  # a commit outlives a power cut, the end of its journal included
    "PRAGMA fullfsync = ON",  # macOS only, where a plain fsync stops at the drive's cache
    "PRAGMA secure_delete = ON",
)
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@dataclass(frozen=True)
class SqliteFile:
    """The file `path`, called `noun` in messages, with exactly the `tables` (statements) of its `version`.

    `missing` and `damaged` say what to do where it is. It waits up to `wait` seconds for other processes.
    """

    path: Path
    noun: str
    application: int
    version: int
    tables: tuple[str, ...]
    missing: str
    damaged: str
    wait: float = 10.0

    def reserve(self) -> None:
        """Make an empty file that only its owner can read; raises InputError where there is one."""
        check_folder(self.path.parent)
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError as error:
            raise InputError(f"{self.path} exists: use it, or name another file") from error
        except (OSError, ValueError) as error:  # ValueError: a null character, which would end the name early
            raise InputError(f"cannot make {self.noun} {self.path}: {getattr(error, 'strerror', error)}") from error

    def fill(self, connection: sqlite3.Connection) -> None:
        """Make the tables, and say what file this is."""
        about = (f"PRAGMA application_id = {self.application}", f"PRAGMA user_version = {self.version}")
        for statement in (*self.tables, *about):
            connection.execute(statement)

    @contextmanager
    def transaction(self, begin: str = "BEGIN IMMEDIATE", new: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection inside one transaction, committed at the end of the block and else taken back.

        Unless the file is `new` it is checked first. Raises InputError or FormatError.
        """
        try:
            if not self.path.is_file():
                raise InputError(f"{self.noun} {self.path} does not exist: {self.missing}")
            address = f"{self.path.absolute().as_uri()}?mode=rw"
            with closing(sqlite3.connect(address, self.wait, isolation_level=None, uri=True)) as connection:
                for statement in (*_PRAGMAS, begin):
                    connection.execute(statement)
                if not new:
                    self._check(connection)
                yield connection
                connection.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            raise self._refusal(error) from error

    def damage(self) -> FormatError:
        """What to raise where the content cannot be."""
        return FormatError(f"{self.noun} {self.path} is damaged: {self.damaged}")

    def _check(self, connection: sqlite3.Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != self.application:
            if self.path.stat().st_size == 0:
                raise FormatError(f"{self.noun} {self.path} is empty, its making was interrupted: delete it first")
            raise FormatError(f"{self.path} is not a {self.noun} of featveil: name another file")
        if version != self.version:
            raise FormatError(f"{self.noun} {self.path} has version {version}: update featveil")
        # Anything beside these tables, such as a trigger, could change what is written.
        schema = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid").fetchall()
        (page,) = connection.execute("PRAGMA page_size").fetchone()
        # SQLite itself takes the rest of a page that was cut off for zeros.
        if schema != [(statement,) for statement in self.tables] or self.path.stat().st_size % page:
            raise self.damage()

    def _refusal(self, error: sqlite3.Error | OSError) -> FeatveilError:
        # The last byte is the primary code. Text that cannot be decoded comes without any.
        otherwise = sqlite3.SQLITE_IOERR if isinstance(error, OSError) else sqlite3.SQLITE_CORRUPT
        code = getattr(error, "sqlite_errorcode", otherwise) & 0xFF
        if code in _BUSY:
            return InputError(f"another process holds {self.noun} {self.path}: try again later")
        if code in _DAMAGE:
            return FormatError(f"{self.noun} {self.path} is damaged or no {self.noun} at all: {self.damaged}")
        return InputError(f"cannot use {self.noun} {self.path} ({error}): check its permissions and the disk")
