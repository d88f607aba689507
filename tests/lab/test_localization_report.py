"""Tables and the figure of localization."""

import sys
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from drawings import drawing
from featveil.core import InputError, MissingExtraError
from featveil.core.records import Parameter, Record
from featveil.lab.localization_curves import draw_localization
from featveil.lab.localization_report import (
    THRESHOLDS,
    localization_cells,
    localization_markdown,
    summarize_localization,
    threshold_label,
)

METRIC = "rotation and centre error"
Method = tuple[str, str, str, int]
RAW: Method = ("raw", "raw", "point-to-point", 10_000)
LIFTED: Method = ("sub-hybrid-4", "private", "subspace-to-subspace", 10_000)
WORDS: Method = ("subset-10-2", "raw", "vocabulary", 10_000)
MORE: Method = ("subset-10-2", "raw", "vocabulary", 1_000_000)


def record(scene: str, query: str, method: Method, value: tuple[float, ...], inliers: int, **more: Parameter) -> Record:
    """A record such as the task writes; `value` is () where the query was not localized."""
    scheme, map_kind, distance, iterations = method
    parameters: dict[str, Parameter] = {"query": query, "map": map_kind, "distance": distance, "iterations": iterations}
    parameters |= {"candidates": 900, "kind": "sift", "max_features": 2000, "seconds": 0.4}
    if not value:
        parameters["reason"] = "too few matches"
    if scheme.startswith("subset"):
        parameters |= {"epsilon": 10.0, "image_epsilon": 20_000.0}
    return Record("localization", scene, scheme, METRIC, value, "", inliers, 0, {}, parameters=parameters | more)


RECORDS = [
    record("castle", "0.jpg", WORDS, (0.05, 0.005), 20),
    record("castle", "0.jpg", RAW, (0.05, 0.004), 400),
    record("castle", "0.jpg", MORE, (0.3, 0.04), 30),
    record("castle", "1.jpg", WORDS, (), 3, image_epsilon=10_000.0),
    record("castle", "1.jpg", RAW, (0.15, 0.008), 300),
    record("castle", "1.jpg", MORE, (4.0, 0.2), 25),
    record("fountain", "0.jpg", RAW, (0.01, 0.3), 100),
    record("fountain", "0.jpg", LIFTED, (90.0, 40.0), 12),
    record("fountain", "0.jpg", WORDS, (), 0),
]


def test_rows_are_scene_by_scene_then_all_together() -> None:
    found = [(row.scene, row.scheme, row.iterations, row.queries) for row in summarize_localization(RECORDS)]
    assert found == [
        ("castle", "raw", 10_000, 2),
        ("castle", "subset-10-2", 10_000, 2),
        ("castle", "subset-10-2", 1_000_000, 2),
        ("fountain", "raw", 10_000, 1),
        ("fountain", "sub-hybrid-4", 10_000, 1),
        ("fountain", "subset-10-2", 10_000, 1),
        ("all scenes", "raw", 10_000, 3),
        ("all scenes", "subset-10-2", 10_000, 3),
        ("all scenes", "subset-10-2", 1_000_000, 2),
        ("all scenes", "sub-hybrid-4", 10_000, 1),
    ]
    assert {row.scene for row in summarize_localization(RECORDS[:6])} == {"castle"}


def test_a_query_is_within_a_threshold_by_both_errors_or_not_at_all() -> None:
    rows = summarize_localization(RECORDS)
    by_hand = {0.01: 1 / 3, 0.02: 2 / 3, 0.05: 2 / 3, 0.25: 2 / 3, 0.5: 1.0, 5.0: 1.0}
    raw = next(row for row in rows if (row.scene, row.scheme) == ("all scenes", "raw"))
    assert {threshold: raw.within(threshold) for threshold in THRESHOLDS} == {
        threshold: by_hand[threshold[0]] for threshold in THRESHOLDS
    }
    lost = next(row for row in rows if (row.scene, row.scheme) == ("fountain", "sub-hybrid-4"))
    assert lost.localized == 1 and set(lost.shares) == {0.0}


def test_medians_count_queries_that_were_not_localized() -> None:
    raw, words, more = summarize_localization(RECORDS[:6])
    assert (raw.rotation_error, raw.centre_error, raw.inliers) == pytest.approx((0.1, 0.006, 350))
    assert (words.rotation_error, words.centre_error) == (inf, inf)
    assert (words.localized, words.queries, words.inliers, words.shares[0]) == (1, 2, 11.5, 0.5)
    assert more.localized == 2 and more.centre_error == pytest.approx(0.12)
    assert (words.epsilon, words.image_epsilon) == (10, 15_000)
    mostly = [replace(RECORDS[0], parameters={**RECORDS[0].parameters, "query": name}) for name in "abc"]
    assert summarize_localization([*mostly, RECORDS[3], RECORDS[8]])[0].centre_error == 0.005


def test_cells() -> None:
    headings, cells = localization_cells(summarize_localization(RECORDS[:6]))
    assert headings[:3] == ["scheme", "epsilon", "epsilon an image"]
    assert headings[8:14] == [
        "1 cm, 0.1 deg",
        "2 cm, 0.2 deg",
        "5 cm, 0.5 deg",
        "25 cm, 2 deg",
        "50 cm, 5 deg",
        "5 m, 10 deg",
    ]
    assert cells[0][:8] == ("raw", "-", "-", "raw", "point-to-point", "10,000", "2", "2")
    assert cells[0][8:] == ("50", "100", "100", "100", "100", "100", "0.100", "0.60", "350")
    assert cells[1][:3] == ("subset-10-2", "10", "15,000") and cells[1][-3:-1] == ("-", "-")
    headings, cells = localization_cells(summarize_localization(RECORDS))
    assert headings[0] == "scene" and {row[0] for row in cells} == {"castle", "fountain", "all scenes"}
    assert {len(row) for row in cells} == {len(headings)}
    assert threshold_label((5.0, 10.0)) == "5 m, 10 deg"


def test_markdown_explains_and_has_a_table_a_scene() -> None:
    text = localization_markdown(RECORDS)
    places = [text.index(part) for part in ("# Localization", "- epsilon", "## castle", "## fountain", "## All scenes")]
    assert places == sorted(places) and places[0] == 0
    assert text.count("| scheme |") == 3 and "at most 2000 features" in text
    assert "All scenes" not in localization_markdown(RECORDS[:6])
    with pytest.raises(InputError, match="no record"):
        localization_markdown([])


def test_records_of_something_else() -> None:
    one = RECORDS[0]
    for wrong in (
        replace(one, task="mapping"),
        replace(one, metric="accuracy"),
        replace(one, value=1.0),
        replace(one, parameters={}),
    ):
        with pytest.raises(InputError, match="not one of localization"):
            summarize_localization([wrong])
    with pytest.raises(InputError, match="damaged"):
        summarize_localization([replace(one, value=(1.0, 2.0, 3.0))])
    with pytest.raises(InputError, match="that of the image too"):
        summarize_localization([replace(one, parameters={**one.parameters, "image_epsilon": None})])
    with pytest.raises(InputError, match="twice"):
        summarize_localization([one, one])
    assert summarize_localization([one, replace(one, seed=1)])[0].queries == 2


@pytest.mark.parametrize("records", [RECORDS, RECORDS[:1], RECORDS[3:4], RECORDS[6:8]])
def test_a_picture_is_written(tmp_path: Path, records: list[Record]) -> None:
    pytest.importorskip("matplotlib")
    draw_localization(summarize_localization(records), tmp_path / "bars.png", "a title")
    assert drawing(tmp_path / "bars.png", coloured=len(records) > 2).any()
    assert [path.name for path in tmp_path.iterdir()] == ["bars.png"]


def test_nothing_to_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(InputError, match="no result"):
        draw_localization([], tmp_path / "bars.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match="plots"):
        draw_localization(summarize_localization(RECORDS), tmp_path / "bars.png")
    assert not list(tmp_path.iterdir())
