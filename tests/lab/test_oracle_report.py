"""Table and figure of the oracle attack."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from drawings import drawing
from featveil.core import InputError, MissingExtraError
from featveil.core.records import Parameter, Record, Value
from featveil.lab.oracle_report import draw_oracle, oracle_cells, oracle_markdown, summarize_oracle


def record(guess: str, value: Value, image: str = "a.png", count: int = 100, kind: str = "sift") -> Record:
    """A record such as the task writes."""
    parameters: dict[str, Parameter] = {"kind": kind, "guess": guess, "image": image, "neighbours": [1, 2, 1500]}
    parameters |= {"strategy": "sub-hybrid", "dimension": 2, "own_size": 1500, "max_features": 300}
    attack = "chance" if guess == "chance" else "oracle"
    return Record("oracle", "holidays", "sub-hybrid-2", "mean", value, "", count, 0, {}, attack, parameters)


RECORDS = [
    record("plain", (0.9, 0.8, 0.5)),
    record("projected", (0.8, 0.6, 0.2)),
    record("chance", 1.0),
    record("plain", (0.7, 0.6, 0.5), "b.png", 300),
    record("projected", (0.6, 0.6, 0.2), "b.png", 300),
    record("chance", 1.2, "b.png", 300),
    record("plain", (0.5, 0.4, 0.3), kind="rootsift"),
    record("projected", (0.5, 0.3, 0.1), kind="rootsift"),
    record("chance", 0.8, kind="rootsift"),
]


def test_means_are_of_features_not_of_photographs() -> None:
    rows = summarize_oracle(RECORDS)
    assert [(row.kind, row.neighbours) for row in rows] == [
        *(("sift", 1), ("sift", 2), ("sift", 1500)),
        *(("rootsift", 1), ("rootsift", 2), ("rootsift", 1500)),
    ]
    assert (rows[0].plain, rows[0].projected, rows[0].chance) == pytest.approx((0.75, 0.65, 1.15))
    assert (rows[0].features, rows[0].images) == (400, 2)
    assert (rows[5].plain, rows[5].projected, rows[5].chance, rows[5].features) == pytest.approx((0.3, 0.1, 0.8, 100))


def test_kinds_stand_beside_each_other_and_chance_below() -> None:
    headings, cells = oracle_cells(summarize_oracle(RECORDS))
    assert headings == ["K", "sift plain", "sift projected", "rootsift plain", "rootsift projected"]
    assert cells[0] == ("1", "0.750", "0.650", "0.500", "0.500")
    assert cells[2] == ("1,500", "0.500", "0.200", "0.300", "0.100")
    assert cells[3] == ("chance", "1.150", "", "0.800", "")
    other = [
        replace(one, parameters={**one.parameters, "neighbours": [1, 2, 900]})
        for one in RECORDS
        if one.parameters["kind"] == "rootsift"
    ]
    cells = oracle_cells(summarize_oracle([*RECORDS[:6], *other]))[1]
    assert cells[2:4] == [("900", "", "", "0.300", "0.100"), ("1,500", "0.500", "0.200", "", "")]


def test_markdown_says_that_no_adversary_has_the_oracle() -> None:
    text = oracle_markdown(RECORDS)
    assert "No adversary has the oracle" in text
    assert "2 photographs, 400 features (at most 300 each), lifted to subspaces of dimension 2" in text
    assert "1,500 descriptors of other photographs" in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 4
    assert {line.count("|") for line in table} == {6}


def test_records_of_something_else() -> None:
    one = RECORDS[0]
    for wrong in (
        replace(one, task="attacks"),
        replace(one, parameters={}),
        replace(one, parameters={**one.parameters, "guess": "best"}),
    ):
        with pytest.raises(InputError, match="not one of the oracle attack"):
            summarize_oracle([wrong])
    for damaged in (replace(one, value=1.0), replace(one, value=(1.0,)), replace(RECORDS[2], value=(1.0, 1.0, 1.0))):
        with pytest.raises(InputError, match="damaged"):
            summarize_oracle([damaged])
    with pytest.raises(InputError, match="lack a part"):
        summarize_oracle(RECORDS[:5])
    with pytest.raises(InputError, match="different sizes"):
        changed = replace(RECORDS[3], parameters={**RECORDS[3].parameters, "neighbours": [1, 2, 9]})
        summarize_oracle([*RECORDS[:3], changed, *RECORDS[4:6]])
    with pytest.raises(InputError, match="no record"):
        oracle_markdown([])


@pytest.mark.parametrize("records", [RECORDS, RECORDS[:3]])
def test_a_picture_is_written(tmp_path: Path, records: list[Record]) -> None:
    pytest.importorskip("matplotlib")
    draw_oracle(summarize_oracle(records), tmp_path / "curve.png", "a title")
    assert drawing(tmp_path / "curve.png", coloured=len(records) > 2).any()
    assert [path.name for path in tmp_path.iterdir()] == ["curve.png"]


def test_nothing_to_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(InputError, match="no result"):
        draw_oracle([], tmp_path / "curve.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match="plots"):
        draw_oracle(summarize_oracle(RECORDS), tmp_path / "curve.png")
    assert not list(tmp_path.iterdir())
