"""featveil bench matching / runtime."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from featveil.cli.bench import app
from featveil.core import InputError, Points
from featveil.core.records import read_records
from scenes import draw_equal_views


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """One scene of six equal random textures: every homography is the identity."""
    folder = tmp_path / "drawn" / "i_same"
    draw_equal_views(folder)
    return folder.parent


def test_matching_writes_records_table_and_curve(dataset: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "new" / "results"
    arguments = ("matching", dataset, "--out", out, "--strategies", "random", "--dimensions", "2,4")
    result = invoke(*arguments, "--max-features", 50, "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["rows"]
    assert [(row["strategy"], row["dimension"]) for row in rows[:3]] == [
        ("raw", 0),
        ("random", 2),
        ("random", 4),
    ]
    assert rows[0]["accuracy"][0] == 1.0
    assert sorted(path.name for path in out.iterdir()) == ["curve.png", "records.jsonl", "table.md"]
    assert "| random | 4 | subspace-to-subspace |" in (out / "table.md").read_text()
    assert len(read_records(out / "records.jsonl")) == 25
    again = invoke(*arguments, "--max-features", 50)
    assert again.exit_code == 0
    assert re.search(r"^random +4 +subspace-subspace +100", again.stdout, re.MULTILINE)
    assert isinstance(invoke(*arguments, "--max-features", 51).exception, InputError)


def test_without_matplotlib_the_table_is_still_made(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = invoke("matching", dataset, "--out", tmp_path / "o", "--strategies", "random", "--dimensions", 2)
    assert result.exit_code == 0, result.output
    assert "featveil[plots]" in result.stderr
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == ["records.jsonl", "table.md"]


def test_runtime_reports_every_method(dataset: Path) -> None:
    result = invoke("runtime", "--features", 20, "--dimensions", 2, "--repeat", 1, "--json")
    assert result.exit_code == 0, result.output
    timings = json.loads(result.stdout)["timings"]
    assert {timing["dimension"] for timing in timings} >= {0, 2}
    assert all(0 < timing["seconds"] < 60 and timing["ratio"] > 0 for timing in timings)


def test_runtime_of_two_images(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from featveil.lab import runtime

    sizes: list[tuple[int, int]] = []

    def measure(first: Points, second: Points, *rest: object) -> Iterator[runtime.Timing]:
        sizes.append((len(first), len(second)))
        return iter(())

    monkeypatch.setattr(runtime, "measure", measure)
    images = dataset / "i_same" / "1.png", dataset / "i_same" / "2.png"
    assert invoke("runtime", "--features", 20, "--images", *images).exit_code == 0
    assert invoke("runtime", "--features", 30).exit_code == 0
    assert sizes == [(20, 20), (30, 30)]
    assert isinstance(invoke("runtime", "--features", 9999, "--images", *images).exception, InputError)


def test_runtime_help_has_an_example() -> None:
    result = invoke("runtime", "--help")
    assert result.exit_code == 0
    assert "featveil bench runtime" in " ".join(result.stdout.split())
