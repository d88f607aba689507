"""The privacy-utility frontier: which schemes are on it, where labels go, and both pictures."""

import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import cv2
import pytest

from audits import audit
from featveil.audit.frontier import LOOKS, draw_frontier, frontier_points, look, number_schemes, staircase
from featveil.audit.frontier_svg import frontier_svg, marker_svg
from featveil.audit.rows import AuditRow, Spread, summarize_audit
from featveil.core import InputError, MissingExtraError
from featveil.plotting.labels import Box, Labeller


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
    assert "no result yet" in frontier_svg(partly[1:2], "one", number_schemes(rows), "n")


def test_every_family_has_a_shape_and_a_colour_of_its_own() -> None:
    assert len({marker for marker, _ in LOOKS.values()}) == len({colour for _, colour in LOOKS.values()}) == len(LOOKS)
    assert look("something new") not in LOOKS.values()
    assert len({marker_svg(family, True) for family in [*LOOKS, "new"]}) == len(LOOKS) + 1
    assert marker_svg("lifting", True) != marker_svg("lifting", False)


def test_labels_avoid_points_and_each_other_and_stay_inside() -> None:
    area = Box(0, 0, 200, 200)
    points = [(40.0, 40.0), (60.0, 40.0), (198.0, 100.0), (100.0, 2.0), (100.0, 120.0)]
    labeller = Labeller(area, points, [Box(0, 150, 200, 2)])
    placed = [labeller.place(point, 30, 12) for point in points]
    assert all(one.shared(two) == 0 for one, two in combinations(placed, 2))
    assert all(box.shared(area) == pytest.approx(30 * 12) for box in placed)
    markers = [Box(x - 7, y - 7, 14, 14) for x, y in points]
    assert all(box.shared(marker) == 0 for box in placed for marker in markers)


def test_a_label_gives_way_to_one_that_was_placed_before() -> None:
    points = [(40.0, 40.0), (40.0, 56.0)]
    labeller = Labeller(Box(0, 0, 200, 200), points)
    first, second = (labeller.place(point, 30, 20) for point in points)
    assert first.left == second.left + 44 and first.shared(second) == 0  # right and left of their points


def test_a_label_is_not_put_behind_the_point_of_another() -> None:
    walls = [Box(0, 60, 200, 32), Box(0, 108, 200, 92), Box(0, 92, 92, 16)]  # free: right, and far above
    alone = Labeller(Box(0, 0, 200, 200), [(100.0, 100.0)], walls)
    assert alone.place((100.0, 100.0), 20, 10).top == 95
    beside = Labeller(Box(0, 0, 200, 200), [(100.0, 100.0), (114.0, 100.0)], walls)
    assert beside.place((100.0, 100.0), 20, 10).top < 60


def test_a_name_is_given_up_where_there_is_no_room() -> None:
    crowd = [(x * 12.0, y * 12.0) for x in range(10) for y in range(10)]
    labeller = Labeller(Box(0, 0, 108, 108), crowd)
    assert labeller.place_if_free(crowd[55], 60, 14) is None
    assert labeller.placed == []
    assert Labeller(Box(0, 0, 108, 108), crowd[:1]).place_if_free(crowd[0], 60, 14) is not None


def test_the_svg_shows_every_scheme_and_tells_it_in_words(rows: list[AuditRow]) -> None:
    numbers = number_schemes(rows)
    tree = ElementTree.fromstring(frontier_svg(rows, "one", numbers, "x"))
    assert tree.get("role") == "img" and tree.get("aria-labelledby") == "x-t x-d"
    titles = [mark.findtext("title") or "" for mark in tree.iter("g")]
    assert sorted(title.split(":")[0] for title in titles) == sorted(numbers)
    labels = [text.text or "" for text in tree.iter("text") if {"name", "number"} & {*str(text.get("class")).split()}]
    assert sorted(int(label.split()[0]) for label in labels) == list(numbers.values())
    assert "1 identity" in labels
    assert any("chance" in (text.text or "") for text in tree.iter("text"))
    for shape in tree.iter("path"):
        for x in str(shape.get("transform", "translate(0 0)"))[10:-1].split():
            assert 0 <= float(x) <= 440


def test_schemes_that_keep_more_than_raw_have_room(rows: list[AuditRow]) -> None:
    high = [at(rows[2], "high", 0.5, 1.31)]
    tree = ElementTree.fromstring(frontier_svg(high, "one", {"high": 1}, "x"))
    place = next(str(path.get("transform")) for path in tree.iter("path") if path.get("transform"))
    assert float(place[10:-1].split()[1]) > 12


def test_a_hostile_name_stays_text(rows: list[AuditRow]) -> None:
    evil = '</desc><script>alert("x")</script>'
    svg = frontier_svg(
        [replace(row, scheme=evil + row.scheme) for row in rows[:2]],
        "one",
        {evil + row.scheme: k for k, row in enumerate(rows)},
        "x",
    )
    assert "<script" not in svg


def test_ranges_are_drawn_for_several_seeds_only(rows: list[AuditRow]) -> None:
    numbers = number_schemes(rows)
    assert 'class="range"' in frontier_svg(rows, "one", numbers, "x")
    assert 'class="range"' not in frontier_svg(summarize_audit(audit(("town",), (0,), 1)), "one", numbers, "x")


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
