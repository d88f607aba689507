"""featveil bench assumptions."""

import json
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from featveil.cli.bench import app
from featveil.core import InputError
from featveil.core.records import read_records
from featveil.databases import Database, builtin, save_database
from scenes import draw_equal_views, draw_turned_views

FEW = ("--images", 2, "--max-features", 40, "--dimensions", "2,4")


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["assumptions", *(str(argument) for argument in arguments)])


@pytest.fixture
def victims(tmp_path: Path) -> Path:
    draw_turned_views(tmp_path / "victims")
    return tmp_path / "victims"


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "few.safetensors"
    save_database(Database(builtin("sift").values[:150], "sift", 1), path)
    return path


def test_records_table_and_curve(victims: Path, book: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "new" / "results"
    arguments = (victims, "--out", out, "--database", book, *FEW)
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [(row["dimension"], row["variant"]) for row in found["collisions"]] == [
        *((2, "same image"), (2, "other images"), (4, "same image"), (4, "other images"))
    ]
    assert len(found["members"]) == 2 * 2 * 4
    assert all(row["features"] == 80 for rows in (found["members"], found["collisions"]) for row in rows)
    assert found["collisions"][0]["theirs"] == 0.9742
    assert sorted(path.name for path in out.iterdir()) == ["curve.png", "records.jsonl", "table.md"]
    assert "a database of 150 entries" in (out / "table.md").read_text()
    assert len(read_records(out / "records.jsonl")) == 2 * 2 * 4
    again = invoke(*arguments)
    assert again.exit_code == 0
    assert re.search(r"^4 +paper +93\.9 +95\.6 +96\.6 +97\.5", again.stdout, re.MULTILINE)
    assert re.search(r"^2 +same image +[\d.]+ .* 97\.4", again.stdout, re.MULTILINE)
    assert max(len(line) for line in again.stdout.splitlines()) <= 80
    assert len(read_records(out / "records.jsonl")) == 2 * 2 * 4
    other = invoke(*arguments, "--seed", 1)
    assert isinstance(other.exception, InputError)
    assert "seed 0, not 1" in str(other.exception)


def test_photographs_to_lift_with_and_no_matplotlib(
    victims: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    draw_equal_views(tmp_path / "photos")
    lifted = ("--database", tmp_path / "photos", "--database-size", 200)
    result = invoke(victims, "--out", tmp_path / "o", *lifted, *FEW)
    assert result.exit_code == 0, result.output
    assert "featveil[plots]" in result.stderr
    assert "a database of 200 entries" in (tmp_path / "o" / "table.md").read_text()
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == ["records.jsonl", "table.md"]


def test_the_builtin_database_is_the_default(victims: Path, tmp_path: Path) -> None:
    result = invoke(victims, "--out", tmp_path / "o", "--images", 1, "--max-features", 10, "--dimensions", 2)
    assert result.exit_code == 0, result.output
    assert f"a database of {len(builtin('sift')):,} entries" in (tmp_path / "o" / "table.md").read_text()
