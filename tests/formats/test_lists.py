"""Text files of hloc: pairs, and what all of them have in common."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from featveil.core import FormatError, InputError, Pose
from featveil.formats.lists import write_entries
from featveil.formats.pairs import read_pairs
from featveil.formats.poses import read_queries, write_poses


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "list.txt"


def test_pairs_once_in_their_order(path: Path) -> None:
    path.write_text("\ufeff# query reference\nq/1.jpg db/2.jpg\r\n\n  b a\na b\nq/1.jpg  db/2.jpg\n#x y z\nc a")
    assert read_pairs(path) == [("q/1.jpg", "db/2.jpg"), ("b", "a"), ("c", "a")]


def test_any_letters_are_written(path: Path) -> None:
    pairs = [("q/1.jpg", "db/ä.jpg"), ("b#", "a")]
    write_entries(path, pairs)
    assert path.read_text("utf-8") == "q/1.jpg db/ä.jpg\nb# a\n"
    assert read_pairs(path) == pairs


@pytest.mark.parametrize(
    ("line", "message"), [("a", "two image names"), ("a b c", "may not contain spaces"), ("a a", "one image twice")]
)
def test_a_wrong_pair_is_named_by_its_line(path: Path, line: str, message: str) -> None:
    path.write_text(f"# first\nx y\n{line}\n")
    with pytest.raises(FormatError, match=f"line 3 of .*{message}"):
        read_pairs(path)


@pytest.mark.parametrize("name", ["a b", "", "a\n", "\x1b[2J", "#a"])
def test_names_that_do_not_fit_are_not_written(path: Path, name: str) -> None:
    path.write_text("as before")
    writes: list[Callable[[], None]] = [
        lambda: write_entries(path, [("x", "y"), (name, "z")]),
        lambda: write_poses(path, {name: Pose(np.eye(3), np.zeros(3))}),
    ]
    for write in writes:
        with pytest.raises(InputError, match="rename the image"):
            write()
    assert path.read_text() == "as before"


def test_files_that_are_no_lists(path: Path) -> None:
    for read in (read_pairs, read_queries):
        with pytest.raises(InputError, match="does not exist"):
            read(path)
        with pytest.raises(InputError, match="is a folder"):
            read(path.parent)
    path.write_bytes(b"a \xff\n")
    for read in (read_pairs, read_queries):
        with pytest.raises(FormatError, match="not a text file"):
            read(path)
