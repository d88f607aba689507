"""Tables and figure of what the database and clustering attacks take for granted."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from drawings import drawing
from featveil.core import InputError, MissingExtraError
from featveil.core.records import Parameter, Record
from featveil.lab.assumptions_report import (
    assumptions_markdown,
    collision_cells,
    draw_assumptions,
    member_cells,
    summarize_assumptions,
)


def record(study: str, variant: str, m: int, value: tuple[float, ...], count: int = 100, image: str = "a") -> Record:
    """A record such as the task writes."""
    parameters: dict[str, Parameter] = {"study": study, "variant": variant, "image": image, "dimension": m}
    parameters |= {"strategy": "sub-hybrid", "database": "0123", "database_size": 16_384, "kind": "sift"}
    parameters |= {"max_features": 300} | ({"neighbours": [50, 5]} if study == "members" else {})
    return Record("assumptions", "holidays", f"sub-hybrid-{m}", "", value, "", count, 0, {}, parameters=parameters)


RECORDS = [
    record("members", "without members", 16, (0.5, 0.7)),
    record("members", "with members", 16, (0.6, 1.0)),
    record("members", "with members", 2, (0.9, 1.0)),
    record("members", "with members", 2, (0.5, 1.0), 300, "b"),
    record("collisions", "other images", 16, (0, 0, 0, 0, 1, 1, 0)),
    record("collisions", "same image", 16, (0.9, 0.2, 0.6, 0.1, 1, 0.8, 7)),
    record("collisions", "same image", 2, (0.5, 0.5, 0.5, 0.5, 1, 1, 1.0)),
    record("collisions", "same image", 2, (0.1, 0.1, 0.1, 0.1, 1, 0.8, 3.0), 300, "b"),
]


def test_means_are_of_features_and_rows_in_order() -> None:
    members, collisions = summarize_assumptions(RECORDS)
    assert [(row.dimension, row.variant, row.neighbours) for row in members] == [
        *((2, "with members", 50), (2, "with members", 5)),
        *((16, "with members", 50), (16, "with members", 5)),
        *((16, "without members", 50), (16, "without members", 5)),
    ]
    assert (members[0].success, members[0].features) == pytest.approx((0.6, 400))
    assert members[0].theirs is None
    assert (members[4].success, members[4].theirs) == (0.5, 0.8727)
    assert [(row.dimension, row.variant) for row in collisions] == [
        *((2, "same image"), (16, "same image"), (16, "other images"))
    ]
    first, second, third = collisions
    assert (first.met, first.meeting, first.clear_by_05, first.features) == pytest.approx((0.2, 2.5, 0.85, 400))
    assert (second.all_found, second.no_collision, second.no_collision_if_found) == pytest.approx((0.2, 0.6, 0.5))
    assert (third.no_collision_if_found, third.theirs) == (None, 0.7303)


def test_the_papers_numbers_stand_beside_ours() -> None:
    members, collisions = summarize_assumptions(RECORDS)
    headings, cells = member_cells(members)
    assert headings == ["m", "neighbours", "N = 50", "N = 5"]
    assert cells == [
        ("2", "with members", "60.0", "100.0"),
        ("16", "paper", "87.3", "94.4"),
        ("16", "with members", "60.0", "100.0"),
        ("16", "without members", "50.0", "70.0"),
    ]
    headings, cells = collision_cells(collisions)
    assert headings[-1] == "paper"
    assert cells[1] == ("16", "same image", "7.00", "90.0", "20.0", "60.0", "50.0", "100.0", "80.0", "73.0")
    assert cells[2][6] == ""
    assert {len(line) for line in cells} == {len(headings)}


def test_markdown_says_what_the_paper_leaves_open() -> None:
    text = assumptions_markdown(RECORDS)
    assert "2 photographs, 400 features (sift, at most 300 each), sub-hybrid lifting" in text
    assert "a database of 16,384 entries, digest 0123" in text
    assert "The paper does not say which it counts" in text
    assert "does not define a collision" in text
    tables = [line.count("|") for line in text.splitlines() if line.startswith("|")]
    assert tables == [5] * 6 + [11] * 5
    with pytest.raises(InputError, match="no record"):
        assumptions_markdown([])


def test_records_of_something_else() -> None:
    one = RECORDS[0]
    for wrong in (
        replace(one, task="oracle"),
        replace(one, parameters={}),
        replace(one, parameters={**one.parameters, "variant": "same image"}),
        replace(one, parameters={**one.parameters, "study": "guesses"}),
    ):
        with pytest.raises(InputError, match="not one of these studies"):
            summarize_assumptions([wrong])
    for damaged in (
        replace(one, value=1.0),
        replace(one, value=(1.0,)),
        replace(one, parameters={**one.parameters, "neighbours": 50}),
        replace(RECORDS[-1], value=(1.0, 1.0)),
    ):
        with pytest.raises(InputError, match="damaged"):
            summarize_assumptions([damaged])


@pytest.mark.parametrize("records", [RECORDS, [*RECORDS[2:4], *RECORDS[6:]], [RECORDS[0], RECORDS[4]]])
def test_a_picture_is_written(tmp_path: Path, records: list[Record]) -> None:
    pytest.importorskip("matplotlib")
    draw_assumptions(*summarize_assumptions(records), tmp_path / "curve.png", "a title")
    assert drawing(tmp_path / "curve.png", coloured=len(records) > 2).any()
    assert [path.name for path in tmp_path.iterdir()] == ["curve.png"]


def test_nothing_to_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(InputError, match="no result"):
        draw_assumptions([], [], tmp_path / "curve.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match="plots"):
        draw_assumptions(*summarize_assumptions(RECORDS), tmp_path / "curve.png")
    assert not list(tmp_path.iterdir())
