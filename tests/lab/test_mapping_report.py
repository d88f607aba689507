"""Tables and the figure of maps."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from drawings import drawing
from featveil.core import InputError, MissingExtraError
from featveil.core.records import Parameter, Record
from featveil.lab.mapping_curves import draw_mapping, scheme_label
from featveil.lab.mapping_report import mapping_cells, mapping_markdown, summarize_mapping

METRIC = "registered images, points, track length, reprojection error"


def record(
    scene: str, scheme: str, value: tuple[float, ...] = (11, 9652, 4.517, 0.564), /, **more: Parameter
) -> Record:
    """A record such as the task writes; `more` are other parameters."""
    parameters: dict[str, Parameter] = {"pairs": 55, "matches": 20_000, "kind": "sift", "max_features": 8192}
    return Record("mapping", scene, scheme, METRIC, value, "count", 11, 0, {}, parameters=parameters | more)


TRUTH: dict[str, Parameter] = {
    "rotation_errors": [0.1, 6.0, 0.2, 0.3, 0.3],
    "centre_errors": [0.01, 0.02, 0.03, 2.0, 0.02],
}
RECORDS = [
    record("fountain", "subset-10-16", epsilon=10.0, image_epsilon=80_120.0, **TRUTH),
    record("fountain", "raw", epsilon=None, rotation_errors=[0.5], centre_errors=[0.004]),
    record("fountain", "sub-hybrid-2", (2, 40, 2.0, 0.5)),
    record("church", "sub-hybrid-2", (0, 0, 0, 0), pairs=0),
    record("church", "raw"),
]


def test_rows_are_scene_by_scene_with_raw_first() -> None:
    found = [(row.scene, row.scheme) for row in summarize_mapping(RECORDS)]
    assert found == [
        ("fountain", "raw"),
        ("fountain", "subset-10-16"),
        ("fountain", "sub-hybrid-2"),
        ("church", "raw"),
        ("church", "sub-hybrid-2"),
    ]


def test_camera_errors_are_medians_and_a_camera_is_wrong_by_either_of_them() -> None:
    row = summarize_mapping(RECORDS[:1])[0]
    assert (row.rotation_error, row.centre_error, row.wrong) == (0.3, 0.02, 2)
    at_the_limit = record("fountain", "raw", rotation_errors=[5.0], centre_errors=[1.0])
    assert summarize_mapping([at_the_limit])[0].wrong == 0
    assert summarize_mapping(RECORDS[4:])[0].wrong is None


def test_cells_have_both_epsilons_and_errors_in_degrees_and_centimetres() -> None:
    headings, cells = mapping_cells(summarize_mapping(RECORDS[:3]))
    assert headings[:3] == ["scheme", "epsilon", "epsilon an image"]
    assert headings[-3:] == ["rotation error (deg)", "centre error (cm)", "wrong cameras"]
    assert cells[0] == ("raw", "-", "-", "11 of 11", "9,652", "4.52", "0.56", "55", "0.500", "0.40", "0")
    assert cells[1][:4] == ("subset-10-16", "10", "80,120", "11 of 11")
    assert cells[1][-3:] == ("0.300", "2.00", "2")
    assert cells[2][3:] == ("2 of 11", "40", "2.00", "0.50", "55", "-", "-", "-")


def test_cells_without_truth_and_of_several_scenes() -> None:
    headings, cells = mapping_cells(summarize_mapping(RECORDS[3:]))
    assert "scene" not in headings and headings[-1] == "verified pairs"
    assert cells[1] == ("sub-hybrid-2", "-", "-", "0 of 11", "0", "-", "-", "0")
    headings, cells = mapping_cells(summarize_mapping(RECORDS))
    assert headings[0] == "scene" and [row[0] for row in cells].count("church") == 2
    assert {len(row) for row in cells} == {len(headings)}


def test_markdown_explains_and_has_a_table_a_scene() -> None:
    text = mapping_markdown(RECORDS)
    assert text.startswith("# Maps") and text.index("- epsilon") < text.index("## fountain") < text.index("## church")
    assert "at most 8192 features" in text
    assert text.count("| scheme |") == 2 and text.count("| wrong cameras |") == 1
    assert "\n| subset-10-16 | 10 | 80,120 | 11 of 11 | 9,652 |" in text
    with pytest.raises(InputError, match="no record"):
        mapping_markdown([])


@pytest.mark.parametrize("given", [{"epsilon": 10.0}, {"image_epsilon": 10.0}])
def test_an_epsilon_of_a_descriptor_alone_is_refused(given: dict[str, Parameter]) -> None:
    with pytest.raises(InputError, match="that of the image too"):
        summarize_mapping([record("a", "subset-10-4", **given)])
    assert scheme_label("subset-10-4", 80_120.4) == "subset-10-4 (80,120)"


def test_records_of_something_else() -> None:
    one = RECORDS[0]
    for wrong in (replace(one, task="words"), replace(one, metric="accuracy"), replace(one, parameters={})):
        with pytest.raises(InputError, match="not one of mapping"):
            summarize_mapping([wrong])
    for damaged in (replace(one, value=(1.0,)), replace(one, value=1.0), record("a", "raw", rotation_errors=[1.0])):
        with pytest.raises(InputError, match="damaged"):
            summarize_mapping([damaged])
    with pytest.raises(InputError, match="twice"):
        summarize_mapping([one, one])


@pytest.mark.parametrize("records", [RECORDS, RECORDS[3:4], RECORDS[:1], RECORDS[4:]])
def test_a_picture_is_written(tmp_path: Path, records: list[Record]) -> None:
    pytest.importorskip("matplotlib")
    draw_mapping(summarize_mapping(records), tmp_path / "bars.png", "a title")
    assert drawing(tmp_path / "bars.png", coloured=len(records) > 2).any()
    assert [path.name for path in tmp_path.iterdir()] == ["bars.png"]


def test_nothing_to_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(InputError, match="no result"):
        draw_mapping([], tmp_path / "bars.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match="plots"):
        draw_mapping(summarize_mapping(RECORDS), tmp_path / "bars.png")
    assert not list(tmp_path.iterdir())
