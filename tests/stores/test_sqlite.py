"""One SQLite file: its names, its making, and several processes at once. What stops one of them is in test_storage."""

import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from featveil.core import FormatError, InputError
from featveil.stores.sqlite import SqliteFile
from featveil.stores.storage import Schema

TABLES = ("CREATE TABLE words (id INTEGER PRIMARY KEY, word TEXT NOT NULL UNIQUE)",)
PREAMBLE = """
import os, signal, sys
from pathlib import Path
from featveil.stores.sqlite import SqliteFile
from featveil.stores.storage import Schema
tables = ("CREATE TABLE words (id INTEGER PRIMARY KEY, word TEXT NOT NULL UNIQUE)",)
file = SqliteFile(Path(sys.argv[1]), Schema("word list", 0x66767771, 3, tables, "make it", "restore it"), 60)
"""
KILL = "os.kill(os.getpid(), signal.SIGKILL)"


def named(path: Path, wait: float = 0.1) -> SqliteFile:
    return SqliteFile(path, Schema("word list", 0x66767771, 3, TABLES, "make it", "restore it"), wait)


def make(path: Path) -> SqliteFile:
    file = named(path)
    with file.create():
        return file


@pytest.fixture
def file(tmp_path: Path) -> SqliteFile:
    """A list that holds one word."""
    file = make(tmp_path / "words.sqlite")
    add(file, "one")
    return file


def add(file: SqliteFile, *words: str) -> None:
    with file.transaction() as connection:
        connection.executemany("INSERT INTO words (word) VALUES (?)", [(word,) for word in words])


def words(file: SqliteFile) -> list[str]:
    with file.transaction(writes=False) as connection:
        return [word for (word,) in connection.execute("SELECT word FROM words ORDER BY id")]


def edit(file: SqliteFile, *statements: str) -> None:
    with closing(sqlite3.connect(file.path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def started(code: str, path: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", PREAMBLE + code, str(path)], text=True, stdout=subprocess.PIPE)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_was_committed_is_there_for_others(file: SqliteFile) -> None:
    add(file, "two", "three")
    assert words(named(file.path)) == ["one", "two", "three"]
    assert list(files(file.path.parent)) == ["words.sqlite"]


def test_a_new_file_is_for_its_owner_only(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        make(tmp_path / "words.sqlite")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "words.sqlite").stat().st_mode) == 0o600


def test_what_is_there_is_never_replaced(file: SqliteFile) -> None:
    before = file.path.read_bytes()
    (file.path.parent / "link").symlink_to(file.path.parent / "nowhere")
    for path in (file.path, file.path.parent, file.path.parent / "link"):
        with pytest.raises(InputError, match="exists: use it, or name another file"):
            make(path)
    assert file.path.read_bytes() == before
    assert not (file.path.parent / "nowhere").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere/words", "folder .*nowhere does not exist"),
        ("a\0b", "cannot make word list .*null"),
        (300 * "x", "cannot make word list .*File name too long"),
    ],
)
def test_a_file_that_cannot_be_made(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make(tmp_path / name)
    assert files(tmp_path) == {}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none", "word list .*none does not exist: make it"),
        ("", "is not a file"),
        ("a\0b", "cannot use word list .*null"),
        (300 * "x", "cannot use word list .*File name too long"),
    ],
)
def test_a_file_that_is_not_there_is_not_made(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        words(named(tmp_path / name))
    assert files(tmp_path) == {}


@pytest.mark.parametrize("name", ["a?mode=ro", "a#b", "a%20b", "a b", "Wörter", "file:x", "'\"\\"])
def test_any_name_is_that_of_the_file(tmp_path: Path, name: str) -> None:
    add(make(tmp_path / name), "one")
    assert words(named(tmp_path / name)) == ["one"]
    assert list(files(tmp_path)) == [name]


def test_the_settings_of_a_connection(file: SqliteFile) -> None:
    with file.transaction() as connection:
        settings = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("trusted_schema", "synchronous", "fullfsync", "secure_delete")
        }
    assert settings == {"trusted_schema": 0, "synchronous": 3, "fullfsync": 1, "secure_delete": 1}


def test_text_that_is_none_is_damage(file: SqliteFile) -> None:
    edit(file, "UPDATE words SET word = CAST(x'ff' AS TEXT)")
    with pytest.raises(FormatError, match="is damaged"):
        words(file)


def test_waiting_for_another_process_ends(file: SqliteFile) -> None:
    with closing(sqlite3.connect(file.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert words(file) == ["one"]  # a reader does not wait for it
        with pytest.raises(InputError, match=r"another process holds word list .*: try again later"):
            add(file, "two")
        other.execute("COMMIT")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(InputError, match="another process holds"):
            words(file)
    add(file, "two")
    assert words(file) == ["one", "two"]


def test_a_creation_that_is_killed_says_what_to_do(tmp_path: Path) -> None:
    code = f"""
with file.create() as connection:
    connection.execute("PRAGMA cache_size = 2")
    for number in range(200):
        connection.execute("INSERT INTO words (word) VALUES (?)", (400 * "x" + str(number),))
    {KILL}
"""
    killed = started(code, tmp_path / "words.sqlite")
    killed.communicate()
    assert killed.returncode == -9
    assert (tmp_path / "words.sqlite").stat().st_size > 0
    with pytest.raises(FormatError, match="is empty"):
        words(named(tmp_path / "words.sqlite"))


def test_processes_take_turns(file: SqliteFile) -> None:
    code = """
for number in range(15):
    with file.transaction() as connection:
        (count,) = connection.execute("SELECT count(*) FROM words").fetchone()
        connection.execute("INSERT INTO words (word) VALUES (?)", (str(count),))
"""
    running = [started(code, file.path) for _ in range(3)]
    for process in running:
        process.communicate()
    assert [process.returncode for process in running] == [0, 0, 0]
    assert words(file) == ["one", *map(str, range(1, 46))]  # nobody saw a count that another was changing


def test_of_two_who_make_a_file_one_does(tmp_path: Path) -> None:
    code = """
from featveil.core import InputError
try:
    with file.create():
        print("created")
except InputError:
    print("refused")
"""
    running = [started(code, tmp_path / "words.sqlite") for _ in range(3)]
    assert sorted(process.communicate()[0] for process in running) == ["created\n", "refused\n", "refused\n"]
