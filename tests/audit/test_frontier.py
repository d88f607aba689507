"""The privacy-utility frontier: which schemes are on it, where labels go, and both pictures."""

import sys
from dataclasses import replace
from pathlib import Path

import cv2
import pytest

from audits import audit
from featveil.audit.frontier import (
    HEIGHT,
    LOOKS,
    WIDTH,
    Mark,
    draw_frontier,
    draw_panel,
    frontier_points,
    look,
    number_schemes,
    staircase,
)
from featveil.audit.rows import AuditRow, Spread, summarize_audit
from featveil.core import InputError, MissingExtraError


@pytest.fixture(scope="module")
def rows() -> list[AuditRow]:
    return summarize_audit(audit(datasets=("town",)))


def at(row: AuditRow, scheme: str, leakage: float, utility: float) -> AuditRow:
    """The same row, elsewhere in the figure."""
    assert row.best is not None
    best = replace(row.best, below_near=Spread(leakage, leakage, leakage))
    return replace(row, scheme=scheme, best=best, utility_one=Spread(utility, utility, utility))


def test_optimal_is_what_no_other_beats_in_both(rows: list[AuditRow]) -> None:
    measured = [
        at(rows[2], "best", 0.1, 0.5),
        at(rows[2], "twin", 0.1, 0.5),
        at(rows[2], "same leakage, keeps less", 0.1, 0.4),
        at(rows[2], "keeps as much, leaks more", 0.2, 0.5),
        at(rows[2], "more of both", 0.9, 0.8),
        at(rows[2], "beaten in both", 0.95, 0.3),
    ]
    points = frontier_points(measured, "one")
    assert [point.row.scheme for point in points if point.optimal] == ["best", "twin", "more of both"]
    assert staircase(points) == [(10, 0), (10, 50), (90, 50), (90, 80), (100, 80)]


def test_what_was_not_measured_is_not_drawn(rows: list[AuditRow]) -> None:
    partly = [replace(rows[2], utility_one=None), replace(rows[3], best=None), rows[4]]
    assert [point.row.scheme for point in frontier_points(partly, "one")] == [rows[4].scheme]
    assert len(frontier_points(partly, "both")) == 2
    assert staircase([]) == []
    assert draw_panel(partly[1:2], "one", number_schemes(rows)).text == "no result yet"


def test_every_family_has_a_shape_and_a_colour_of_its_own() -> None:
    assert (
        len({colour for colour, _ in LOOKS.values()}) == len({corners for _, corners in LOOKS.values()}) == len(LOOKS)
    )
    assert look("something new") not in LOOKS.values()
    assert len({Mark.of(defense, True).path for defense in [*LOOKS, "new"]}) == len(LOOKS) + 1
    assert Mark.of("new", True).family == "other" and Mark.of("lifting", True).family == "lifting"


def test_a_panel_shows_every_scheme_and_says_it_in_words(rows: list[AuditRow]) -> None:
    numbers = number_schemes(rows)
    panel = draw_panel(rows, "one", numbers)
    assert sorted(mark.text.split(":")[0] for mark in panel.marks) == sorted(numbers)
    assert all(mark.text in panel.text for mark in panel.marks)
    labels = [text.words for text in panel.texts if text.kind in ("name", "number")]
    assert sorted(int(label.split()[0]) for label in labels) == list(numbers.values())
    assert "1 identity" in labels
    assert any("chance" in text.words for text in panel.texts)
    assert all(0 <= mark.x <= WIDTH and 0 <= mark.y <= HEIGHT for mark in panel.marks)
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for line in panel.lines for x, y in line.corners)


def test_left_leaks_less_and_up_keeps_more(rows: list[AuditRow]) -> None:
    panel = draw_panel(
        [at(rows[2], "weak", 0.9, 0.8), at(rows[2], "strong", 0.1, 0.5)], "one", {"weak": 1, "strong": 2}
    )
    marks = {mark.text.split(":")[0]: mark for mark in panel.marks}
    assert marks["strong"].x < marks["weak"].x and marks["strong"].y > marks["weak"].y


def test_schemes_that_keep_more_than_raw_have_room(rows: list[AuditRow]) -> None:
    (mark,) = draw_panel([at(rows[2], "high", 0.5, 1.31)], "one", {"high": 1}).marks
    assert mark.y > 12


def test_ranges_are_drawn_for_several_seeds_only(rows: list[AuditRow]) -> None:
    numbers = number_schemes(rows)
    one_seed = summarize_audit(audit(("town",), (0,), 1))
    assert any(line.kind == "range" for line in draw_panel(rows, "one", numbers).lines)
    assert not any(line.kind == "range" for line in draw_panel(one_seed, "one", numbers).lines)


def test_the_picture_is_a_png_that_shows_something(rows: list[AuditRow], tmp_path: Path) -> None:
    path = tmp_path / "frontier.png"
    draw_frontier(rows, path, "An audit")
    image = cv2.imread(str(path))
    assert image is not None and image.shape[1] > 1000 and image.std() > 10
    draw_frontier([*rows, *(replace(row, dataset="woods") for row in rows)], path)
    higher = cv2.imread(str(path))
    assert higher is not None and higher.shape[0] > 1.6 * image.shape[0]


def test_nothing_to_draw_and_no_matplotlib_are_refused(
    rows: list[AuditRow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "frontier.png"
    with pytest.raises(InputError, match="no result"):
        draw_frontier([], path)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match="plots"):
        draw_frontier(rows, path)
    assert not path.exists()
