"""Real descriptors that only this device has, to hide others among, each once. One SQLite file, or memory for studies.

What hides a descriptor is remembered by a keyed tag of it: the same photograph sent twice is hidden in the same way,
and two releases say no more than one. A descriptor that was in two releases would give both away, so none is used
twice, a photograph whose descriptors hide others is never released, and one that was released hides no other.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from featveil.core.arrays import Float32, Integers, floats
from featveil.core.entropy import Randomness
from featveil.core.errors import FormatError, InputError, PrivacyError
from featveil.core.features import check_kind
from featveil.core.keyed import SECRET_BYTES, KeyedDraws, tags_of
from featveil.stores.sqlite import SqliteMemory, storage_of
from featveil.stores.storage import Connection, Schema, Storage

# Which of the free descriptors (s, d) hide each of some points (n, d): `count` different rows for each, (n, count).
Choose = Callable[[Float32, Float32, int], Integers]

_LARGEST_SIZE = 65_536
_NOBODY = b""  # owns what was released itself
# Photographs are the same one from this share of descriptors in common on, of those that have fewer: flat patches may
# coincide. How many a release had is not known; of that, some are enough.
_SAME, _SOME = 0.1, 5
_RESTORE = "restore a copy from after its last release"
_DAMAGED = f"the pool is damaged: {_RESTORE}"
SCHEMA = Schema(
    "pool",
    0x6676706C,  # "fvpl", in the header of the file
    1,
    (
        "CREATE TABLE device (kind TEXT NOT NULL, size INTEGER NOT NULL, secret BLOB NOT NULL)",
        "CREATE TABLE entries (id INTEGER PRIMARY KEY, photograph INTEGER NOT NULL, tag BLOB NOT NULL UNIQUE,"
        " value BLOB NOT NULL, owner BLOB, place INTEGER)",
        "CREATE INDEX owners ON entries (owner, place)",
    ),
    "make it with featveil pool create",
    _RESTORE,
)
_SET = "INSERT INTO device (kind, size, secret) VALUES (?, ?, ?)"
_DEVICE = "SELECT kind, size, secret FROM device"
_HOLDINGS = """SELECT count(DISTINCT photograph), count(*), coalesce(sum(CASE WHEN owner IS NULL THEN 1 ELSE 0 END), 0)
  FROM entries"""
_LAST = "SELECT coalesce(max(photograph), 0) FROM entries"
_ADD = "INSERT INTO entries (photograph, tag, value) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_FREE = "SELECT id, value FROM entries WHERE owner IS NULL ORDER BY id"
_DRAWN = "SELECT value FROM entries WHERE owner = ? ORDER BY place LIMIT ?"
_PHOTOGRAPHS = "SELECT photograph FROM entries WHERE tag = ?"
_OWNED = "SELECT count(*) FROM entries WHERE owner = ?"
_SIZE = "SELECT count(*) FROM entries WHERE photograph = ?"
_HIDING = "SELECT count(*) FROM entries WHERE photograph = ? AND owner IS NOT NULL AND owner != ?"
_OWN = "UPDATE entries SET owner = ?, place = ? WHERE id = ?"
_SET_PHOTOGRAPH_APART = "UPDATE entries SET owner = ? WHERE photograph = ?"
_SET_APART = "UPDATE entries SET owner = ? WHERE tag = ? AND owner IS NULL"


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
    """The pool in the file or the storage at `place`, which `create` makes.

    Of a file it waits up to `wait` seconds for other processes. It is a secret of the device: with it, every release
    can be undone.
    """

    def __init__(self, place: str | Path | Storage, wait: float = 10.0) -> None:
        self._storage = storage_of(place, SCHEMA, wait)

    @classmethod
    def create(cls, place: str | Path | Storage, kind: str, photographs: Iterable[Float32]) -> Self:
        """A new pool, of the descriptors (s, d) of each photograph.

        Raises InputError when there is one: what a pool has hidden must not be forgotten.
        """
        return cls(place)._filled(kind, os.urandom(SECRET_BYTES), photographs)

    @classmethod
    def in_memory(cls, values: Float32, kind: str, rng: Randomness) -> Self:
        """A pool for studies, of `values` (s, d) that count as one photograph; its secret is drawn from `rng`."""
        secret = rng.integers(0, 256, size=(SECRET_BYTES,)).astype(np.uint8).tobytes()
        return cls(SqliteMemory(SCHEMA))._filled(kind, secret, [values])

    def add(self, photographs: Iterable[Float32]) -> Holdings:
        """Add the descriptors (s, d) of more photographs; those that are there already are left out.

        Each photograph is added by itself: what was added before an interruption stays.
        """
        for values in photographs:
            with self._storage.transaction() as connection:
                _, size, secret = _device(connection)
                _insert(connection, secret, size, [values])
        return self.holdings()

    def holdings(self) -> Holdings:
        """What the pool holds now."""
        with self._storage.transaction() as connection:
            kind, size, _ = _device(connection)
            return Holdings(kind, size, *connection.execute(_HOLDINGS).fetchone())

    def lacking(self, points: Float32, count: int) -> int:
        """How many unused descriptors it takes to hide each of `points` (n, d) among `count`.

        Those that hid a point before hide it again, and are not counted.
        """
        with self._storage.transaction() as connection:
            _, _, secret = _device(connection)
            return sum(max(0, count - _count(connection, _OWNED, tag)) for tag in set(tags_of(secret, points)))

    def hide(self, points: Float32, count: int, choose: Choose) -> Hiding:
        """`count` confounders for each of the descriptors `points` (n, d) of one photograph.

        Those that hid a point before hide it again, in their order; the others are chosen by `choose` and never used
        elsewhere. Raises PrivacyError when the pool is too small, or the photograph hides others itself.
        """
        with self._storage.transaction() as connection:
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

    def _filled(self, kind: str, secret: bytes, photographs: Iterable[Float32]) -> Self:
        check_kind(kind)
        with self._storage.create() as connection:
            size = _insert(connection, secret, None, photographs)
            connection.execute(_SET, (kind, size, secret))
        return self


def _device(connection: Connection) -> tuple[str, int, bytes]:
    """Kind, descriptor size and secret."""
    rows = connection.execute(_DEVICE).fetchall()
    if len(rows) != 1 or tuple(map(type, rows[0])) != (str, int, bytes) or len(rows[0][2]) != SECRET_BYTES:
        raise FormatError(_DAMAGED)
    kind, size, secret = rows[0]
    return kind, size, secret


def _insert(connection: Connection, secret: bytes, size: int | None, photographs: Iterable[Float32]) -> int:
    """Add photographs that the pool neither holds nor has released; the descriptor size, which all must share."""
    (last,) = connection.execute(_LAST).fetchone()
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
        connection.executemany(_ADD, new)
    if size is None:
        raise InputError("a pool needs the descriptors of at least one photograph")
    return size


def _set_apart(connection: Connection, tags: set[bytes]) -> None:
    """See to it that nothing of the photograph with these `tags` will hide anything; raises PrivacyError if it does."""
    for photograph in _same_photographs(connection, tags):
        if connection.execute(_HIDING, (photograph, _NOBODY)).fetchone()[0]:
            raise PrivacyError(
                "descriptors of this photograph hide those of others that were released: releasing it would give both"
                " away. Photographs of a pool are not for release"
            )
        connection.execute(_SET_PHOTOGRAPH_APART, (_NOBODY, photograph))
    own = ((_NOBODY, tag) for tag in tags)
    connection.executemany(_SET_APART, own)


def _assign(connection: Connection, points: Float32, rows: dict[bytes, int], count: int, choose: Choose) -> None:
    """Give the points in `rows`, by tag, as many more confounders as they lack; raises PrivacyError for too few."""
    have = {tag: _count(connection, _OWNED, tag) for tag in rows}
    lacking = [tag for tag in rows if have[tag] < count]
    if not lacking:
        return
    free = connection.execute(_FREE).fetchall()
    if len(free) < count * len(lacking):
        raise PrivacyError(
            f"the pool has {len(free)} unused descriptors left and {count * len(lacking)} are needed: add photographs"
            " to it, or release fewer features"
        )
    values = _values([value for _, value in free], points.shape[1])
    chosen = choose(points[[rows[tag] for tag in lacking]], values, count)
    for tag, places in zip(lacking, chosen, strict=True):
        wanted = [(tag, place, free[index][0]) for place, index in enumerate(places[have[tag] :], have[tag])]
        connection.executemany(_OWN, wanted)


def _drawn(connection: Connection, tag: bytes, count: int, size: int) -> Float32:
    """The first `count` confounders of the point called `tag` (count, size)."""
    rows = connection.execute(_DRAWN, (tag, count))
    return _values([value for (value,) in rows], size)


def _values(stored: list[bytes], size: int) -> Float32:
    """Descriptors (s, size) as they were stored; raises FormatError when one of them was not."""
    if not all(type(value) is bytes and len(value) == 4 * size for value in stored):
        raise FormatError(_DAMAGED)
    rows = np.frombuffer(b"".join(stored), "<f4").reshape(len(stored), size).astype(np.float32)
    if not np.isfinite(rows).all():
        raise FormatError(_DAMAGED)
    return rows


def _same_photographs(connection: Connection, tags: set[bytes]) -> list[int]:
    """The photographs of the pool that are the one with these `tags`, or a part or more of it."""
    shared: dict[int, int] = {}
    for tag in tags:
        for (photograph,) in connection.execute(_PHOTOGRAPHS, (tag,)):
            shared[photograph] = shared.get(photograph, 0) + 1
    sizes = {photograph: _count(connection, _SIZE, photograph) for photograph in shared}
    return [photograph for photograph, count in shared.items() if count >= _SAME * min(len(tags), sizes[photograph])]


def _owners(connection: Connection, tags: set[bytes]) -> set[bytes]:
    """Those of `tags` that were released, as points that others hide."""
    return {tag for tag in tags if _count(connection, _OWNED, tag)}


def _count(connection: Connection, query: str, value: bytes | int) -> int:
    (count,) = connection.execute(query, (value,)).fetchone()
    return int(count)
