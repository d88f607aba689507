"""One SQLite file: whole transactions or none, whatever stops them; nothing unexpected is ever used."""

import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from featveil.core import FormatError, InputError
from featveil.stores import sqlite as module
from featveil.stores.sqlite import SqliteFile

TABLES = ("CREATE TABLE words (id INTEGER PRIMARY KEY, word TEXT NOT NULL UNIQUE)",)
PREAMBLE = """
import os, signal, sys
from pathlib import Path
from featveil.stores import sqlite as module
tables = ("CREATE TABLE words (id INTEGER PRIMARY KEY, word TEXT NOT NULL UNIQUE)",)
file = module.SqliteFile(Path(sys.argv[1]), "word list", 0x66767771, 3, tables, "make it", "restore it", 60)
"""
KILL = "os.kill(os.getpid(), signal.SIGKILL)"


def named(path: Path, wait: float = 0.1) -> SqliteFile:
    return SqliteFile(path, "word list", 0x66767771, 3, TABLES, "make it", "restore it", wait)


def make(path: Path) -> SqliteFile:
    file = named(path)
    file.reserve()
    with file.transaction(new=True) as connection:
        file.fill(connection)
    return file


@pytest.fixture
def file(tmp_path: Path) -> SqliteFile:
    """A list that holds one word."""
    made = make(tmp_path / "words.sqlite")
    add(made, "one")
    return made


def add(file: SqliteFile, *words: str) -> None:
    with file.transaction() as connection:
        connection.executemany("INSERT INTO words (word) VALUES (?)", [(word,) for word in words])


def words(file: SqliteFile) -> list[str]:
    with file.transaction("BEGIN") as connection:
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


@pytest.mark.parametrize("error", [KeyboardInterrupt, InputError, ZeroDivisionError])
def test_what_is_interrupted_is_taken_back(file: SqliteFile, error: type[BaseException]) -> None:
    before = files(file.path.parent)
    with pytest.raises(error), file.transaction() as connection:
        connection.execute("INSERT INTO words (word) VALUES ('two')")
        raise error("here")
    assert files(file.path.parent) == before


def test_a_new_file_is_for_its_owner_only(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        named(tmp_path / "words.sqlite").reserve()
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "words.sqlite").stat().st_mode) == 0o600


def test_what_is_there_is_never_replaced(file: SqliteFile) -> None:
    before = file.path.read_bytes()
    (file.path.parent / "link").symlink_to(file.path.parent / "nowhere")
    for path in (file.path, file.path.parent, file.path.parent / "link"):
        with pytest.raises(InputError, match="exists: use it, or name another file"):
            named(path).reserve()
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
        named(tmp_path / name).reserve()
    assert files(tmp_path) == {}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none", "word list .*none does not exist: make it"),
        ("", "does not exist: make it"),
        ("a\0b", "does not exist: make it"),
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
        found = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("trusted_schema", "synchronous", "fullfsync", "secure_delete")
        }
    assert found == {"trusted_schema": 0, "synchronous": 3, "fullfsync": 1, "secure_delete": 1}


def test_deleted_bytes_are_gone_from_the_file(file: SqliteFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the opposite setting they stay, which is what this would find."""
    for secure in (True, False):
        add(file, 300 * "secret")
        assert 300 * b"secret" in file.path.read_bytes()
        if not secure:
            monkeypatch.setattr(module, "_PRAGMAS", ("PRAGMA secure_delete = OFF",))
        with file.transaction() as connection:
            connection.execute("DELETE FROM words WHERE word != 'one'")
        assert (b"secretsecret" in file.path.read_bytes()) is not secure


class TestOtherFiles:
    def refuses(self, file: SqliteFile, message: str) -> None:
        before = files(file.path.parent)
        for begin in ("BEGIN", "BEGIN IMMEDIATE"):
            with pytest.raises(FormatError, match=message) as caught, file.transaction(begin):
                pytest.fail("nothing of this file may be used")
            assert "\n" not in str(caught.value)
        assert files(file.path.parent) == before

    def test_no_database(self, file: SqliteFile) -> None:
        for content in (b"no list of words\n" * 1000, np.random.default_rng(0).bytes(8192)):
            file.path.write_bytes(content)
            self.refuses(file, "is damaged or no word list at all: restore it")

    @pytest.mark.parametrize("keep", [99, 100, 4096, 5000, 8192])
    def test_one_that_is_cut_off(self, file: SqliteFile, keep: int) -> None:
        content = file.path.read_bytes()
        assert len(content) == 12288
        file.path.write_bytes(content[:keep])
        self.refuses(file, "is damaged")

    def test_another_database(self, tmp_path: Path) -> None:
        other = named(tmp_path / "other.sqlite")
        edit(other, *TABLES)
        self.refuses(other, "is not a word list of featveil: name another file")

    @pytest.mark.parametrize("version", [0, 2, 4])
    def test_another_version(self, file: SqliteFile, version: int) -> None:
        edit(file, f"PRAGMA user_version = {version}")
        self.refuses(file, f"has version {version}: update featveil")
        edit(file, "PRAGMA user_version = 3")
        assert words(file) == ["one"]

    @pytest.mark.parametrize(
        "change",
        [
            "CREATE TRIGGER undo AFTER INSERT ON words BEGIN DELETE FROM words; END",
            "CREATE TABLE more (a)",
            "CREATE VIEW seen AS SELECT 1",
            "ALTER TABLE words ADD COLUMN more TEXT",
            "DROP TABLE words",
        ],
    )
    def test_another_schema(self, file: SqliteFile, change: str) -> None:
        edit(file, change)
        self.refuses(file, "is damaged: restore it")

    def test_an_empty_one_is_what_an_interrupted_creation_leaves(self, tmp_path: Path) -> None:
        file = named(tmp_path / "words.sqlite")
        file.reserve()
        self.refuses(file, "is empty, its making was interrupted: delete it first")
        file.path.unlink()
        assert words(make(file.path)) == []


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


def test_a_reader_that_stays_makes_a_commit_fail_as_a_whole(file: SqliteFile) -> None:
    with closing(sqlite3.connect(file.path, isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM words").fetchall()
        with pytest.raises(InputError, match="another process holds"):
            add(file, "two", "three")
    assert words(file) == ["one"]
    assert list(files(file.path.parent)) == ["words.sqlite"]


def test_a_full_disk_refuses_and_keeps_what_was_there(file: SqliteFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PRAGMAS", (*module._PRAGMAS, "PRAGMA max_page_count = 3"))
    with pytest.raises(InputError, match=r"cannot use word list .*disk is full\): check its permissions and the disk"):
        add(file, *(f"{number:04d}" * 100 for number in range(100)))
    assert words(file) == ["one"]
    monkeypatch.undo()
    add(file, "two")
    assert words(file) == ["one", "two"]


def test_a_process_that_is_killed_leaves_what_was_committed(file: SqliteFile) -> None:
    code = f"""
with file.transaction() as connection:
    connection.execute("INSERT INTO words (word) VALUES ('two')")
with file.transaction() as connection:
    connection.execute("PRAGMA cache_size = 2")  # so that pages are written before the commit
    for number in range(200):
        connection.execute("INSERT INTO words (word) VALUES (?)", (400 * "x" + str(number),))
    {KILL}
"""
    killed = started(code, file.path)
    killed.communicate()
    assert killed.returncode == -9
    assert "words.sqlite-journal" in files(file.path.parent) and b"xxxx" in file.path.read_bytes()
    assert words(file) == ["one", "two"]
    add(file, "three")
    assert words(file) == ["one", "two", "three"]
    assert list(files(file.path.parent)) == ["words.sqlite"] and b"xxxx" not in file.path.read_bytes()


def test_a_creation_that_is_killed_says_what_to_do(tmp_path: Path) -> None:
    code = f"""
file.reserve()
with file.transaction(new=True) as connection:
    connection.execute("PRAGMA cache_size = 2")
    file.fill(connection)
    for number in range(200):
        connection.execute("INSERT INTO words (word) VALUES (?)", (400 * "x" + str(number),))
    {KILL}
"""
    killed = started(code, tmp_path / "words.sqlite")
    killed.communicate()
    assert killed.returncode == -9
    assert (tmp_path / "words.sqlite").stat().st_size > 0
    with pytest.raises(FormatError, match="is empty, its making was interrupted"):
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
    file.reserve()
    print("made")
except InputError:
    print("refused")
"""
    running = [started(code, tmp_path / "words.sqlite") for _ in range(3)]
    assert sorted(process.communicate()[0] for process in running) == ["made\n", "refused\n", "refused\n"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_only_be_read(file: SqliteFile) -> None:
    file.path.chmod(0o400)
    assert words(file) == ["one"]
    with pytest.raises(InputError, match="check its permissions"):
        add(file, "two")
    file.path.chmod(0o600)
    file.path.parent.chmod(0)
    try:
        with pytest.raises(InputError, match="check its permissions"):
            words(file)
    finally:
        file.path.parent.chmod(0o700)
    assert words(replace(file, wait=1)) == ["one"]
