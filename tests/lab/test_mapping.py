"""The task of mapping on the rendered room, whose cameras are known: raw, lifted and word features."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from featveil.core import InputError, MissingExtraError
from featveil.core.records import Parameter, Record, read_records
from featveil.databases import builtin
from featveil.datasets import MapScene, load_strecha
from featveil.geometry.models import empty_model, read_model
from featveil.lab import mapping
from featveil.lab.bench import headings_and_cells, silent
from featveil.lab.mapping import BENCH, MappingRow, Options, camera_errors, columns_of, draw, scheme_label, study
from featveil.lab.mapping import mapping as prepare
from featveil.lab.scene_studies import RAW, SceneReleases, Settings, lifted, quantised, subsets
from rooms import Room

SETTINGS = Settings(max_features=500)
BOOK = builtin("sift")
SCHEMES = [RAW, *lifted("sift", [2]), quantised(BOOK), *subsets(BOOK, [10], [2])]
NAMES = ["raw", "sub-hybrid-2", "quantised", "subset-10-2"]


@pytest.fixture(scope="module")
def scene(strecha_room: Path) -> MapScene:
    return load_strecha(strecha_room)[0]


def run(scene: MapScene, out: Path, settings: Settings = SETTINGS, schemes: Any = SCHEMES) -> list[Record]:
    return BENCH.resume(study([SceneReleases(scene, settings)], schemes, settings, out), out / "records.jsonl")


@pytest.fixture(scope="module")
def out(scene: MapScene, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one run; copy it before changing it."""
    folder = tmp_path_factory.mktemp("mapping")
    run(scene, folder)
    return folder


@pytest.fixture(scope="module")
def records(out: Path) -> dict[str, Record]:
    return {record.scheme: record for record in read_records(out / "records.jsonl")}


def value(record: Record) -> tuple[float, ...]:
    assert isinstance(record.value, tuple)
    return record.value


def test_schemes(strecha_room: Path, tmp_path: Path) -> None:
    assert [scheme.name for scheme in SCHEMES] == NAMES
    options = Options((strecha_room,), tmp_path, dimensions=(2, 4), subset_sizes=(4,), pool=strecha_room / "images")
    asked = [case.scheme for case in prepare(options, silent).cases()]
    hard = ["hardened-4-16", "hardened-4-16-apart"]
    assert asked == ["raw", "sub-hybrid-2", "sub-hybrid-4", *hard, "quantised", "subset-10-4"]
    with pytest.raises(InputError, match="--subset-sizes"):
        Options((strecha_room,), tmp_path, subset_sizes=())


def test_a_record_for_each_scheme(records: dict[str, Record]) -> None:
    assert list(records) == NAMES
    for record in records.values():
        assert (record.task, record.dataset, record.metric, record.count) == ("mapping", "room", BENCH.metric, 6)
        assert record.parameters["max_features"] == 500 and record.parameters["kind"] == "sift"
    assert (records["subset-10-2"].parameters["epsilon"], records["subset-10-2"].parameters["image_epsilon"]) == (
        10,
        5000,
    )
    assert "epsilon" not in records["raw"].parameters


def test_raw_and_lifted_features_map_the_room(records: dict[str, Record]) -> None:
    """Images are small, and there is no ratio test: measured 2.7 cm; test_whole_chain.py has larger ones."""
    for name in ("raw", "sub-hybrid-2"):
        images, points, track, error = value(records[name])
        assert images == 6 and points > 300 and track > 3 and error < 1
        errors = records[name].parameters["centre_errors"]
        assert isinstance(errors, list) and len(errors) == 6 and max(map(float, errors)) < 0.06
    assert value(records["raw"])[1] > value(records["subset-10-2"])[1]
    for record in records.values():
        pairs = record.parameters["pairs"]
        assert isinstance(pairs, int) and 0 <= pairs <= 15


def test_maps_stay_and_are_what_was_counted(out: Path, records: dict[str, Record]) -> None:
    model = read_model(out / "maps" / "room" / "sub-hybrid-2")
    assert (len(model.views), len(model.points)) == value(records["sub-hybrid-2"])[:2]


def test_nothing_is_measured_twice(
    scene: MapScene, out: Path, records: dict[str, Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*arguments: object, **options: object) -> None:
        raise AssertionError

    monkeypatch.setattr(mapping, "build", build)
    before = (out / "records.jsonl").read_bytes()
    assert run(scene, out) == list(records.values())
    assert [record.scheme for record in run(scene, out, schemes=SCHEMES[1:2])] == ["sub-hybrid-2"]
    assert (out / "records.jsonl").read_bytes() == before


def test_a_stopped_run_gives_the_same(
    scene: MapScene, tmp_path: Path, records: dict[str, Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the second scheme is mapped; its matches are there already when it goes on."""
    real, calls = mapping.build, []  # type: ignore[attr-defined]

    def build(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            options["report"] = stop
        return real(*arguments, **options)

    def stop(stage: str, done: int, total: int) -> None:
        if stage == "mapping":
            raise KeyboardInterrupt

    monkeypatch.setattr(mapping, "build", build)
    with pytest.raises(KeyboardInterrupt):
        run(scene, tmp_path, schemes=SCHEMES[:2])
    assert [record.scheme for record in read_records(tmp_path / "records.jsonl")] == ["raw"]
    assert run(scene, tmp_path, schemes=SCHEMES[:2]) == [records[name] for name in NAMES[:2]]


def test_other_settings_are_refused(scene: MapScene, out: Path) -> None:
    for other in (Settings(max_features=400), Settings(max_features=500, seed=1)):
        with pytest.raises(InputError, match="name another folder"):
            run(scene, out, other)


def test_other_features_do_not_mix_where_no_record_tells(scene: MapScene, tmp_path: Path) -> None:
    """A run that was stopped before its first record left matches behind that are of other features."""
    few = [RAW]
    run(scene, tmp_path, schemes=few)
    (tmp_path / "records.jsonl").unlink()
    with pytest.raises(InputError, match="has other keypoints"):
        run(scene, tmp_path, Settings(max_features=400), few)


def test_records_become_tables(records: dict[str, Record]) -> None:
    rows = BENCH.summarize(list(records.values()))
    assert [row.scheme for row in rows] == NAMES
    assert rows[0].wrong == 0 and rows[0].centre_error is not None and rows[0].centre_error < 0.01
    headings, cells = headings_and_cells(columns_of(rows), rows)
    assert {len(line) for line in cells} == {len(headings)} and headings[-1] == "wrong cameras"
    assert "\n| raw | - | - | 6 of 6 |" in BENCH.markdown(list(records.values()))


def test_photographs_without_truth(scene: MapScene, tmp_path: Path) -> None:
    """Cameras are guessed and refined, and there is nothing to compare them with."""
    bare = MapScene("photos", scene.images, {}, {})
    (record,) = run(bare, tmp_path, schemes=SCHEMES[:1])
    assert value(record)[0] == 6 and "centre_errors" not in record.parameters
    assert BENCH.summarize([record])[0].wrong is None


def test_camera_errors_of_too_few_cameras(scene: MapScene, room: Room) -> None:
    assert camera_errors(empty_model(), scene) == {}
    two = replace(room.map, views=dict(list(room.map.views.items())[:2]))
    assert camera_errors(two, scene) == {}
    found = camera_errors(room.map, replace(scene, poses=dict(list(scene.poses.items())[:4])))
    assert isinstance(found["rotation_errors"], list) and len(found["rotation_errors"]) == 4


METRIC = "registered images, points, track length, reprojection error"


def record(
    scene: str, scheme: str, value: tuple[float, ...] = (11, 9652, 4.517, 0.564), /, **more: Parameter
) -> Record:
    """A record such as the task writes; `more` are other parameters."""
    parameters: dict[str, Parameter] = {"pairs": 55, "matches": 20_000, "kind": "sift", "max_features": 8192}
    return Record("mapping", scene, scheme, METRIC, value, "count", 11, 0, {}, parameters=parameters | more)


def cells_of(rows: Sequence[MappingRow]) -> tuple[list[str], list[tuple[str, ...]]]:
    return headings_and_cells(columns_of(rows), rows)


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
    found = [(row.scene, row.scheme) for row in BENCH.summarize(RECORDS)]
    assert found == [
        ("fountain", "raw"),
        ("fountain", "subset-10-16"),
        ("fountain", "sub-hybrid-2"),
        ("church", "raw"),
        ("church", "sub-hybrid-2"),
    ]


def test_camera_errors_are_medians_and_a_camera_is_wrong_by_either_of_them() -> None:
    row = BENCH.summarize(RECORDS[:1])[0]
    assert (row.rotation_error, row.centre_error, row.wrong) == (0.3, 0.02, 2)
    at_the_limit = record("fountain", "raw", rotation_errors=[5.0], centre_errors=[1.0])
    assert BENCH.summarize([at_the_limit])[0].wrong == 0
    assert BENCH.summarize(RECORDS[4:])[0].wrong is None


def test_cells_have_both_epsilons_and_errors_in_degrees_and_centimetres() -> None:
    headings, cells = cells_of(BENCH.summarize(RECORDS[:3]))
    assert headings[:3] == ["scheme", "epsilon", "epsilon an image"]
    assert headings[-3:] == ["rotation error (deg)", "centre error (cm)", "wrong cameras"]
    assert cells[0] == ("raw", "-", "-", "11 of 11", "9,652", "4.52", "0.56", "55", "0.500", "0.40", "0")
    assert cells[1][:4] == ("subset-10-16", "10", "80,120", "11 of 11")
    assert cells[1][-3:] == ("0.300", "2.00", "2")
    assert cells[2][3:] == ("2 of 11", "40", "2.00", "0.50", "55", "-", "-", "-")


def test_cells_without_truth_and_of_several_scenes() -> None:
    headings, cells = cells_of(BENCH.summarize(RECORDS[3:]))
    assert "scene" not in headings and headings[-1] == "verified pairs"
    assert cells[1] == ("sub-hybrid-2", "-", "-", "0 of 11", "0", "-", "-", "0")
    headings, cells = cells_of(BENCH.summarize(RECORDS))
    assert headings[0] == "scene" and [row[0] for row in cells].count("church") == 2
    assert {len(row) for row in cells} == {len(headings)}


def test_markdown_explains_and_has_a_table_a_scene() -> None:
    text = BENCH.markdown(RECORDS)
    assert text.startswith("# Maps") and text.index("- epsilon") < text.index("## fountain") < text.index("## church")
    assert "at most 8192 features" in text
    assert text.count("| scheme |") == 2 and text.count("| wrong cameras |") == 1
    assert "\n| subset-10-16 | 10 | 80,120 | 11 of 11 | 9,652 |" in text
    with pytest.raises(InputError, match="no record"):
        BENCH.markdown([])


@pytest.mark.parametrize("given", [{"epsilon": 10.0}, {"image_epsilon": 10.0}])
def test_an_epsilon_of_a_descriptor_alone_is_refused(given: dict[str, Parameter]) -> None:
    with pytest.raises(InputError, match="that of the image too"):
        BENCH.summarize([record("a", "subset-10-4", **given)])
    assert scheme_label("subset-10-4", 80_120.4) == "subset-10-4 (80,120)"


def test_records_of_something_else() -> None:
    one = RECORDS[0]
    for wrong in (replace(one, task="words"), replace(one, metric="accuracy"), replace(one, parameters={})):
        with pytest.raises(InputError, match="not one of mapping"):
            BENCH.summarize([wrong])
    for damaged in (replace(one, value=(1.0,)), replace(one, value=1.0), record("a", "raw", rotation_errors=[1.0])):
        with pytest.raises(InputError, match="damaged"):
            BENCH.summarize([damaged])
    with pytest.raises(InputError, match="twice"):
        BENCH.summarize([one, one])


@pytest.mark.parametrize("records", [RECORDS, RECORDS[3:4], RECORDS[:1], RECORDS[4:]])
def test_a_picture_is_written(tmp_path: Path, records: list[Record]) -> None:
    pytest.importorskip("matplotlib")
    draw(BENCH.summarize(records), tmp_path / "bars.png", "a title")
    assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["bars.png"]


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match="plots"):
        draw(BENCH.summarize(RECORDS), tmp_path / "bars.png")
    assert not list(tmp_path.iterdir())
