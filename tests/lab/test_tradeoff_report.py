"""Table and figure of the subset and the metric mechanism."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from drawings import drawing
from featveil.core import InputError, MissingExtraError
from featveil.core.records import Parameter, Record
from featveil.lab.tradeoff_report import draw_tradeoff, summarize_tradeoff, tradeoff_cells, tradeoff_markdown

METRIC = "candidates, right candidates, inliers, right inliers, corner error, correct"
METRIC += ", contains, guess distance, nearest distance"


def record(
    mechanism: str, epsilon: float | None = None, k: int | None = None, success: float = 1.0, **changed: object
) -> Record:
    """A record such as the task writes; `changed` are right inliers, guess distance or other parameters."""
    right, guess = float(str(changed.pop("right", 40))), float(str(changed.pop("guess", 0.5)))
    value = (100.0, 50.0, 45.0, right, 1.5, float(right > 10), 0.25, guess, guess / 2)
    parameters: dict[str, Parameter] = {"rule": "nearest", "features": [500, 1000]}
    parameters |= {"mechanism": mechanism, "epsilon": epsilon, "success": success, "kind": "sift"}
    parameters |= {"max_features": 9, "iterations": 10_000, "pixels": 5.0}
    if k is not None:
        parameters |= {"subset_size": k, "codebook": "0123", "codebook_size": 4096}
    name = "-".join(str(part) for part in (mechanism, epsilon, k) if part is not None)
    parameters |= changed  # type: ignore[arg-type]
    return Record("tradeoff", "drawn", name, METRIC, value, "count", 100, 0, {}, parameters=parameters)


RECORDS = [
    record("chance", 1e-9, 4, 2e-4, right=0, guess=0.98),
    record("subset", 6.0, 4, 0.02, right=5, guess=0.95),
    record("metric", 38.444, 4, 0.02, right=30, guess=0.9),
    record("metric", 84.2, 4, 0.2, rule="vocabulary", right=20),
    record("metric", 84.2, 4, 0.2, rule="vocabulary", right=0, features=[500, 3000], guess=0.7),
    record("metric", 84.2, 4, 0.2),
    record("metric", 84.2, 4, 0.2, features=[500, 3000], guess=0.7),
    record("subset", 10.0, 4, 0.2, guess=0.8),
    record("quantised", k=1),
    record("raw", guess=0),
]


def test_mechanisms_of_equal_success_stand_together() -> None:
    rows = summarize_tradeoff(RECORDS)
    assert [(row.mechanism, row.subset_size, row.success) for row in rows] == [
        ("raw", None, 1),
        ("quantised", 1, 1),
        ("subset", 4, 0.2),
        ("metric", 4, 0.2),
        ("subset", 4, 0.02),
        ("metric", 4, 0.02),
        ("chance", 4, 2e-4),
    ]


def test_utility_is_a_mean_of_pairs_and_leakage_one_of_descriptors() -> None:
    row = summarize_tradeoff(RECORDS)[3]
    assert (row.right_inliers_vocabulary, row.right_inliers_nearest, row.right_inliers) == (10, 40, 40)
    assert (row.correct_vocabulary, row.correct_nearest, row.pairs) == (0.5, 1, 2)
    assert (row.features, row.epsilon, row.image_epsilon) == (2000, 84.2, 168_400)
    assert (row.guess_distance, row.nearest_distance) == pytest.approx((0.65, 0.325))
    raw = summarize_tradeoff(RECORDS)[0]
    assert (raw.right_inliers_vocabulary, raw.correct_vocabulary, raw.right_inliers) == (None, None, 40)


def test_cells_have_both_epsilons_and_their_unit() -> None:
    headings, cells = tradeoff_cells(summarize_tradeoff(RECORDS))
    assert headings[3:5] == ["epsilon", "epsilon an image"]
    assert cells[0] == ("", "1.000", "raw", "inf", "inf", "0.250", "0.000", "0.000", "-", "40", "-", "100", "1")
    assert cells[2][:5] == ("4", "0.200", "subset", "10", "10,000")
    assert cells[3][2:] == (
        *("metric", "84.2 per unit", "168,400 per unit", "0.250", "0.650", "0.325"),
        *("10", "40", "50", "100", "2"),
    )
    assert cells[5][3] == "38.44 per unit"
    assert cells[6][1:5] == ("2e-04", "chance", "1e-09", "1e-06")


def test_markdown_says_what_equal_success_is_not() -> None:
    text = tradeoff_markdown(RECORDS)
    assert "Equal success in naming the word is not equal leakage" in text
    assert "Codebook of 4,096 words, digest 0123." in text
    assert "10,000 iterations at 5 px" in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 7
    assert {line.count("|") for line in table} == {14}
    assert "digest" not in tradeoff_markdown(RECORDS[-1:])


def test_records_of_something_else() -> None:
    one = RECORDS[0]
    for wrong in (
        replace(one, task="words"),
        replace(one, metric="accuracy"),
        replace(one, parameters={}),
        replace(one, parameters={**one.parameters, "mechanism": "naive"}),
    ):
        with pytest.raises(InputError, match="not one of this comparison"):
            summarize_tradeoff([wrong])
    for damaged in (
        replace(one, value=1.0),
        replace(one, value=(1.0,)),
        replace(one, parameters={**one.parameters, "features": 3}),
    ):
        with pytest.raises(InputError, match="damaged"):
            summarize_tradeoff([damaged])
    with pytest.raises(InputError, match="two codebooks"):
        summarize_tradeoff([one, replace(RECORDS[1], parameters={**RECORDS[1].parameters, "codebook": "4567"})])
    with pytest.raises(InputError, match="nothing to compare"):
        summarize_tradeoff([replace(one, parameters={**one.parameters, "features": [0, 0]})])
    with pytest.raises(InputError, match="no record"):
        tradeoff_markdown([])


@pytest.mark.parametrize("records", [RECORDS, RECORDS[:1], RECORDS[7:8], RECORDS[-1:]])
def test_a_picture_is_written(tmp_path: Path, records: list[Record]) -> None:
    pytest.importorskip("matplotlib")
    draw_tradeoff(summarize_tradeoff(records), tmp_path / "curve.png", "a title")
    assert drawing(tmp_path / "curve.png", coloured=len(records) > 2).any()
    assert [path.name for path in tmp_path.iterdir()] == ["curve.png"]


def test_nothing_to_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(InputError, match="no result"):
        draw_tradeoff([], tmp_path / "curve.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match="plots"):
        draw_tradeoff(summarize_tradeoff(RECORDS), tmp_path / "curve.png")
    assert not list(tmp_path.iterdir())
