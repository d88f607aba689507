"""featveil bench oracle."""

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

FEW = ("--images", 2, "--max-features", 40, "--database-size", 300)


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["oracle", *(str(argument) for argument in arguments)])


@pytest.fixture
def victims(tmp_path: Path) -> Path:
    draw_equal_views(tmp_path / "victims")
    return tmp_path / "victims"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    draw_turned_views(tmp_path / "own", seed=3)
    return tmp_path / "own"


def test_records_table_and_curve(victims: Path, own: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "new" / "results"
    arguments = (victims, "--database", own, "--out", out, *FEW, "--kinds", "sift,rootsift")
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["rows"]
    assert [row["neighbours"] for row in rows if row["kind"] == "sift"] == [1, 2, 5, 10, 20, 50, 100, 200, 300]
    assert all(row["projected"] <= row["plain"] for row in rows)
    assert all((row["features"], row["images"]) == (80, 2) for row in rows)
    assert sorted(path.name for path in out.iterdir()) == ["curve.png", "records.jsonl", "table.md"]
    assert "300 descriptors of other photographs" in (out / "table.md").read_text()
    assert len(read_records(out / "records.jsonl")) == 12
    again = invoke(*arguments)
    assert again.exit_code == 0
    assert re.search(r"^ +300( +0\.\d{3}){4}", again.stdout, re.MULTILINE)
    assert max(len(line) for line in again.stdout.splitlines()) <= 80
    assert len(read_records(out / "records.jsonl")) == 12
    other = invoke(*arguments, "--max-features", 39)
    assert isinstance(other.exception, InputError)
    assert "max_features 40, not 39" in str(other.exception)


def test_a_database_file_and_no_matplotlib(victims: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    path = tmp_path / "few.safetensors"
    save_database(Database(builtin("sift").values[:150], "sift"), path)
    result = invoke(victims, "--database", path, "--out", tmp_path / "o", *FEW)
    assert result.exit_code == 0, result.output
    assert "featveil[plots]" in result.stderr
    assert "150 descriptors" in (tmp_path / "o" / "table.md").read_text()
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == ["records.jsonl", "table.md"]
