"""The task of mapping on the rendered room, whose cameras are known: raw, lifted and word features."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from featveil.core import InputError
from featveil.core.records import Record, read_records
from featveil.databases import builtin
from featveil.datasets import MapScene, load_strecha
from featveil.geometry.models import empty_model, read_model
from featveil.lab import mapping
from featveil.lab.mapping import METRIC, camera_errors, make_schemes, run_resumable
from featveil.lab.mapping_report import mapping_cells, mapping_markdown, summarize_mapping
from featveil.lab.matching import Settings
from featveil.lab.scene_releases import SceneReleases
from rooms import Room

SETTINGS = Settings(max_features=500)
SCHEMES = make_schemes("sift", [2], builtin("sift"), 10, [2], pool=False)
NAMES = ["raw", "sub-hybrid-2", "quantised", "subset-10-2"]


@pytest.fixture(scope="module")
def scene(strecha_room: Path) -> MapScene:
    return load_strecha(strecha_room)[0]


def run(scene: MapScene, out: Path, settings: Settings = SETTINGS, schemes: Any = SCHEMES) -> list[Record]:
    return run_resumable([(scene, SceneReleases(scene, settings))], schemes, settings, out)


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


def test_schemes() -> None:
    assert [scheme.name for scheme in SCHEMES] == NAMES
    more = make_schemes("sift", [2, 4], builtin("sift"), 8, [], pool=True)
    assert [scheme.name for scheme in more] == [
        "raw",
        "sub-hybrid-2",
        "sub-hybrid-4",
        "hardened-4-16",
        "hardened-4-16-apart",
    ]


def test_a_record_for_each_scheme(records: dict[str, Record]) -> None:
    assert list(records) == NAMES
    for record in records.values():
        assert (record.task, record.dataset, record.metric, record.count) == ("mapping", "room", METRIC, 6)
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
    few = make_schemes("sift", [], builtin("sift"), 10, [], pool=False)
    run(scene, tmp_path, schemes=few)
    (tmp_path / "records.jsonl").unlink()
    with pytest.raises(InputError, match="has other keypoints"):
        run(scene, tmp_path, Settings(max_features=400), few)


def test_records_become_tables(records: dict[str, Record]) -> None:
    rows = summarize_mapping(list(records.values()))
    assert [row.scheme for row in rows] == NAMES
    assert rows[0].wrong == 0 and rows[0].centre_error is not None and rows[0].centre_error < 0.01
    headings, cells = mapping_cells(rows)
    assert {len(line) for line in cells} == {len(headings)} and headings[-1] == "wrong cameras"
    assert "\n| raw | - | - | 6 of 6 |" in mapping_markdown(list(records.values()))


def test_photographs_without_truth(scene: MapScene, tmp_path: Path) -> None:
    """Cameras are guessed and refined, and there is nothing to compare them with."""
    bare = MapScene("photos", scene.images, {}, {})
    (record,) = run(bare, tmp_path, schemes=SCHEMES[:1])
    assert value(record)[0] == 6 and "centre_errors" not in record.parameters
    assert summarize_mapping([record])[0].wrong is None


def test_camera_errors_of_too_few_cameras(scene: MapScene, room: Room) -> None:
    assert camera_errors(empty_model(), scene) == {}
    two = replace(room.map, views=dict(list(room.map.views.items())[:2]))
    assert camera_errors(two, scene) == {}
    found = camera_errors(room.map, replace(scene, poses=dict(list(scene.poses.items())[:4])))
    assert isinstance(found["rotation_errors"], list) and len(found["rotation_errors"]) == 4
