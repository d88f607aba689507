"""The engine of studies, on a bench of a few lines: records, resuming, tables, figures, and how commands find it."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from featveil import lab
from featveil.cli import app
from featveil.cli import bench as command
from featveil.core import InputError, MissingExtraError
from featveil.core.options import option
from featveil.core.records import Record, read_records
from featveil.lab.bench import (
    Bench,
    Case,
    Column,
    Measured,
    Progress,
    Stopped,
    Study,
    markdown_table,
    out_option,
    refuse_none,
    screen_table,
    seed_option,
)


@dataclass(frozen=True)
class Options:
    out: Path = out_option()
    sides: tuple[int, ...] = option((1, 2), help="Sides.")
    seed: int = seed_option()

    def __post_init__(self) -> None:
        refuse_none(self, "sides")


@dataclass(frozen=True)
class Row:
    side: int
    area: float


def squares(options: Options, progress: Progress) -> Study[int]:
    """Areas of squares."""

    def cases() -> Iterator[Case[int]]:
        for side in options.sides:
            yield Case("square", {"side": side}, side)

    return Study(cases, {"shape": "flat"}, options.seed, "drawn")


def measure(side: int) -> Measured:
    return Measured(float(side * side), 1, {"corners": 4})


def rows_of(records: Sequence[Record]) -> list[Row]:
    return [Row(int(str(one.parameters["side"])), float(str(one.value))) for one in records]


COLUMNS: tuple[Column[Row], ...] = (
    Column("side", lambda row: str(row.side), left=True),
    Column("area in all", lambda row: f"{row.area:.1f}", screen="area", brief=lambda row: f"{row.area:.0f}"),
    Column("half", lambda row: f"{row.area / 2:.2f}", screen=None),
)


def draw(rows: Sequence[Row], path: Path, title: str) -> None:
    path.write_text(f"{title}: {len(rows)}", encoding="utf-8")


BENCH = Bench(
    "squares",
    squares,
    measure=measure,
    key=("side",),
    metric="area",
    unit="squares",
    rows=rows_of,
    text=lambda rows, records: f"# Squares\n\n{markdown_table(COLUMNS, rows)}",
    screen=partial(screen_table, COLUMNS),
    figures={"curve.png": draw},
    named=("side",),
)


def test_what_is_measured_is_recorded_and_published(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    results = BENCH.run(Options(out))
    assert results.facts["rows"] == [{"side": 1, "area": 1.0}, {"side": 2, "area": 4.0}]
    assert results.facts["files"] == [str(out / name) for name in ("records.jsonl", "table.md", "curve.png")]
    assert (out / "table.md").read_text() == (
        "# Squares\n\n| side | area in all | half |\n| --- | ---: | ---: |\n| 1 | 1.0 | 0.50 |\n| 2 | 4.0 | 2.00 |\n"
    )
    assert (out / "curve.png").read_text() == "drawn: 2"
    one = read_records(out / "records.jsonl")[1]
    assert (one.task, one.dataset, one.scheme, one.metric, one.unit) == (
        "squares",
        "drawn",
        "square",
        "area",
        "squares",
    )
    assert (one.value, one.count, one.parameters) == (4.0, 1, {"side": 2, "corners": 4, "shape": "flat"})


def test_a_second_run_measures_what_is_missing_and_publishes_what_was_asked_for(tmp_path: Path) -> None:
    BENCH.run(Options(tmp_path, (1, 2)))
    measured: list[int] = []

    def counting(side: int) -> Measured:
        measured.append(side)
        return measure(side)

    results = replace(BENCH, measure=counting).run(Options(tmp_path, (3, 1)))
    assert measured == [3] and [row["side"] for row in results.facts["rows"]] == [3, 1]
    everything = replace(BENCH, whole_file=True).run(Options(tmp_path, (1,)))
    assert [row["side"] for row in everything.facts["rows"]] == [1, 2, 3]
    with pytest.raises(InputError, match="seed 0, not 1"):
        BENCH.run(Options(tmp_path, seed=1))


def test_ctrl_c_says_where_it_goes_on(tmp_path: Path) -> None:
    def stop(side: int) -> Measured:
        raise KeyboardInterrupt

    with pytest.raises(Stopped, match=r"records\.jsonl"):
        replace(BENCH, measure=stop).run(Options(tmp_path))


def test_mistakes_are_named_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="seed"):
        BENCH.run(Options(tmp_path / "o", seed=-1))
    with pytest.raises(InputError, match="--sides"):
        Options(tmp_path / "o", ())
    assert not (tmp_path / "o").exists()


def test_records_of_something_else(tmp_path: Path) -> None:
    BENCH.run(Options(tmp_path))
    (one, _) = read_records(tmp_path / "records.jsonl")
    for wrong in (replace(one, task="circles"), replace(one, metric="length"), replace(one, parameters={})):
        with pytest.raises(InputError, match="not one of squares"):
            BENCH.summarize([wrong])
    with pytest.raises(InputError, match="damaged"):
        replace(BENCH, length=2).summarize([one])
    with pytest.raises(InputError, match="no record"):
        BENCH.markdown([])


def test_a_figure_that_cannot_be_drawn_is_a_note(tmp_path: Path) -> None:
    def fail(rows: Any, path: Path, title: str) -> None:
        raise MissingExtraError("matplotlib", "plots")

    results = replace(BENCH, figures={"curve.png": fail}).run(Options(tmp_path))
    assert len(results.notes) == 1 and "featveil[plots]" in results.notes[0]
    assert not any("curve.png" in path for path in results.facts["files"])


def test_a_bench_is_added_by_adding_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else is touched: the command is listed, has help and options, and runs."""
    source = Path(__file__).read_text(encoding="utf-8")
    (tmp_path / "squares.py").write_text(source[: source.index("def test_")], encoding="utf-8")
    monkeypatch.setattr(lab, "__path__", [*lab.__path__, str(tmp_path)])
    command._listed.cache_clear()
    try:
        listed = CliRunner().invoke(app, ["bench", "--help"])
        assert "Areas of squares." in listed.stdout and "matching" in listed.stdout
        assert "--sides" in CliRunner().invoke(app, ["bench", "squares", "--help"]).stdout
        arguments = ["bench", "squares", "--out", str(tmp_path / "o"), "--sides", "3", "--json"]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["rows"] == [{"side": 3, "area": 9.0}]
        table = CliRunner().invoke(app, arguments[:-1]).stdout
        assert table.split() == ["side", "area", "3", "9"]
    finally:
        command._listed.cache_clear()
        sys.modules.pop("featveil.lab.squares", None)


def test_no_bench_is_loaded_to_list_them_all() -> None:
    code = (
        "import sys; sys.argv = ['featveil', 'bench', '--help']\n"
        "from featveil.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "assert not [name for name in sys.modules if name.startswith('featveil.lab.')], 'loaded'\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "matching" in result.stdout
