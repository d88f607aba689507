"""What a store needs of whatever keeps its rows: transactions that are whole or not at all, and errors that say so.

A file of SQLite keeps them today (`featveil.stores.sqlite`); a database server is one more module with this protocol.
Stores state their queries in SQL that both understand, with `?` for values.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from featveil.core.errors import FormatError


@dataclass(frozen=True)
class Schema:
    """What a store keeps: its `noun` in messages, the number of the `application`, its `version`, and its tables.

    `tables` are SQLite's statements, to the letter: a file is checked against them. `missing` and `damaged` say what
    to do where it is; {name} in them is that of the storage. A `whole` one is checked to its last row each time it is
    used.
    """

    noun: str
    application: int
    version: int
    tables: tuple[str, ...]
    missing: str
    damaged: str
    whole: bool = False


class Rows(Protocol):
    """What a statement returns."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """What a transaction runs statements on."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows: ...

    def executemany(self, statement: str, values: Iterable[Sequence[Any]], /) -> Rows: ...


class Storage(Protocol):
    """The rows of one store. Every failure is an InputError or a FormatError, and takes the transaction back."""

    @property
    def schema(self) -> Schema: ...

    @property
    def name(self) -> str:
        """What messages call it, such as its path."""
        ...

    def create(self) -> AbstractContextManager[Connection]:
        """The first transaction of a new storage, with empty tables; of one that fails nothing is left.

        Raises InputError where there is one already.
        """
        ...

    def transaction(
        self, writes: bool = True, make: bool = False, outcome: str = ""
    ) -> AbstractContextManager[Connection]:
        """A connection to a checked storage inside one transaction: on the disk at the end of the block, or nowhere.

        Only one at a time `writes`. To `make` is to create the storage if there is none. `outcome` is what an error
        says beside its reason, such as "nothing was released".
        """
        ...

    def damage(self) -> FormatError:
        """What to raise where the content cannot be."""
        ...


def now() -> str:
    """The time as stores record it: UTC in ISO 8601, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
