"""Whatever goes wrong with the file, nothing is released that is not on the disk."""

import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import featveil.stores.ledger as module
from featveil.core import FormatError, Guarantee, InputError
from featveil.stores.ledger import Ledger
from ledgers import edit, names, process, refused, release

AS_ROOT = not hasattr(os, "geteuid") or os.geteuid() == 0


def test_a_missing_ledger_is_never_made_by_a_release(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    with refused(ledger, InputError, "does not exist"):
        ledger.account("ann").charge(release())
    for read in (ledger.statement, ledger.history):
        with pytest.raises(InputError, match="does not exist, so nothing was read"):
            read()
    with refused(Ledger(tmp_path / "x"), InputError, "is not a file"):
        Ledger(tmp_path).account("ann").charge(release())
    assert names(tmp_path) == []


def test_an_empty_file_is_refused(ledger: Ledger) -> None:
    ledger.path.write_bytes(b"")
    with refused(ledger, FormatError, "is empty"):
        ledger.account("ann").charge(release())
    with pytest.raises(FormatError, match="is empty, so no budget was changed"):
        ledger.set_budget("ann", 30)
    assert ledger.path.read_bytes() == b""


@pytest.mark.parametrize("keep", [1, 50, 100, 4096, 5000, 8191])
def test_a_cut_ledger_is_refused(ledger: Ledger, keep: int) -> None:
    content = ledger.path.read_bytes()
    assert len(content) == 8192
    ledger.path.write_bytes(content[:keep])
    with refused(ledger, FormatError, "is damaged" if keep > 1 else "is not a featveil ledger"):
        ledger.account("ann").charge(release())
    with pytest.raises(FormatError, match="so no budget was changed"):
        ledger.set_budget("ann", 30)


def test_random_bytes_are_refused(ledger: Ledger) -> None:
    content, noise = ledger.path.read_bytes(), np.random.default_rng(0).bytes(8192)
    for damaged in (noise, content[:100] + noise[100:], content[:4096] + noise[4096:]):
        ledger.path.write_bytes(damaged)
        with refused(ledger, FormatError, "is damaged or no ledger at all"):
            ledger.account("ann").charge(release())


def test_alien_and_altered_databases_are_refused(ledger: Ledger) -> None:
    alien = Ledger(ledger.path.with_name("alien.sqlite"))
    edit(alien, "CREATE TABLE entries (id INTEGER PRIMARY KEY)")
    with refused(alien, FormatError, "is not a featveil ledger"):
        alien.account("ann").charge(release())
    edit(ledger, "CREATE TRIGGER undo AFTER INSERT ON entries BEGIN DELETE FROM entries WHERE id = new.id; END")
    with refused(ledger, FormatError, "is damaged"):
        ledger.account("ann").charge(release())
    edit(ledger, "DROP TRIGGER undo", "PRAGMA user_version = 2")
    with refused(ledger, FormatError, "has version 2"):
        ledger.account("ann").charge(release())
    edit(ledger, "PRAGMA user_version = 1")
    assert ledger.account("ann").charge(release()) == 20.0


@pytest.mark.parametrize("change", ["units = -5", "units = 1e300", "label = CAST(x'ff' AS TEXT)", "features = 'many'"])
def test_entries_that_no_ledger_writes_are_refused(ledger: Ledger, change: str) -> None:
    edit(ledger, "PRAGMA ignore_check_constraints = ON", f"UPDATE entries SET {change}")
    with pytest.raises(FormatError, match="is damaged"):
        ledger.history()


def test_a_locked_ledger_is_refused(ledger: Ledger) -> None:
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with refused(ledger, InputError, "another process holds ledger"):
            ledger.account("ann").charge(release())
        with pytest.raises(InputError, match="so no budget was changed: try again later"):
            ledger.set_budget("ann", 50)
    assert ledger.account("ann").charge(release()) == 20.0


def test_a_reader_that_stays_makes_the_commit_fail(ledger: Ledger) -> None:
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM entries").fetchall()
        with pytest.raises(InputError, match=r"another process holds ledger .* so nothing was released"):
            ledger.account("ann").charge(release())
    assert [entry.event for entry in ledger.history()] == ["budget"]
    assert names(ledger.path.parent) == ["ledger.sqlite"]


@pytest.mark.skipif(AS_ROOT, reason="root may write everywhere")
@pytest.mark.parametrize("protect", ["file", "folder"])
def test_a_ledger_that_cannot_be_written_is_refused(ledger: Ledger, protect: str) -> None:
    target = ledger.path if protect == "file" else ledger.path.parent
    mode = target.stat().st_mode
    target.chmod(0o444 if protect == "file" else 0o555)
    try:
        with refused(ledger, InputError, "check its permissions"):
            ledger.account("ann").charge(release())
        assert ledger.statement("ann")[0].remaining == 30.0
        if protect == "folder":
            with pytest.raises(InputError, match="no budget was changed"):
                Ledger(target / "new.sqlite").set_budget("ann", 1)
    finally:
        target.chmod(mode)


def test_a_full_disk_refuses_and_keeps_what_was_there(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PRAGMAS", (*module._PRAGMAS, "PRAGMA max_page_count = 2"))
    account, small = ledger.account("ann"), release(1, Guarantee("local-dp", 1e-6))
    recorded = 0
    with pytest.raises(InputError, match=r"\(database or disk is full\), so nothing was released"):
        for recorded in range(100):  # noqa: B007
            account.charge(small, 500 * "x")
    assert recorded > 3
    assert ledger.statement("ann")[0].releases == recorded
    monkeypatch.undo()
    account.charge(small)
    assert names(ledger.path.parent) == ["ledger.sqlite"]


def test_a_ledger_that_does_not_fit_the_disk_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PRAGMAS", (*module._PRAGMAS, "PRAGMA max_page_count = 1"))
    with pytest.raises(InputError, match="disk is full"):
        Ledger(tmp_path / "ledger.sqlite").set_budget("ann", 1)
    assert names(tmp_path) == []


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit of the size of files")
def test_a_write_that_the_system_refuses(ledger: Ledger) -> None:
    code = """
import resource
from featveil.core import InputError
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
for recorded in range(100):
    try:
        ledger.account("ann").charge(private, 500 * "x")
    except InputError as error:
        print(recorded, error)
        break
"""
    ledger.set_budget("ann", 1000)
    said = process(code, ledger).communicate()[0]
    assert "so nothing was released: check its permissions and the disk" in said
    assert ledger.statement("ann")[0].releases == int(said.split()[0])
    assert ledger.account("ann").charge(release()) > 0


def test_processes_together_never_pass_the_budget(ledger: Ledger) -> None:
    code = """
done = 0
for attempt in range(25):
    try:
        ledger.account("ann").charge(private, f"{os.getpid()} {attempt}")
        done += 1
    except PrivacyError:
        pass
print(done)
"""
    ledger.set_budget("ann", 60)
    running = [process(code, ledger) for _ in range(4)]
    counts = [int(each.communicate()[0]) for each in running]
    assert sum(counts) == 60
    (balance,) = ledger.statement("ann")
    assert (balance.spent, balance.remaining, balance.releases) == (60.0, 0.0, 60)
    assert len({entry.label for entry in ledger.history() if entry.event == "release"}) == 60


def test_processes_may_make_a_ledger_at_once(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    code = "ledger.set_budget(str(os.getpid()), 1)"
    running = [process(code, ledger) for _ in range(4)]
    for each in running:
        each.communicate()
    succeeded = [each.pid for each in running if each.returncode == 0]
    # One that comes while the file is still empty may be refused; none that succeeded may be lost.
    assert succeeded
    assert sorted(row.subject for row in ledger.statement()) == sorted(map(str, succeeded))


def test_a_process_killed_halfway_leaves_no_entry(ledger: Ledger) -> None:
    code = """
from featveil.stores.ledger import _INSERT
with ledger._transaction("BEGIN IMMEDIATE", "") as connection:
    connection.execute("PRAGMA cache_size = 2")  # so that pages are written before the commit
    for number in range(200):
        connection.execute(_INSERT, ("ann", "release", "local-dp", 1.0, 1, 10**9, "subset", 400 * "x"))
    os._exit(9)
"""
    killed = process(code, ledger)
    killed.communicate()
    assert killed.returncode == 9
    assert ledger.path.with_name("ledger.sqlite-journal").exists() and ledger.path.stat().st_size > 8192
    assert ledger.account("ann").charge(release()) == 20.0
    assert [entry.event for entry in ledger.history()] == ["budget", "release"]
    assert names(ledger.path.parent) == ["ledger.sqlite"]


def during(statement: str, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `act` happen whenever a ledger has just executed `statement`."""

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
            cursor = super().execute(sql, *arguments)
            if sql == statement:
                act()
            return cursor

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **more: connect(*args, **more, factory=Connection))


def test_ctrl_c_halfway_leaves_no_entry(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    during(module._INSERT, lambda: signal.raise_signal(signal.SIGINT), monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        ledger.account("ann").charge(release())
    with pytest.raises(KeyboardInterrupt):
        Ledger(ledger.path.with_name("new.sqlite")).set_budget("ann", 1)
    monkeypatch.undo()
    assert [entry.event for entry in ledger.history()] == ["budget"]
    assert names(ledger.path.parent) == ["ledger.sqlite"]


def test_a_ledger_deleted_halfway_is_refused(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    during("BEGIN IMMEDIATE", ledger.path.unlink, monkeypatch)
    with pytest.raises(InputError, match=r"No such file or directory.* so nothing was released"):
        ledger.account("ann").charge(release())
