"""Releases -> a record of what each subject has spent, and a refusal past the budget. One SQLite file.

It fails closed: `charge` returns only after the release is on the disk, and every other way out of it is an error.
Epsilons are kept as whole billionths, a cost rounded up and a budget down, so sums are exact and never too small.
"""

import math
import shlex
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from pathlib import Path

from featveil.core.errors import InputError, PrivacyError
from featveil.core.features import PrivateFeatures
from featveil.stores.sqlite import storage_of
from featveil.stores.storage import Connection, Rows, Schema, Storage, now

KINDS = ("local-dp", "metric-dp")

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
SCHEMA = Schema(
    "ledger",
    0x66766C67,  # "fvlg", in the header of the file
    1,
    (_TABLE,),
    "restore it, as a new one forgets what was spent; if there never was one, make it with: featveil ledger set-budget"
    " {name} SUBJECT EPSILON",
    "restore it from a copy",
    whole=True,  # a budget is compared with the sum of all rows
)
_INSERT = """INSERT INTO entries (time, subject, event, kind, per_descriptor, features, units, defense, label)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_HISTORY = """SELECT time, subject, event, kind, per_descriptor, features, units, defense, label
  FROM entries {where} ORDER BY id"""
_TOTALS = """SELECT sums.subject, sums.kind, budget.units, spent, releases FROM (
    SELECT subject, kind, sum(CASE event WHEN 'release' THEN units ELSE 0 END) AS spent,
      sum(CASE event WHEN 'release' THEN 1 ELSE 0 END) AS releases,
      max(CASE event WHEN 'budget' THEN id ELSE 0 END) AS latest
    FROM entries {where} GROUP BY subject, kind
  ) AS sums JOIN entries AS budget ON budget.id = latest ORDER BY sums.subject, sums.kind"""


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
    """The ledger in the file or the storage at `place`, which `set_budget` makes.

    Of a file it waits up to `wait` seconds for other processes.
    """

    def __init__(self, place: str | Path | Storage, wait: float = 10.0) -> None:
        self.storage = storage_of(place, SCHEMA, wait)

    @property
    def path(self) -> Path:
        """Where its file is."""
        return Path(self.storage.name)

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
        with self.storage.transaction(make=True, outcome="no budget was changed") as connection:
            connection.execute(_INSERT, (now(), subject, "budget", kind, None, None, units, "", ""))
            _, spent, releases = _totals(connection, subject)[subject, kind]
        return _balance(subject, kind, units, spent, releases)

    def account(self, subject: str) -> "Account":
        """Where the releases of `subject` are charged. Raises InputError for an unusable name."""
        return Account(self, subject)

    def statement(self, subject: str | None = None) -> list[Balance]:
        """What each subject (or the one named) has spent of each kind, sorted. Raises InputError or FormatError."""
        if subject is not None:
            _check_subject(subject)
        with self.storage.transaction(writes=False, outcome="nothing was read") as connection:
            return [_balance(*key, *totals) for key, totals in _totals(connection, subject).items()]

    def history(self, subject: str | None = None) -> list[Entry]:
        """All entries (or those of one subject), oldest first. Raises InputError or FormatError."""
        if subject is not None:
            _check_subject(subject)
        with self.storage.transaction(writes=False, outcome="nothing was read") as connection:
            rows = _select(connection, _HISTORY, subject)
            return [Entry(*(*about, units / _UNITS, defense, label)) for *about, units, defense, label in rows]


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
        # After a gate the epsilon bounds which point of a map a feature shows: for these it is an ordinary local one.
        kind = "local-dp" if claim.kind == "map-known" else claim.kind
        per_descriptor = None if claim.unit == "image" else claim.epsilon
        what = (per_descriptor, len(private), cost, _plain(private.defense.get("name", "")), _plain(label))
        with self.ledger.storage.transaction(outcome="nothing was released") as connection:
            totals = _totals(connection, self.subject).get((self.subject, kind))
            remaining = self._remaining(totals, kind, cost)
            connection.execute(_INSERT, (now(), self.subject, "release", kind, *what))
        return remaining / _UNITS

    def _remaining(self, totals: tuple[int, int, int] | None, kind: str, cost: int) -> int:
        command = _command(self.ledger.storage.name, self.subject, kind)
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


def _select(connection: Connection, query: str, subject: str | None) -> Rows:
    """The rows of `query` about `subject`, or about everyone."""
    if subject is None:
        return connection.execute(query.format(where=""))
    return connection.execute(query.format(where="WHERE subject = ?"), (subject,))


def _totals(connection: Connection, subject: str | None) -> dict[tuple[str, str], tuple[int, int, int]]:
    """By subject and kind: units of the budget, units spent, number of releases."""
    rows = _select(connection, _TOTALS, subject)
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


def _command(name: str, subject: str, kind: str = "local-dp") -> str:
    option = "" if kind == "local-dp" else f" --kind {kind}"
    return f"featveil ledger set-budget {shlex.quote(name)} {shlex.quote(subject)} EPSILON{option}"
