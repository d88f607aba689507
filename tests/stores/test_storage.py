"""One contract for every store: nothing of a file is lost, half written, or used when it is not sound.

And each store on each storage: a file as featveil has always written it, and memory.
"""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from featveil.core import FormatError, InputError
from featveil.core.arrays import Float32, Integers
from featveil.stores import ledger, pool, templates
from featveil.stores import sqlite as module
from featveil.stores.sqlite import SqliteFile, SqliteMemory, storage_of
from featveil.stores.storage import Schema, Storage
from ledgers import release
from pools import descriptors
from template_stores import content, private, settings

POINTS = descriptors(8000, 6)


@dataclass(frozen=True)
class Case:
    """A store with something in it, how to add to it and what it shows; `insert` is a large row of its own."""

    schema: Schema
    make: Callable[[str | Path | Storage], Any]
    open: Callable[[str | Path | Storage, float], Any]
    add: Callable[[Any, int], object]
    read: Callable[[Any], object]
    insert: str
    tables: tuple[str, ...]  # as version 1 of the file has them, for ever
    application: int


def first_free(points: Float32, free: Float32, count: int) -> Integers:
    return np.arange(len(points) * count).reshape(len(points), count)


def make_ledger(place: str | Path | Storage) -> ledger.Ledger:
    store = ledger.Ledger(place)
    store.set_budget("ann", 10_000)
    store.account("ann").charge(release())
    return store


def make_pool(place: str | Path | Storage) -> pool.Pool:
    store = pool.Pool.create(place, "sift", [descriptors(100 * number, 100) for number in range(2)])
    store.hide(POINTS, 4, first_free)
    return store


def make_templates(place: str | Path | Storage) -> templates.TemplateStore:
    store = templates.TemplateStore.create(place, settings())
    store.enroll([("ann", private(0)), ("bob", private(3))])
    return store


CASES = {
    "ledger": Case(
        ledger.SCHEMA,
        make_ledger,
        ledger.Ledger,
        lambda store, number: store.account("ann").charge(release(), f"{number:<400d}"),
        lambda store: (store.statement(), store.history()),
        "INSERT INTO entries SELECT NULL, '', 'ann', 'release', 'local-dp', 1.0, 1, 1000000000, ?, printf('%400d', 1)",
        (
            "CREATE TABLE entries (\n  id INTEGER PRIMARY KEY,\n  time TEXT NOT NULL,\n  subject TEXT NOT NULL,\n"
            "  event TEXT NOT NULL CHECK (event IN ('budget', 'release')),\n"
            "  kind TEXT NOT NULL CHECK (kind IN ('local-dp', 'metric-dp')),\n"
            "  per_descriptor REAL CHECK (typeof(per_descriptor) IN ('real', 'null')),\n"
            "  features INTEGER CHECK (typeof(features) IN ('integer', 'null')),\n"
            "  units INTEGER NOT NULL CHECK"
            " (typeof(units) = 'integer' AND units BETWEEN 0 AND 1000000000000000000),\n"
            "  defense TEXT NOT NULL,\n  label TEXT NOT NULL\n)",
        ),
        0x66766C67,
    ),
    "pool": Case(
        pool.SCHEMA,
        make_pool,
        pool.Pool,
        lambda store, number: store.add([descriptors(1000 + 10 * number, 10)]),
        lambda store: (store.holdings(), store.hide(POINTS, 4, first_free).confounders.tobytes()),
        "INSERT INTO entries SELECT NULL, 7, ?, zeroblob(512), NULL, NULL",
        (
            "CREATE TABLE device (kind TEXT NOT NULL, size INTEGER NOT NULL, secret BLOB NOT NULL)",
            "CREATE TABLE entries (id INTEGER PRIMARY KEY, photograph INTEGER NOT NULL, tag BLOB NOT NULL UNIQUE,"
            " value BLOB NOT NULL, owner BLOB, place INTEGER)",
            "CREATE INDEX owners ON entries (owner, place)",
        ),
        0x6676706C,
    ),
    "templates": Case(
        templates.SCHEMA,
        make_templates,
        templates.TemplateStore,
        lambda store, number: store.enroll([(f"p{number}", private(6))]),
        lambda store: (store.settings(), content(store)),
        "INSERT INTO templates SELECT NULL, ?, zeroblob(480), zeroblob(32), 'now'",
        (
            "CREATE TABLE settings (kind TEXT NOT NULL, size INTEGER NOT NULL, model TEXT, defense TEXT NOT NULL,"
            " among TEXT)",
            "CREATE TABLE templates (id INTEGER PRIMARY KEY, person TEXT NOT NULL UNIQUE, template BLOB NOT NULL,"
            " digest BLOB NOT NULL, time TEXT NOT NULL)",
            "CREATE TABLE calibrations (id INTEGER PRIMARY KEY, far REAL NOT NULL, threshold REAL NOT NULL,"
            " strangers INTEGER NOT NULL, mated INTEGER NOT NULL, true_accept_rate REAL NOT NULL, time TEXT NOT NULL)",
        ),
        0x66767473,
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def path(tmp_path: Path, case: Case) -> Path:
    """The file of a store."""
    case.make(tmp_path / "a.sqlite")
    return tmp_path / "a.sqlite"


def files(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.parent.iterdir() if each.is_file()}


def edit(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def refused(case: Case, path: Path, error: type[Exception], text: str, wait: float = 0.05) -> None:
    """Neither reading nor writing does anything but raise, in one line that names the file."""
    before = files(path)
    for act in (case.read, lambda store: case.add(store, 0)):
        with pytest.raises(error, match=text) as caught:
            act(case.open(path, wait))
        assert "\n" not in str(caught.value) and str(path) in str(caught.value)
    assert files(path) == before


def shown(case: Case, place: str | Path | Storage) -> object:
    return case.read(case.open(place, 10))


class TestFormat:
    """What files have always been."""

    def test_a_file_is_told_by_its_header_and_tables(self, case: Case, path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid").fetchall()
            assert tuple(sql for (sql,) in rows) == case.tables
            assert connection.execute("PRAGMA application_id").fetchone() == (case.application,)
            assert connection.execute("PRAGMA user_version").fetchone() == (1,)
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)

    def test_a_file_made_by_the_same_statements_is_one(self, case: Case, path: Path) -> None:
        """By SQLite alone, with the rows of a store copied into it."""
        other = path.with_name("other.sqlite")
        edit(other, *case.tables, f"PRAGMA application_id = {case.application}", "PRAGMA user_version = 1")
        with closing(sqlite3.connect(other)) as connection, connection:
            connection.execute("ATTACH ? AS source", (str(path),))
            tables = connection.execute("SELECT name FROM source.sqlite_master WHERE type = 'table'").fetchall()
            for (table,) in tables:
                connection.execute(f"INSERT INTO main.{table} SELECT * FROM source.{table}")
            connection.commit()
        assert shown(case, other) == shown(case, path)
        for each in (path, other):
            case.add(case.open(each, 10), 0)


class TestStorages:
    def test_a_store_in_memory(self, case: Case) -> None:
        storage = SqliteMemory(case.schema)
        with pytest.raises(InputError, match="in memory"):
            shown(case, storage)
        store = case.make(storage)
        before = case.read(store)
        case.add(store, 0)
        assert case.read(store) != before
        assert case.read(store) == shown(case, storage)

    def test_a_store_on_a_storage_that_was_opened_before(self, case: Case, path: Path) -> None:
        assert shown(case, SqliteFile(path, case.schema)) == shown(case, str(path))

    def test_a_storage_of_another_store(self, case: Case, path: Path) -> None:
        for other in CASES.values():
            if other is not case:
                with pytest.raises(InputError, match=case.schema.noun):
                    other.open(SqliteFile(path, case.schema), 1)
                refused(other, path, FormatError, f"is not a {other.schema.noun}")

    def test_what_is_there_is_not_made_again(self, case: Case) -> None:
        storage = SqliteMemory(case.schema)
        case.make(storage)
        with pytest.raises(InputError, match="use it"), storage.create():
            pytest.fail("it would be made anew")

    @pytest.mark.parametrize("wait", [-1, 3601, float("nan")])
    def test_waiting_too_long_or_not_at_all(self, case: Case, tmp_path: Path, wait: float) -> None:
        with pytest.raises(InputError, match="wait must be"):
            storage_of(tmp_path / "a.sqlite", case.schema, wait)


class TestOtherFiles:
    def test_none(self, case: Case, tmp_path: Path) -> None:
        refused(case, tmp_path / "none.sqlite", InputError, "does not exist")
        (tmp_path / "folder").mkdir()
        refused(case, tmp_path / "folder", InputError, "is not a file")

    def test_no_database(self, case: Case, path: Path) -> None:
        whole, noise = path.read_bytes(), np.random.default_rng(0).bytes(8192)
        for damaged in (b"no store at all\n" * 1000, noise, whole[:100] + noise[100:]):
            path.write_bytes(damaged)
            refused(case, path, FormatError, "is damaged or no")

    def test_one_that_is_cut_off(self, case: Case, path: Path) -> None:
        whole = path.read_bytes()
        for keep in (1, 50, 100, 4096, 5000, len(whole) - 4096, len(whole) - 1):
            path.write_bytes(whole[:keep])
            refused(case, path, FormatError, "is damaged|is not a")

    def test_one_that_is_cut_to_nothing(self, case: Case, path: Path) -> None:
        path.write_bytes(b"")
        refused(case, path, FormatError, "is empty")
        with pytest.raises((FormatError, InputError)):
            case.make(path)
        assert path.read_bytes() == b""

    def test_another_database(self, case: Case, tmp_path: Path) -> None:
        edit(tmp_path / "other.sqlite", *case.tables)
        refused(case, tmp_path / "other.sqlite", FormatError, f"is not a {case.schema.noun}")

    def test_another_version(self, case: Case, path: Path) -> None:
        edit(path, "PRAGMA user_version = 2")
        refused(case, path, FormatError, "has version 2")

    @pytest.mark.parametrize("change", ["TABLE more (a)", "VIEW more AS SELECT 1", "TRIGGER more {trigger}"])
    def test_another_schema(self, case: Case, path: Path, change: str) -> None:
        table = case.insert.split()[2]
        trigger = f"AFTER INSERT ON {table} BEGIN DELETE FROM {table} WHERE id = new.id; END"
        edit(path, f"CREATE {change.format(trigger=trigger)}")
        refused(case, path, FormatError, "is damaged")
        edit(path, f"DROP {change.split()[0]} more")
        case.add(case.open(path, 10), 0)


class TestFailures:
    """Power loss, a full disk, other processes: what was there stays, and nothing is half there."""

    def test_another_process_that_holds_it(self, case: Case, path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            refused(case, path, InputError, "another process holds")
        case.add(case.open(path, 0), 0)

    def test_a_reader_that_stays(self, case: Case, path: Path) -> None:
        before = shown(case, path)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN")
            other.execute("SELECT * FROM sqlite_master").fetchall()
            with pytest.raises(InputError, match="another process holds"):
                case.add(case.open(path, 0.05), 0)
        assert shown(case, path) == before
        assert list(files(path)) == ["a.sqlite"]

    def test_a_full_disk(self, case: Case, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store, added = case.open(path, 10), 0
        pages = path.stat().st_size // 4096
        monkeypatch.setattr(module, "_PRAGMAS", (*module._PRAGMAS, f"PRAGMA max_page_count = {pages + 2}"))
        before: object = None
        with pytest.raises(InputError, match="disk is full"):
            for added in range(200):
                before = case.read(store)
                case.add(store, added)
        assert added and case.read(store) == before
        monkeypatch.undo()
        case.add(store, added)
        assert case.read(store) != before
        assert list(files(path)) == ["a.sqlite"]

    @pytest.mark.parametrize("pages", [1, 2])
    def test_a_disk_too_full_for_a_new_one(
        self, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: int
    ) -> None:
        pages = 1 if case.schema.noun == "ledger" else pages  # one table and a first row fit into two
        monkeypatch.setattr(module, "_PRAGMAS", (*module._PRAGMAS, f"PRAGMA max_page_count = {pages}"))
        with pytest.raises(InputError, match="disk is full"):
            case.make(tmp_path / "a.sqlite")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.skipif(sys.platform == "win32", reason="needs a limit of the size of files")
    def test_a_write_that_the_system_refuses(self, case: Case, path: Path) -> None:
        before, size = shown(case, path), path.stat().st_size
        code = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))
try:
    with storage.transaction() as connection:
        fill(connection)
except InputError as error:
    print("refused:", error)
"""
        assert "refused: cannot use" in in_process(case, path, code)[1]
        assert shown(case, path) == before

    @pytest.mark.parametrize("stop", [KeyboardInterrupt, ZeroDivisionError, InputError])
    def test_an_interruption(self, case: Case, path: Path, stop: type[BaseException]) -> None:
        before = files(path)
        with pytest.raises(stop), SqliteFile(path, case.schema).transaction() as connection:
            connection.execute(case.insert, ("1",))
            raise stop("here")
        assert files(path) == before

    def test_ctrl_c_while_it_is_made(self, case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(module, "_fill", interrupted)
        with pytest.raises(KeyboardInterrupt):
            case.make(tmp_path / "a.sqlite")
        assert list(tmp_path.iterdir()) == []

    def test_a_process_that_is_killed_within_a_transaction(self, case: Case, path: Path) -> None:
        """As by a power cut: pages of it are in the file already, and the journal takes them back."""
        before, size = shown(case, path), path.stat().st_size
        code, _ = in_process(
            case,
            path,
            """
with storage.transaction() as connection:
    connection.execute("PRAGMA cache_size = 2")  # so that pages are written before the commit
    fill(connection)
    os.kill(os.getpid(), signal.SIGKILL)
""",
        )
        assert code == -signal.SIGKILL
        assert path.with_name("a.sqlite-journal").exists() and path.stat().st_size > size + 20_000
        assert shown(case, path) == before
        case.add(case.open(path, 10), 0)
        assert list(files(path)) == ["a.sqlite"]

    def test_a_file_that_is_deleted_within_a_transaction(
        self, case: Case, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
                cursor = super().execute(sql, *arguments)
                if sql.startswith("BEGIN"):
                    path.unlink()
                return cursor

        connect = sqlite3.connect
        monkeypatch.setattr(sqlite3, "connect", lambda *args, **more: connect(*args, **more, factory=Connection))
        with pytest.raises(InputError, match="No such file"):
            case.add(case.open(path, 0), 0)

    @pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
    @pytest.mark.parametrize("protect", ["file", "folder"])
    def test_a_file_that_may_only_be_read(self, case: Case, path: Path, protect: str) -> None:
        target = path if protect == "file" else path.parent
        mode = target.stat().st_mode
        target.chmod(0o400 if protect == "file" else 0o500)
        try:
            with pytest.raises(InputError, match="check its permissions"):
                case.add(case.open(path, 0), 0)
        finally:
            target.chmod(mode)
        with suppress(FileNotFoundError):
            assert list(files(path)) == ["a.sqlite"]

    def test_deleted_bytes_are_gone(self, case: Case, path: Path) -> None:
        storage = SqliteFile(path, case.schema)
        with storage.transaction() as connection:
            connection.execute(case.insert, (100 * "secret",))
        assert b"secretsecret" in path.read_bytes()
        with storage.transaction() as connection:
            connection.execute(f"DELETE FROM {case.insert.split()[2]}")
        assert b"secretsecret" not in path.read_bytes()


def in_process(case: Case, path: Path, code: str) -> tuple[int, str]:
    """Exit code and output of a process that runs `code` with `storage` and `fill`, which adds 200 large rows."""
    preamble = f"""
import os, signal, sys
from pathlib import Path
from featveil.core import InputError
from featveil.stores import {case.open.__module__.rpartition(".")[2]} as module
from featveil.stores.sqlite import SqliteFile
storage = SqliteFile(Path(sys.argv[1]), module.SCHEMA, 60)

def fill(connection):
    connection.executemany({case.insert!r}, [(str(number),) for number in range(200)])
"""
    process = subprocess.run([sys.executable, "-c", preamble + code, str(path)], text=True, stdout=subprocess.PIPE)
    return process.returncode, process.stdout


def test_the_contract_has_every_store() -> None:
    """A store that comes later is one more case."""
    folder = Path(module.__file__).parent
    stores = {file.stem for file in folder.glob("*.py") if "SCHEMA = Schema(" in file.read_text()}
    assert stores == CASES.keys()
