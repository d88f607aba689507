"""featveil bench words."""

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
from scenes import draw_equal_views

FEW = ("--epsilons", "12,8", "--subset-sizes", "1,2", "--nearest-sizes", "2", "--max-features", 80, "--iterations", 500)


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["words", *(str(argument) for argument in arguments)])


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """One scene of six equal random textures: every homography is the identity."""
    folder = tmp_path / "drawn" / "i_same"
    draw_equal_views(folder)
    return folder.parent


@pytest.fixture
def books(tmp_path: Path) -> tuple[Path, Path]:
    """Two small codebooks."""
    paths = tmp_path / "one.safetensors", tmp_path / "two.safetensors"
    for path, size in zip(paths, (300, 600), strict=True):
        save_database(Database(builtin("sift").values[:size], "sift"), path)
    return paths


def test_records_tables_and_curve_of_two_codebooks(dataset: Path, books: tuple[Path, Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "new" / "results"
    arguments = (dataset, "--out", out, "--codebooks", f"{books[0]},{books[1]}", *FEW)
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["rows"]
    assert len(rows) == 2 + 2 * (2 + 4 + 2)
    assert [row["mechanism"] for row in rows[:3]] == ["raw", "naive", "quantised"]
    assert [row["correct"] for row in rows[:3]] == [1, 0, 1]
    assert {row["codebook"] for row in rows[2:]} == {"one (300)", "two (600)"}
    assert all(row["image_epsilon"] == 80 * row["epsilon"] for row in rows if row["epsilon"] is not None)
    assert sorted(path.name for path in out.iterdir()) == ["curve.png", "records.jsonl", "table.md"]
    assert "## Codebook two (600), digest " in (out / "table.md").read_text()
    assert len(read_records(out / "records.jsonl")) == 5 * len(rows)
    again = invoke(*arguments)
    assert again.exit_code == 0
    assert re.search(r"^two \(600\), rule nearest", again.stdout, re.MULTILINE)
    assert re.search(r"^2 words +12 +960 +0\.99", again.stdout, re.MULTILINE)
    assert max(len(line) for line in again.stdout.splitlines()) <= 80
    other = invoke(*arguments, "--seed", 1)
    assert isinstance(other.exception, InputError)
    assert "seed 0, not 1" in str(other.exception)


def test_without_matplotlib_and_with_the_builtin_codebook(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = invoke(dataset, "--out", tmp_path / "o", *FEW)
    assert result.exit_code == 0, result.output
    assert "featveil[plots]" in result.stderr
    assert "built-in (16,384), rule vocabulary" in result.stdout
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == ["records.jsonl", "table.md"]


def test_codebooks_need_different_names(dataset: Path, books: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    copy = books[0].rename(tmp_path / "sub" / "two.safetensors")
    save_database(Database(builtin("sift").values[:300], "sift"), books[1])
    result = invoke(dataset, "--out", tmp_path / "o", "--codebooks", f"{copy},{books[1]}")
    assert isinstance(result.exception, InputError)
    assert "two codebooks are called two (300)" in str(result.exception)
