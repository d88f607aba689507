"""Tables of matching records."""

from dataclasses import replace

import pytest

from featveil.core import InputError
from featveil.core.records import Parameter, Record
from featveil.lab.matching_report import matching_cells, matching_markdown, summarize_matching

_RAMP = tuple(step / 10 for step in range(1, 11))


def record(strategy: str, dimension: int, distance: str, image: int = 2, value: object = _RAMP) -> Record:
    """A record such as the task writes."""
    parameters: dict[str, Parameter] = {
        "strategy": strategy,
        "dimension": dimension,
        "distance": distance,
        "image": image,
    }
    return Record(
        "matching",
        "drawn",
        f"{strategy}-{dimension}",
        "accuracy",
        value,  # type: ignore[arg-type]
        "share",
        100 * image,
        0,
        {},
        parameters={**parameters, "kind": "sift", "max_features": 9},
    )


RECORDS = [
    record("random", 16, "subspace-to-subspace"),
    record("random", 2, "subspace-to-subspace"),
    record("random", 2, "point-to-subspace"),
    record("random", 2, "point-to-subspace", 4, (0.0,) * 10),
    record("raw", 0, "point-to-point"),
]


def test_rows_are_means_over_pairs_with_raw_first() -> None:
    rows = summarize_matching(RECORDS)
    assert [(row.strategy, row.dimension, row.distance) for row in rows] == [
        ("raw", 0, "point-to-point"),
        ("random", 2, "point-to-subspace"),
        ("random", 16, "subspace-to-subspace"),
        ("random", 2, "subspace-to-subspace"),
    ]
    assert (rows[1].pairs, rows[1].matches) == (2, 300)
    assert rows[1].at(10) == 0.5
    assert rows[1].right == pytest.approx((200 * 0.3 + 400 * 0) / 2)  # of pairs, not of the mean accuracy
    assert rows[0].at(3) == 0.3


def test_cells_are_percent() -> None:
    headings, cells = matching_cells(summarize_matching(RECORDS[:1]))
    assert headings[3:7] == ["MMA@1", "MMA@3", "MMA@5", "MMA@10"]
    assert cells[0] == ("random", "16", "subspace-to-subspace", "10.0", "30.0", "50.0", "100.0", "200", "60", "1")


def test_markdown_has_a_line_a_scheme_and_parts_by_change() -> None:
    plain = matching_markdown(RECORDS)
    assert plain.count("\n| ") == 2 + 4
    assert "illumination" not in plain
    light = replace(RECORDS[0], parameters={**RECORDS[0].parameters, "change": "illumination"})
    assert "change in illumination" in matching_markdown([light, *RECORDS])
    assert summarize_matching([light, *RECORDS], "illumination")[0].pairs == 1


def test_records_of_something_else() -> None:
    for wrong in (
        replace(RECORDS[0], task="faces"),
        replace(RECORDS[0], value=1.0),
        replace(RECORDS[0], parameters={}),
    ):
        with pytest.raises(InputError, match="not one of image matching"):
            summarize_matching([wrong])
    with pytest.raises(InputError, match="no record"):
        matching_markdown([])
