"""The table of patch descriptors."""

from dataclasses import replace

import pytest

from featveil.core import InputError
from featveil.core.records import Parameter, Record
from featveil.lab.patch_report import patch_cells, patch_markdown, summarize_patches


def record(kind: str, scheme: str, measure: str, level: str, value: float, dataset: str = "seqs") -> Record:
    parameters: dict[str, Parameter] = {"kind": kind, "measure": measure, "level": level}
    parameters |= {"max_patches": 500, "queries": 1000}
    return Record("patches", dataset, scheme, measure, value, "share", 10, 0, {}, parameters=parameters)


@pytest.fixture
def records() -> list[Record]:
    made = []
    for scheme, factor in (("chance", 0.1), ("raw", 1.0)):
        made.append(record("sift", scheme, "FPR@95", "", 0.02 / factor, "liberty"))
        for level, value in (("easy", 0.8), ("hard", 0.4)):
            for place, measure in enumerate(("verification intra", "verification inter", "matching", "retrieval")):
                made.append(record("sift", scheme, measure, level, factor * (value + 0.02 * place)))
    return made


def test_rows(records: list[Record]) -> None:
    raw, chance = summarize_patches(records)
    assert (raw.scheme, chance.scheme) == ("raw", "chance")
    assert raw.false_positives == {"liberty": 0.02}
    assert raw.precisions["verification easy"] == pytest.approx(0.81)
    assert raw.mean_of("verification") == pytest.approx(0.61)
    assert raw.mean_precision == pytest.approx((0.61 + 0.64 + 0.66) / 3)
    assert raw.mean_of("classification") is None


def test_the_table_has_every_number(records: list[Record]) -> None:
    headings, cells = patch_cells(summarize_patches(records))
    assert headings[:3] == ["descriptor", "scheme", "FPR@95 liberty"]
    assert headings[3:5] == ["verification easy", "verification hard"] and headings[-1] == "mean mAP"
    assert cells[0] == ("sift", "raw", "2.00", "81.00", "41.00", "84.00", "44.00", "86.00", "46.00", "63.67")
    text = patch_markdown(records)
    assert "| sift | raw | 2.00 | 81.00" in text and "seed 0" in text and "random vectors" in text
    assert max(len(line) for line in text.splitlines() if not line.startswith("|")) <= 120


def test_what_was_not_measured_is_a_dash(records: list[Record]) -> None:
    only = [record("rootsift", "raw", "FPR@95", "", 0.01, "liberty"), *records]
    headings, cells = patch_cells(summarize_patches(only))
    assert cells[0] == ("rootsift", "raw", "1.00", *["-"] * 7)
    headings, cells = patch_cells(summarize_patches(only[:1]))
    assert headings == ["descriptor", "scheme", "FPR@95 liberty"] and cells == [("rootsift", "raw", "1.00")]


def test_records_that_make_no_table(records: list[Record]) -> None:
    with pytest.raises(InputError, match="no record"):
        patch_markdown([])
    with pytest.raises(InputError, match="one measurement twice"):
        summarize_patches([*records, records[-1]])
    with pytest.raises(InputError, match="not one of patches"):
        summarize_patches([replace(records[0], task="matching")])
    with pytest.raises(InputError, match="two data sets"):
        summarize_patches([*records, record("sift", "raw", "matching", "easy", 0.5, "others")])
