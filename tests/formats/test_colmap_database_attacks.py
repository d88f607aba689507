"""COLMAP databases that are damaged or lie: each is refused in words, and none is trusted."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from colmap_databases import connected, edit, tables, write_database
from featveil.core import FormatError, InputError
from featveil.formats import colmap_database

N = 6


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "database.db"


def uses(path: Path) -> list[Callable[[], object]]:
    """All ways to read image 'a.jpg'."""
    return [
        lambda: colmap_database.names(path),
        lambda: colmap_database.kind_of(path, "a.jpg"),
        lambda: colmap_database.read(path, "a.jpg"),
        lambda: colmap_database.camera_of(path, "a.jpg"),
    ]


def refusal(path: Path, name: str = "a.jpg", read: Callable[..., object] = colmap_database.read) -> str:
    with pytest.raises(FormatError) as caught:
        read(path, name)
    assert str(path) in str(caught.value) and repr(name) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a//b", "a/./b", "", "a\nb", "\x1b[2J", b"a.jpg", b"\xff"])
def test_hostile_names(path: Path, name: object) -> None:
    write_database(path, {"good.jpg": tables(N), "bad.jpg": tables(N)})
    with connected(path) as connection:
        connection.execute("UPDATE images SET name = ? WHERE name = 'bad.jpg'", (name,))
    with pytest.raises(FormatError, match="not a relative path"):
        colmap_database.names(path)


def test_text_that_is_no_text(path: Path) -> None:
    write_database(path, {"a.jpg": tables(N)})
    edit(path, "UPDATE images SET name = CAST(x'ff' AS TEXT)")
    with pytest.raises(FormatError, match="damaged"):
        colmap_database.names(path)


def test_a_name_that_comes_twice(path: Path) -> None:
    write_database(path, {"a.jpg": tables(N)})
    edit(
        path,
        "ALTER TABLE images RENAME TO old",
        "CREATE TABLE images AS SELECT * FROM old UNION ALL SELECT 2, name, camera_id FROM old",
    )
    with pytest.raises(FormatError, match="two images of one name"):
        colmap_database.names(path)


@pytest.mark.parametrize("table", ["images", "cameras", "keypoints", "descriptors"])
@pytest.mark.parametrize(
    "change", ["DROP TABLE {0}", "ALTER TABLE {0} RENAME TO old", "ALTER TABLE {0} RENAME {0}_column TO other"]
)
def test_missing_tables_and_columns(path: Path, table: str, change: str) -> None:
    write_database(path, {"a.jpg": tables(N)})
    column = {"images": "name", "cameras": "params"}.get(table, "data")
    edit(path, change.format(table).replace(f"{table}_column", column))
    for use in uses(path):
        with pytest.raises(FormatError, match=f"not a COLMAP database: it has no table {table}"):
            use()


def test_a_view_is_no_table(path: Path) -> None:
    """It could be a query without end."""
    write_database(path, {"a.jpg": tables(N)})
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS image_id, 'x' AS name,"
    edit(path, "DROP TABLE images", f"CREATE VIEW images AS {endless} 1 AS camera_id FROM n")
    for use in uses(path):
        with pytest.raises(FormatError, match="it has no table images"):
            use()


@pytest.mark.parametrize("table", ["keypoints", "descriptors"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("rows = rows + 1", "the data have another size"),
        ("cols = cols + 1", "the data have another size"),
        ("data = substr(data, 2)", "the data have another size"),
        ("data = NULL", "the data have another size"),
        ("data = CAST(hex(zeroblob(length(data) / 2)) AS TEXT)", "the data have another size"),
        ("rows = 1 << 40, cols = 1 << 40", "impossible size"),
        ("rows = -rows, cols = -cols", "impossible size"),
        ("rows = 'many'", "impossible size"),
    ],
)
def test_a_size_that_lies(path: Path, table: str, change: str, message: str) -> None:
    write_database(path, {"a.jpg": tables(N)})
    edit(path, f"UPDATE {table} SET {change}")
    assert f"its {table} " in (said := refusal(path)) and message in said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("DELETE FROM keypoints", "no keypoints: run COLMAP"),
        ("DELETE FROM descriptors", "no descriptors: run COLMAP"),
        ("UPDATE keypoints SET rows = rows / 2, cols = 2 * cols", "2, 4 or 6 columns, got 8"),
        ("UPDATE keypoints SET rows = 2 * rows, cols = cols / 2", "12 keypoints do not fit 6 descriptors"),
        ("UPDATE descriptors SET data = zeroblob(length(data))", "descriptor 0 has zero norm"),
        ("UPDATE descriptors SET type = 1, cols = 127, data = zeroblob(6 * 127)", "4 bytes a component"),
        ("UPDATE cameras SET width = 0", "image size"),
    ],
)
def test_features_that_cannot_be(path: Path, change: str, message: str) -> None:
    write_database(path, {"a.jpg": tables(N)})
    edit(path, change)
    assert message in refusal(path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none(path: Path, value: float) -> None:
    keypoints, _ = tables(N)
    wrong = np.full((N, 8), value, "<f4")
    write_database(path, {"a.jpg": (keypoints, wrong.view(np.uint8))}, method=1)
    assert "NaN, infinite" in refusal(path)
    for columns in (2, 4, 6):
        path.unlink()
        write_database(path, {"a.jpg": (wrong[:, :columns].copy(), tables(N)[1])})
        assert "NaN, infinite" in refusal(path)


@pytest.mark.parametrize("columns", [4, 6])
def test_numbers_that_are_too_large(path: Path, columns: int) -> None:
    write_database(path, {"a.jpg": (np.full((N, columns), 3e38, np.float32), tables(N)[1])})
    assert "too large" in refusal(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("DELETE FROM cameras", "its camera is missing"),
        ("UPDATE cameras SET model = 99", "unknown model"),
        ("UPDATE cameras SET model = -1", "unknown model"),
        ("UPDATE cameras SET model = 'PINHOLE'", "unknown model"),
        ("UPDATE cameras SET width = 'wide'", "no size"),
        ("UPDATE cameras SET height = -480", "image size"),
        ("UPDATE cameras SET params = substr(params, 2)", "double precision"),
        ("UPDATE cameras SET params = NULL", "double precision"),
        ("UPDATE cameras SET params = substr(params, 9)", "has 4 parameters, got 3"),
        ("UPDATE cameras SET params = CAST(x'000000000000f87f' || substr(params, 9) AS BLOB)", "finite"),
    ],
)
def test_cameras_that_cannot_be(path: Path, change: str, message: str) -> None:
    write_database(path, {"a.jpg": tables(N)})
    edit(path, change)
    assert message in refusal(path, read=colmap_database.camera_of)


def test_files_that_are_no_database(path: Path) -> None:
    for use in uses(path):
        with pytest.raises(InputError, match="does not exist"):
            use()
    for use in uses(path.parent):
        with pytest.raises(InputError, match="is a folder"):
            use()
    assert list(path.parent.iterdir()) == []
    for content, message in ((b"no database" * 100, "not an SQLite database"), (b"", "no table")):
        path.write_bytes(content)
        for use in uses(path):
            with pytest.raises(FormatError, match=message):
                use()
        assert path.read_bytes() == content


def test_a_file_that_was_cut_off_or_overwritten(path: Path) -> None:
    write_database(path, {f"{number}.jpg": tables(40, number) for number in range(9)})
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:4096] + b"\xa5" * (len(whole) - 4096)):
        path.write_bytes(damaged)
        with pytest.raises(FormatError):
            for name in colmap_database.names(path):
                colmap_database.read(path, name)
