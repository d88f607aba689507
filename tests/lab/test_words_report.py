"""Tables and the figure of word sets."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from drawings import drawing
from featveil.core import InputError, MissingExtraError
from featveil.core.records import Parameter, Record
from featveil.lab.word_curves import draw_words_curves
from featveil.lab.words_report import summarize_words, words_cells, words_markdown, words_tables

METRIC = "candidates, right candidates, inliers, right inliers, corner error, correct"
GOOD, BAD = (100.0, 50.0, 45.0, 40.0, 1.5, 1.0), (0.0, 0.0, 0.0, 0.0, 1e6, 0.0)


def record(
    mechanism: str, epsilon: float | None = None, k: int | None = None, book: str | None = None, **changed: object
) -> Record:
    """A record such as the task writes; `changed` are other parameters, or its value."""
    value = changed.pop("value", GOOD)
    parameters: dict[str, Parameter] = {"rule": "vocabulary" if k else "nearest", "features": [500, 1000]}
    parameters |= {"mechanism": mechanism, "epsilon": epsilon, "sent": 0.75, "kind": "sift", "max_features": 9}
    parameters |= {"iterations": 10_000, "pixels": 5.0}
    if k is not None:
        parameters |= {"subset_size": k, "codebook_name": book, "codebook": f"digest-of-{book}"}
    name = "-".join(str(part) for part in (mechanism, epsilon, k) if part is not None)
    return Record(
        "words",
        "drawn",
        name,
        METRIC,
        value,  # type: ignore[arg-type]
        "count",
        100,
        0,
        {},
        parameters=parameters | changed,  # type: ignore[arg-type]
    )


RECORDS = [
    record("raw", sent=1.0),
    record("naive", 10.0, sent=1e-304, value=BAD),
    record("quantised", k=1, book="a (9)"),
    record("subset", 10.0, 2, "a (9)", rule="nearest"),
    record("subset", 10.0, 2, "a (9)"),
    record("subset", 10.0, 2, "a (9)", value=BAD, features=[500, 2000]),
    record("subset", 10.0, 4, "a (9)"),
    record("subset", 12.0, 4, "a (9)"),
    record("quantised", k=1, book="b (8)"),
    record("subset", 10.0, 2, "b (8)"),
]


def test_rows_are_means_over_pairs() -> None:
    row = next(row for row in summarize_words(RECORDS) if row.pairs == 2)
    assert (row.mechanism, row.codebook, row.rule, row.epsilon, row.subset_size) == (
        "subset",
        "a (9)",
        "vocabulary",
        10,
        2,
    )
    assert (row.features, row.image_epsilon) == (1500, 15_000)
    assert (row.candidates, row.inliers, row.right_inliers, row.correct) == (50, 22.5, 20, 0.5)
    assert row.right_share == 0.25  # the mean of the pairs, one of which has no candidates


def test_every_codebook_has_a_table_with_both_end_points() -> None:
    tables = words_tables(summarize_words(RECORDS))
    assert list(tables) == ["a (9)", "b (8)"]
    found = [(row.mechanism, row.epsilon, row.subset_size, row.rule) for row in tables["a (9)"]]
    assert found == [
        ("raw", None, None, "nearest"),
        ("naive", 10, None, "nearest"),
        ("quantised", None, 1, "vocabulary"),
        ("subset", 10, 2, "vocabulary"),
        ("subset", 10, 4, "vocabulary"),
        ("subset", 12, 4, "vocabulary"),
        ("subset", 10, 2, "nearest"),
    ]
    assert [row.mechanism for row in tables["b (8)"]] == ["raw", "naive", "quantised", "subset"]
    assert list(words_tables(summarize_words(RECORDS[:2]))) == [""]


def test_cells_have_both_epsilons() -> None:
    headings, cells = words_cells(summarize_words(RECORDS))
    assert headings[2:4] == ["epsilon", "epsilon an image"]
    assert cells[0] == ("raw", "nearest", "inf", "inf", "", "1.000", "100", "50.0", "45", "40", "100", "1")
    assert cells[1] == ("naive", "nearest", "10", "10,000", "", "1e-304", "0", "0.0", "0", "0", "0", "1")
    assert cells[3] == ("subset", "vocabulary", "10", "15,000", "2", "0.750", "50", "25.0", "22", "20", "50", "2")


def test_markdown_has_a_section_a_codebook() -> None:
    text = words_markdown(RECORDS)
    assert text.count("\n| raw | nearest | inf | inf |") == text.count("\n| naive |") == 2
    assert "## Codebook a (9), digest digest-of-a (9)" in text
    assert "10,000 iterations at 5 px" in text
    assert "Without a codebook" in words_markdown(RECORDS[:1])


def test_records_of_something_else() -> None:
    one = RECORDS[0]
    for wrong in (
        replace(one, task="matching"),
        replace(one, value=1.0),
        replace(one, metric="accuracy"),
        replace(one, parameters={}),
    ):
        with pytest.raises(InputError, match="not one of word sets"):
            summarize_words([wrong])
    for damaged in (replace(one, value=(1.0,)), replace(one, parameters={**one.parameters, "features": 3})):
        with pytest.raises(InputError, match="damaged"):
            summarize_words([damaged])
    with pytest.raises(InputError, match="no record"):
        words_markdown([])


@pytest.mark.parametrize("records", [RECORDS, RECORDS[:1], RECORDS[2:3], RECORDS[4:5]])
def test_a_picture_is_written(tmp_path: Path, records: list[Record]) -> None:
    pytest.importorskip("matplotlib")
    draw_words_curves(summarize_words(records), tmp_path / "curve.png", "a title")
    assert drawing(tmp_path / "curve.png", coloured=len(records) > 2).any()
    assert [path.name for path in tmp_path.iterdir()] == ["curve.png"]


def test_nothing_to_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(InputError, match="no result"):
        draw_words_curves([], tmp_path / "curve.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match="plots"):
        draw_words_curves(summarize_words(RECORDS), tmp_path / "curve.png")
    assert not list(tmp_path.iterdir())
