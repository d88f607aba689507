"""Real descriptors that only this device has, to hide others among, each once. One SQLite file, or memory for studies.

What hides a descriptor is remembered by a keyed tag of it: the same photograph sent twice is hidden in the same way,
and two releases say no more than one. A descriptor that was in two releases would give both away, so none is used
twice, a photograph whose descriptors hide others is never released, and one that was released hides no other.
"""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from featveil.core.arrays import Float32, Integers, floats
from featveil.core.entropy import Randomness
from featveil.core.errors import FormatError, InputError, PrivacyError
from featveil.core.features import check_kind
from featveil.core.keyed import SECRET_BYTES, KeyedDraws, tags_of
from featveil.stores.sqlite import SqliteFile

# Which of the free descriptors (s, d) hide each of some points (n, d): `count` different rows for each, (n, count).
Choose = Callable[[Float32, Float32, int], Integers]

_APPLICATION, _VERSION = 0x6676706C, 1  # "fvpl", in the header of the file
_LARGEST_SIZE = 65_536
_TABLES = (
    "CREATE TABLE device (kind TEXT NOT NULL, size INTEGER NOT NULL, secret BLOB NOT NULL)",
    "CREATE TABLE entries (id INTEGER PRIMARY KEY, photograph INTEGER NOT NULL, tag BLOB NOT NULL UNIQUE,"
    " value BLOB NOT NULL, owner BLOB, place INTEGER)",
    "CREATE INDEX owners ON entries (owner, place)",
)
_NOBODY = b""  # owns what was released itself
# Photographs are the same one from this share of descriptors in common on, of those that have fewer: flat patches may
# coincide. How many a release had is not known; of that, some are enough.
_SAME, _SOME = 0.1, 5
_MISSING = "make it with featveil pool create"
_RESTORE = "restore a copy from after its last release"
_DAMAGED = f"the pool is damaged: {_RESTORE}"


@dataclass(frozen=True)
class Holdings:
    """What a pool holds: `free` of its `entries`, from `photographs`, can still hide something."""

    kind: str
    size: int
    photographs: int
    entries: int
    free: int


@dataclass(frozen=True, eq=False, repr=False)
class Hiding:
    """What n points are hidden among: `confounders` (n, k, d), and `draws` that are the same for the same points."""

    confounders: Float32
    draws: KeyedDraws


class Pool:
    """The pool in the file `path`, which `create` makes. It waits up to `wait` seconds for other processes.

    The file is a secret of the device: with it, every release can be undone.
    """

    def __init__(self, path: str | Path | None, wait: float = 10.0) -> None:
        self.path = None if path is None else Path(path)
        self._file = SqliteFile(
            Path(path or ":memory:"), "pool", _APPLICATION, _VERSION, _TABLES, _MISSING, _RESTORE, wait
        )
        self._memory: sqlite3.Connection | None = None

    @classmethod
    def create(cls, path: str | Path, kind: str, photographs: Iterable[Float32]) -> Self:
        """A new pool in the file `path`, of the descriptors (s, d) of each photograph.

        Raises InputError when the file exists: what a pool has hidden must not be forgotten.
        """
        pool = cls(path)
        pool._file.reserve()
        try:
            pool._fill(kind, os.urandom(SECRET_BYTES), photographs)
        except BaseException:
            pool._file.path.unlink(missing_ok=True)
            raise
        return pool

    @classmethod
    def in_memory(cls, values: Float32, kind: str, rng: Randomness) -> Self:
        """A pool for studies, of `values` (s, d) that count as one photograph; its secret is drawn from `rng`."""
        pool = cls(None)
        pool._memory = sqlite3.connect(":memory:", isolation_level=None)
        secret = rng.integers(0, 256, size=(SECRET_BYTES,)).astype(np.uint8).tobytes()
        pool._fill(kind, secret, [values])
        return pool

    def add(self, photographs: Iterable[Float32]) -> Holdings:
        """Add the descriptors (s, d) of more photographs; those that are there already are left out.

        Each photograph is added by itself: what was added before an interruption stays.
        """
        for values in photographs:
            with self._transaction() as connection:
                _, size, secret = _device(connection)
                _insert(connection, secret, size, [values])
        return self.holdings()

    def holdings(self) -> Holdings:
        """What the pool holds now."""
        with self._transaction() as connection:
            kind, size, _ = _device(connection)
            counted = "SELECT count(DISTINCT photograph), count(*), coalesce(sum(owner IS NULL), 0) FROM entries"
            return Holdings(kind, size, *connection.execute(counted).fetchone())

    def lacking(self, points: Float32, count: int) -> int:
        """How many unused descriptors it takes to hide each of `points` (n, d) among `count`.

        Those that hid a point before hide it again, and are not counted.
        """
        with self._transaction() as connection:
            _, _, secret = _device(connection)
            return sum(max(0, count - _count(connection, "owner", tag)) for tag in set(tags_of(secret, points)))

    def hide(self, points: Float32, count: int, choose: Choose) -> Hiding:
        """`count` confounders for each of the descriptors `points` (n, d) of one photograph.

        Those that hid a point before hide it again, in their order; the others are chosen by `choose` and never used
        elsewhere. Raises PrivacyError when the pool is too small, or the photograph hides others itself.
        """
        with self._transaction() as connection:
            _, size, secret = _device(connection)
            if points.shape[1] != size:
                raise InputError(f"the pool holds descriptors of size {size}, these have {points.shape[1]}")
            tags = tags_of(secret, points)
            rows = {tag: row for row, tag in enumerate(tags)}
            _set_apart(connection, set(rows))
            _assign(connection, points, rows, count, choose)
            drawn = {tag: _drawn(connection, tag, count, size) for tag in rows}
            confounders = np.array([drawn[tag] for tag in tags], np.float32).reshape(len(points), count, size)
            return Hiding(confounders, KeyedDraws(secret, tags))

    def _fill(self, kind: str, secret: bytes, photographs: Iterable[Float32]) -> None:
        check_kind(kind)
        with self._transaction(new=True) as connection:
            self._file.fill(connection)
            size = _insert(connection, secret, None, photographs)
            connection.execute("INSERT INTO device VALUES (?, ?, ?)", (kind, size, secret))

    @contextmanager
    def _transaction(self, new: bool = False) -> Iterator[sqlite3.Connection]:
        """A checked connection inside one transaction, committed at the end of the block and else taken back."""
        if self._memory is not None:
            with self._memory as connection:
                connection.execute("BEGIN")
                yield connection
            return
        with self._file.transaction(new=new) as connection:
            yield connection


def _device(connection: sqlite3.Connection) -> tuple[str, int, bytes]:
    """Kind, descriptor size and secret."""
    found = connection.execute("SELECT kind, size, secret FROM device").fetchall()
    if len(found) != 1 or tuple(map(type, found[0])) != (str, int, bytes) or len(found[0][2]) != SECRET_BYTES:
        raise FormatError(_DAMAGED)
    kind, size, secret = found[0]
    return kind, size, secret


def _insert(connection: sqlite3.Connection, secret: bytes, size: int | None, photographs: Iterable[Float32]) -> int:
    """Add photographs that the pool neither holds nor has released; the descriptor size, which all must share."""
    (last,) = connection.execute("SELECT coalesce(max(photograph), 0) FROM entries").fetchone()
    for number, values in enumerate(photographs, start=last + 1):
        rows: Float32 = floats("descriptors of a pool", values, (None, size))
        size = rows.shape[1]
        if not 0 < size <= _LARGEST_SIZE or not np.linalg.norm(rows, axis=1).all():
            raise InputError(f"descriptors of a pool have 1 to {_LARGEST_SIZE} components, not all of them 0")
        fresh = dict(zip(tags_of(secret, rows), rows, strict=True))
        released = _owners(connection, set(fresh))
        if len(released) >= min(_SAME * len(fresh), _SOME) or _same_photographs(connection, set(fresh)):
            continue
        new = ((number, tag, row.astype("<f4").tobytes()) for tag, row in fresh.items() if tag not in released)
        connection.executemany("INSERT OR IGNORE INTO entries (photograph, tag, value) VALUES (?, ?, ?)", new)
    if size is None:
        raise InputError("a pool needs the descriptors of at least one photograph")
    return size


def _set_apart(connection: sqlite3.Connection, tags: set[bytes]) -> None:
    """See to it that nothing of the photograph with these `tags` will hide anything; raises PrivacyError if it does."""
    for photograph in _same_photographs(connection, tags):
        hides = "SELECT count(*) FROM entries WHERE photograph = ? AND owner IS NOT NULL AND owner != ?"
        if connection.execute(hides, (photograph, _NOBODY)).fetchone()[0]:
            raise PrivacyError(
                "descriptors of this photograph hide those of others that were released: releasing it would give both"
                " away. Photographs of a pool are not for release"
            )
        connection.execute("UPDATE entries SET owner = ? WHERE photograph = ?", (_NOBODY, photograph))
    own = ((_NOBODY, tag) for tag in tags)
    connection.executemany("UPDATE entries SET owner = ? WHERE tag = ? AND owner IS NULL", own)


def _assign(
    connection: sqlite3.Connection, points: Float32, rows: dict[bytes, int], count: int, choose: Choose
) -> None:
    """Give the points in `rows`, by tag, as many more confounders as they lack; raises PrivacyError for too few."""
    have = {tag: _count(connection, "owner", tag) for tag in rows}
    lacking = [tag for tag in rows if have[tag] < count]
    if not lacking:
        return
    free = connection.execute("SELECT id, value FROM entries WHERE owner IS NULL ORDER BY id").fetchall()
    if len(free) < count * len(lacking):
        raise PrivacyError(
            f"the pool has {len(free)} unused descriptors left and {count * len(lacking)} are needed: add photographs"
            " to it, or release fewer features"
        )
    values = _values([value for _, value in free], points.shape[1])
    chosen = choose(points[[rows[tag] for tag in lacking]], values, count)
    for tag, places in zip(lacking, chosen, strict=True):
        wanted = [(tag, place, free[index][0]) for place, index in enumerate(places[have[tag] :], have[tag])]
        connection.executemany("UPDATE entries SET owner = ?, place = ? WHERE id = ?", wanted)


def _drawn(connection: sqlite3.Connection, tag: bytes, count: int, size: int) -> Float32:
    """The first `count` confounders of the point called `tag` (count, size)."""
    found = connection.execute("SELECT value FROM entries WHERE owner = ? ORDER BY place LIMIT ?", (tag, count))
    return _values([value for (value,) in found], size)


def _values(stored: list[bytes], size: int) -> Float32:
    """Descriptors (s, size) as they were stored; raises FormatError when one of them was not."""
    if not all(type(value) is bytes and len(value) == 4 * size for value in stored):
        raise FormatError(_DAMAGED)
    rows = np.frombuffer(b"".join(stored), "<f4").reshape(len(stored), size).astype(np.float32)
    if not np.isfinite(rows).all():
        raise FormatError(_DAMAGED)
    return rows


def _same_photographs(connection: sqlite3.Connection, tags: set[bytes]) -> list[int]:
    """The photographs of the pool that are the one with these `tags`, or a part or more of it."""
    found: dict[int, int] = {}
    for tag in tags:
        for (photograph,) in connection.execute("SELECT photograph FROM entries WHERE tag = ?", (tag,)):
            found[photograph] = found.get(photograph, 0) + 1
    sizes = {photograph: _count(connection, "photograph", photograph) for photograph in found}
    return [photograph for photograph, shared in found.items() if shared >= _SAME * min(len(tags), sizes[photograph])]


def _owners(connection: sqlite3.Connection, tags: set[bytes]) -> set[bytes]:
    """Those of `tags` that were released, as points that others hide."""
    return {tag for tag in tags if _count(connection, "owner", tag)}


def _count(connection: sqlite3.Connection, column: str, value: bytes | int) -> int:
    (found,) = connection.execute(f"SELECT count(*) FROM entries WHERE {column} = ?", (value,)).fetchone()
    return int(found)
