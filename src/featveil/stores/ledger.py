"""Releases -> a record of what each subject has spent, and a refusal past the budget. One SQLite file.

It fails closed: `charge` returns only after the release is on the disk, and every other way out of it is an error.
Epsilons are kept as whole billionths, a cost rounded up and a budget down, so sums are exact and never too small.
"""

import math
import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from pathlib import Path

from featveil.core.errors import FeatveilError, FormatError, InputError, PrivacyError
from featveil.core.features import PrivateFeatures
from featveil.core.files import check_folder

KINDS = ("local-dp", "metric-dp")

_APPLICATION, _VERSION = 0x66766C67, 1  # "fvlg", in the header of the file
_UNITS = 10**9  # in an epsilon of 1
_LARGEST = 10**9  # no budget is higher: it has 10^18 units, so no sum of costs within it leaves 64 bits
_TABLE = """CREATE TABLE entries (
  id INTEGER PRIMARY KEY,
  time TEXT NOT NULL,
  subject TEXT NOT NULL,
  event TEXT NOT NULL CHECK (event IN ('budget', 'release')),
  kind TEXT NOT NULL CHECK (kind IN ('local-dp', 'metric-dp')),
  per_descriptor REAL CHECK (typeof(per_descriptor) IN ('real', 'null')),
  features INTEGER CHECK (typeof(features) IN ('integer', 'null')),
  units INTEGER NOT NULL CHECK (typeof(units) = 'integer' AND units BETWEEN 0 AND 1000000000000000000),
  defense TEXT NOT NULL,
  label TEXT NOT NULL
)"""
_CREATION = (_TABLE, f"PRAGMA application_id = {_APPLICATION}", f"PRAGMA user_version = {_VERSION}")
_INSERT = "INSERT INTO entries VALUES (NULL, strftime('%Y-%m-%dT%H:%M:%SZ', 'now'), ?, ?, ?, ?, ?, ?, ?, ?)"
_HISTORY = """SELECT time, subject, event, kind, per_descriptor, features, units / 1e9, defense, label
  FROM entries WHERE :subject IS NULL OR subject = :subject ORDER BY id"""
_TOTALS = """SELECT sums.subject, sums.kind, budget.units, spent, releases FROM (
    SELECT subject, kind, sum(units * (event = 'release')) AS spent, sum(event = 'release') AS releases,
      max(id * (event = 'budget')) AS latest
    FROM entries WHERE :subject IS NULL OR subject = :subject GROUP BY subject, kind
  ) AS sums JOIN entries AS budget ON budget.id = latest ORDER BY sums.subject, sums.kind"""
_PRAGMAS = (
    "PRAGMA trusted_schema = OFF",
    "PRAGMA synchronous = EXTRA",  # a commit outlives a power cut, the end of its journal included
    "PRAGMA fullfsync = ON",  # macOS only, where a plain fsync stops at the drive's cache
)
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGE = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_NOTADB)


@dataclass(frozen=True)
class Balance:
    """Budget and spending of a subject, for one kind of epsilon. `remaining` is never below 0."""

    subject: str
    kind: str
    budget: float
    spent: float
    remaining: float
    releases: int


@dataclass(frozen=True)
class Entry:
    """A line of the history: a release (`epsilon` is its cost) or a change of a budget (`epsilon` is the new one).

    `time` is UTC in ISO 8601. `per_descriptor` is None for budgets, and where a guarantee is for the whole image.
    """

    time: str
    subject: str
    event: str
    kind: str
    per_descriptor: float | None
    features: int | None
    epsilon: float
    defense: str
    label: str


class Ledger:
    """The ledger in the file `path`, which `set_budget` makes. It waits up to `wait` seconds for other processes."""

    def __init__(self, path: str | Path, wait: float = 10.0) -> None:
        if not 0 <= wait <= 3600:
            raise InputError(f"wait must be 0 to 3600 seconds, got {wait}")
        self.path, self.wait = Path(path), wait

    def set_budget(self, subject: str, epsilon: float, kind: str = "local-dp") -> Balance:
        """Let `subject` spend `epsilon` of `kind` in all; 0 freezes it. What it has spent stays spent.

        Makes the ledger if there is none. Raises InputError or FormatError.
        """
        _check_subject(subject)
        if kind not in KINDS:
            raise InputError(f"the kind of a budget must be {' or '.join(KINDS)}, got {kind!r}")
        if isinstance(epsilon, bool) or not isinstance(epsilon, Real) or not 0 <= epsilon <= _LARGEST:
            raise InputError(f"a budget must be an epsilon of 0 to {_LARGEST:,}, got {epsilon!r}")
        units = math.floor(Fraction(float(epsilon)) * _UNITS)
        with self._transaction("BEGIN IMMEDIATE", "no budget was changed", create=True) as connection:
            connection.execute(_INSERT, (subject, "budget", kind, None, None, units, "", ""))
            _, spent, releases = _totals(connection, subject)[subject, kind]
        return _balance(subject, kind, units, spent, releases)

    def account(self, subject: str) -> "Account":
        """Where the releases of `subject` are charged. Raises InputError for an unusable name."""
        return Account(self, subject)

    def statement(self, subject: str | None = None) -> list[Balance]:
        """What each subject (or the one named) has spent of each kind, sorted. Raises InputError or FormatError."""
        if subject is not None:
            _check_subject(subject)
        with self._transaction("BEGIN", "nothing was read") as connection:
            return [_balance(*key, *totals) for key, totals in _totals(connection, subject).items()]

    def history(self, subject: str | None = None) -> list[Entry]:
        """All entries (or those of one subject), oldest first. Raises InputError or FormatError."""
        if subject is not None:
            _check_subject(subject)
        with self._transaction("BEGIN", "nothing was read") as connection:
            return [Entry(*row) for row in connection.execute(_HISTORY, {"subject": subject})]

    @contextmanager
    def _transaction(self, begin: str, outcome: str, create: bool = False) -> Iterator[sqlite3.Connection]:
        """A checked connection inside one transaction, which is committed at the end of the block.

        Closing the connection without that, for whatever reason, takes everything back.
        """
        new = self._is_missing(outcome, create)
        address = f"{self.path.absolute().as_uri()}?mode={'rwc' if new else 'rw'}"
        try:
            with closing(sqlite3.connect(address, self.wait, isolation_level=None, uri=True)) as connection:
                for statement in (*_PRAGMAS, begin):
                    connection.execute(statement)
                if new and connection.execute("SELECT 1 FROM sqlite_master").fetchone() is None:
                    for statement in _CREATION:
                        connection.execute(statement)
                self._check(connection, outcome)
                yield connection
                connection.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            raise self._refusal(error, outcome) from error
        finally:
            if new and self.path.is_file() and self.path.stat().st_size == 0:
                self.path.unlink()

    def _is_missing(self, outcome: str, create: bool) -> bool:
        try:
            size = self.path.stat().st_size
        except (FileNotFoundError, NotADirectoryError) as error:
            if create:
                check_folder(self.path.parent)
                return True
            raise InputError(
                f"ledger {self.path} does not exist, so {outcome}: restore it, as a new one forgets what was spent;"
                f" if there never was one, make it with: {_command(self.path, 'SUBJECT')}"
            ) from error
        except (OSError, ValueError) as error:  # ValueError: a null character, which would end the name early
            reason = getattr(error, "strerror", error)
            raise InputError(f"cannot open ledger {self.path} ({reason}), so {outcome}") from error
        if not self.path.is_file():
            raise InputError(f"{self.path} is not a file, so {outcome}: name a ledger file")
        if size == 0:  # a ledger that was cut to nothing must not start again at zero
            raise FormatError(f"ledger {self.path} is empty, so {outcome}: restore it; delete it only if it is new")
        return False

    def _check(self, connection: sqlite3.Connection, outcome: str) -> None:
        """Raise FormatError unless the file is a sound ledger of this version."""
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION:
            raise FormatError(f"{self.path} is not a featveil ledger, so {outcome}: name another file")
        if version != _VERSION:
            raise FormatError(f"ledger {self.path} has version {version}, so {outcome}: update featveil")
        # Anything beside the one table, such as a trigger, could take an entry back. SQLite reads a last page that
        # was cut off as if it ended in zeros.
        schema = connection.execute("SELECT sql FROM sqlite_master").fetchall()
        (page,) = connection.execute("PRAGMA page_size").fetchone()
        sound = connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
        if schema != [(_TABLE,)] or self.path.stat().st_size % page or not sound:
            raise self._damaged(outcome)

    def _damaged(self, outcome: str) -> FormatError:
        return FormatError(f"ledger {self.path} is damaged or no ledger at all, so {outcome}: restore it from a copy")

    def _refusal(self, error: sqlite3.Error | OSError, outcome: str) -> FeatveilError:
        # The last byte is the primary code. Text that cannot be decoded comes without any.
        otherwise = sqlite3.SQLITE_IOERR if isinstance(error, OSError) else sqlite3.SQLITE_CORRUPT
        code = getattr(error, "sqlite_errorcode", otherwise) & 0xFF
        if code in _BUSY:
            return InputError(f"another process holds ledger {self.path}, so {outcome}: try again later")
        if code in _DAMAGE:
            return self._damaged(outcome)
        return InputError(f"cannot use ledger {self.path} ({error}), so {outcome}: check its permissions and the disk")


@dataclass(frozen=True)
class Account:
    """One subject of a ledger."""

    ledger: Ledger
    subject: str

    def __post_init__(self) -> None:
        _check_subject(self.subject)

    def charge(self, private: PrivateFeatures, label: str = "") -> float:
        """Record a release and return the epsilon that remains. `label` tells it apart in the history.

        Send `private` only once this has returned. Raises PrivacyError past the budget or without one, InputError
        for a guarantee without epsilon, InputError or FormatError where it cannot be recorded.
        """
        if not isinstance(private, PrivateFeatures):
            raise InputError(f"expected private features, got {type(private).__name__}, so nothing was released")
        cost, claim = _cost(private), private.guarantee
        per_descriptor = None if claim.unit == "image" else claim.epsilon
        what = (per_descriptor, len(private), cost, _plain(private.defense.get("name", "")), _plain(label))
        with self.ledger._transaction("BEGIN IMMEDIATE", "nothing was released") as connection:
            totals = _totals(connection, self.subject).get((self.subject, claim.kind))
            remaining = self._remaining(totals, claim.kind, cost)
            connection.execute(_INSERT, (self.subject, "release", claim.kind, *what))
        return remaining / _UNITS

    def _remaining(self, totals: tuple[int, int, int] | None, kind: str, cost: int) -> int:
        command = _command(self.ledger.path, self.subject, kind)
        if totals is None:
            raise PrivacyError(
                f"{self.subject!r} has no {kind} budget, so nothing was released: set it with: {command}"
            )
        budget, spent, _ = totals
        if spent + cost > budget:
            left = _text(max(budget - spent, 0))
            raise PrivacyError(
                f"this release costs {self.subject!r} {kind} epsilon {_text(cost)} and {left} is left (budget"
                f" {_text(budget)}, spent {_text(spent)}), so nothing was released: use a smaller epsilon, fewer"
                f" features or a higher budget ({command})"
            )
        return budget - spent - cost


def _cost(private: PrivateFeatures) -> int:
    """Units that a release costs, rounded up: those of `Guarantee.compose`, without its rounding to a float."""
    claim = private.guarantee
    if claim.epsilon is None:
        raise InputError(
            f"a ledger accounts for differential privacy only, and a release with guarantee {claim.kind!r} has no"
            " epsilon, so nothing was released: release it without a ledger"
        )
    count = 1 if claim.unit == "image" else max(len(private), 1)
    if not claim.epsilon * count <= _LARGEST:
        raise PrivacyError(
            f"epsilon {claim.epsilon * count:g} hides nothing, so nothing was released: use a smaller one"
        )
    return math.ceil(Fraction(float(claim.epsilon)) * count * _UNITS)


def _totals(connection: sqlite3.Connection, subject: str | None) -> dict[tuple[str, str], tuple[int, int, int]]:
    """By subject and kind: units of the budget, units spent, number of releases."""
    rows = connection.execute(_TOTALS, {"subject": subject})
    return {(name, kind): (budget, spent, releases) for name, kind, budget, spent, releases in rows}


def _balance(subject: str, kind: str, budget: int, spent: int, releases: int) -> Balance:
    return Balance(subject, kind, budget / _UNITS, spent / _UNITS, max(budget - spent, 0) / _UNITS, releases)


def _check_subject(subject: str) -> None:
    if not isinstance(subject, str) or not (0 < len(subject) <= 200 and subject.isprintable() and subject.strip()):
        raise InputError("a subject must be named by 1 to 200 printable characters")


def _plain(text: object) -> str:
    """At most 500 characters for the history, '?' for those that cannot be printed."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text)[:500])


def _text(units: int) -> str:
    return f"{units // _UNITS}.{units % _UNITS:09d}".rstrip("0").rstrip(".")


def _command(path: Path, subject: str, kind: str = "local-dp") -> str:
    option = "" if kind == "local-dp" else f" --kind {kind}"
    return f"featveil ledger set-budget {shlex.quote(str(path))} {shlex.quote(subject)} EPSILON{option}"
