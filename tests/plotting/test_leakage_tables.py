"""Tables and histograms of what attacks recover."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from featveil.core import InputError, MissingExtraError
from featveil.core.records import Parameter, Record
from featveil.metrics import BINS
from featveil.metrics.leakage import METRIC, UNIT
from featveil.plotting.leakage_histograms import draw_leakage
from featveil.plotting.leakage_tables import HEADINGS, leakage_cells, leakage_markdown, leakage_rows


def record(attack: str, scheme: str = "sub-hybrid-4", file: str = "a.veil", **changed: Any) -> Record:
    """A record such as the task writes; `changed` are its value and count, or parameters."""
    value = changed.pop("value", (0.9, 0.95, 0.1, 0.2, 0.05, 40.0, 1.0))
    count = changed.pop("count", 100)
    parameters: dict[str, Parameter] = {"kind": "sift", "features": 120, "attacked": count, "seconds": 1.5}
    parameters |= {"histogram": [count, *[0] * (BINS - 1)], "knows": ["database"], "note": ""}
    parameters |= {"guarantee": "empirical", "epsilon": None}
    return Record("attack", file, scheme, METRIC, value, UNIT, count, 0, {}, attack, parameters | changed)


RECORDS = [
    record("nearest"),
    record("chance"),
    record("nearest", file="b.veil", count=300, value=(0.5, 0.45, 0.5, 0.6, 0.25, 20.0, 0.8), features=300),
    record("chance", file="b.veil", count=300, features=300),
    record("posterior", "subset-10-2", knows=["codebook", "others"], guarantee="local-dp", epsilon=10.0),
]


def test_rows_are_over_all_features_of_all_files() -> None:
    rows = leakage_rows(RECORDS)
    assert [(row.scheme, row.attack) for row in rows] == [
        ("sub-hybrid-4", "chance"),
        ("sub-hybrid-4", "nearest"),
        ("subset-10-2", "posterior"),
    ]
    row = rows[1]
    assert (row.files, row.count, row.seconds, row.knows) == (2, 400, 3.0, ("database",))
    assert row.mean == pytest.approx((100 * 0.9 + 300 * 0.5) / 400)
    assert row.below_close == pytest.approx((100 * 0.1 + 300 * 0.5) / 400)
    assert row.below_near == pytest.approx((100 * 0.2 + 300 * 0.6) / 400)
    assert row.exact == pytest.approx((100 * 0.05 + 300 * 0.25) / 400)
    assert row.answered == pytest.approx((100 + 300 * 0.8) / 400)
    assert row.median == pytest.approx(0.7) and row.rank == 30
    assert row.histogram[0] == 400 and sum(row.histogram) == 400


def test_what_was_known_makes_another_row() -> None:
    rows = leakage_rows([record("nearest"), record("nearest", file="b.veil", knows=["database", "others"])])
    assert [row.knows for row in rows] == [("database",), ("database", "others")]


def test_an_epsilon_is_never_without_that_of_the_image() -> None:
    assert leakage_rows(RECORDS)[2].title == "subset-10-2 (epsilon 10 a descriptor, 1,200 an image)"
    assert leakage_rows(RECORDS)[0].title == "sub-hybrid-4"
    metric = leakage_rows([record("chance", "metric-4-1", guarantee="metric-dp", epsilon=4.0)])[0]
    assert metric.title == "metric-4-1 (epsilon 4 a descriptor and unit of distance, 480 an image)"
    assert "(epsilon 10 a descriptor, 1,200 an image)" in leakage_markdown(RECORDS)


def test_cells_fit_the_headings() -> None:
    rows = leakage_rows([record("nearest", seconds=0.01), record("chance", count=1000)])
    cells = leakage_cells(rows)
    assert all(len(line) == len(HEADINGS) for line in cells)
    assert cells[0] == ("chance", "1,000", "100.0", "0.900", "0.950", "10.0", "20.0", "5.0", "40", "1.5")
    assert cells[1][-1] == "< 0.1"


def test_markdown_has_every_scheme_and_file() -> None:
    text = leakage_markdown(RECORDS)
    assert "## sub-hybrid-4\n" in text and "\n## b.veil\n" in text and "| codebook, others |" in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert widths == {len(HEADINGS) + 2}
    assert "## a.veil" not in leakage_markdown(RECORDS[:2])
    assert "| nothing |" in leakage_markdown([record("read", knows=[])])


def test_notes_are_a_list_at_the_end() -> None:
    text = leakage_markdown(RECORDS, ["one caveat", "not run, without --reference: inlier"])
    assert text.endswith("|\n\n## Notes\n\n- one caveat\n- not run, without --reference: inlier\n")
    assert "Notes" not in leakage_markdown(RECORDS)


@pytest.mark.parametrize(
    "wrong",
    [
        replace(RECORDS[0], task="words"),
        replace(RECORDS[0], metric="mean"),
        replace(RECORDS[0], value=0.5),
        replace(RECORDS[0], value=(0.5, 0.5)),
        replace(RECORDS[0], parameters={}),
        record("nearest", histogram=[1, 2]),
        record("nearest", histogram=3),
    ],
)
def test_other_records_are_refused(wrong: Record) -> None:
    with pytest.raises(InputError):
        leakage_rows([wrong])


def test_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no record"):
        leakage_markdown([])
    with pytest.raises(InputError, match="nothing to draw|no result"):  # noqa: RUF043
        draw_leakage([], tmp_path / "h.png")
    assert list(tmp_path.iterdir()) == []


def drawn(records: list[Record], path: Path) -> Any:
    draw_leakage(leakage_rows(records), path, "title")
    return np.asarray(cv2.imread(str(path)))


def reddish(image: Any) -> int:
    blue, green, red = (image[..., channel].astype(int) for channel in range(3))
    return int(((red > 150) & (green < 100) & (blue < 100)).sum())


def test_the_picture_shows_attacks_over_chance(tmp_path: Path) -> None:
    spread = [0, 5, 10, 20, 30, 20, 15, *[0] * (BINS - 7)]
    both = [record("nearest", histogram=spread), record("chance", histogram=spread[::-1])]
    image = drawn(both, tmp_path / "h.png")
    grey = (image == (0xC6, 0xBF, 0xB8)).all(axis=2).sum()
    assert reddish(image) > 500 and grey > 5000
    floor = drawn(both[1:], tmp_path / "c.png")
    assert reddish(floor) == 0 and (floor == (0xC6, 0xBF, 0xB8)).all(axis=2).sum() > 5000
    alone = drawn(both[:1], tmp_path / "n.png")
    assert reddish(alone) > 500 and (alone == (0xC6, 0xBF, 0xB8)).all(axis=2).sum() < 50


def test_many_attacks_make_lines_of_panels(tmp_path: Path) -> None:
    one = drawn([record("a")], tmp_path / "1.png")
    five = drawn([record(f"attack-{place}") for place in range(5)], tmp_path / "5.png")
    assert five.shape[0] > 1.5 * one.shape[0] and five.shape[1] > 1.5 * one.shape[1]


def test_a_histogram_of_nothing_is_drawn(tmp_path: Path) -> None:
    assert drawn([record("nearest", histogram=[0] * BINS)], tmp_path / "h.png").size


def test_without_matplotlib_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match="plots"):
        draw_leakage(leakage_rows(RECORDS), tmp_path / "h.png")
    assert list(tmp_path.iterdir()) == []
