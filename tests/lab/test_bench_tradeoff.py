"""featveil bench tradeoff."""

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
from featveil.lab import scene_studies as scenes
from scenes import draw_equal_views

FEW = ("--epsilons", "6,4", "--subset-sizes", "1,2", "--max-features", 80, "--iterations", 500)


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["tradeoff", *(str(argument) for argument in arguments)])


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """One scene of six equal random textures: every homography is the identity."""
    folder = tmp_path / "drawn" / "i_same"
    draw_equal_views(folder)
    return folder.parent


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "few.safetensors"
    save_database(Database(builtin("sift").values[:300], "sift"), path)
    return path


def test_records_table_and_curve(dataset: Path, book: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "new" / "results"
    arguments = (dataset, "--out", out, "--codebook", book, *FEW)
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["rows"]
    mechanisms = ["subset", "metric", "subset", "metric", "chance"]
    assert [row["mechanism"] for row in rows] == ["raw", "quantised", *mechanisms, *mechanisms]
    assert (rows[0]["correct_nearest"], rows[0]["guess_distance"]) == (1, 0)
    assert all(row["image_epsilon"] == 80 * row["epsilon"] for row in rows if row["epsilon"] is not None)
    assert sorted(path.name for path in out.iterdir()) == ["curve.png", "records.jsonl", "table.md"]
    assert "Codebook of 300 words" in (out / "table.md").read_text()
    assert len(read_records(out / "records.jsonl")) == 5 + 11 * 10
    again = invoke(*arguments)
    assert again.exit_code == 0
    assert re.search(r"^subset +1 +0\.574 +6 +480 ", again.stdout, re.MULTILINE)
    assert re.search(r"^metric +1 +0\.574 +[\d.]+/d +[\d,]+/d ", again.stdout, re.MULTILINE)
    assert max(len(line) for line in again.stdout.splitlines()) <= 80
    assert len(read_records(out / "records.jsonl")) == 5 + 11 * 10
    other = invoke(*arguments, "--seed", 1)
    assert isinstance(other.exception, InputError)
    assert "seed 0, not 1" in str(other.exception)


def test_without_matplotlib_and_with_the_builtin_codebook(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    few = Database(builtin("sift").values[:400], "sift")  # stands for all of them, for speed
    monkeypatch.setattr(scenes, "builtin", {"sift": few}.__getitem__)
    result = invoke(dataset, "--out", tmp_path / "o", *FEW)
    assert result.exit_code == 0, result.output
    assert "featveil[plots]" in result.stderr
    assert "Codebook of 400 words" in (tmp_path / "o" / "table.md").read_text()
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == ["records.jsonl", "table.md"]
