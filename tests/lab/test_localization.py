"""The task of localization on the rendered room: every view in a map of the others, whose true poses are known."""

from dataclasses import replace
from pathlib import Path

import pytest

from featveil.core import InputError
from featveil.core.records import Record, read_records
from featveil.databases import Database, builtin
from featveil.datasets import MapScene, load_strecha
from featveil.geometry.absolute_pose import estimate_pose
from featveil.geometry.models import read_model
from featveil.lab import localization
from featveil.lab.localization import METRIC, SUPPORTED, Method, Settings, make_methods, run_resumable
from featveil.lab.localization_report import localization_markdown, summarize_localization
from featveil.lab.scenes import RAW, SceneReleases
from interruptions import Watched

SETTINGS = Settings(max_features=500)
BOOK = Database(builtin("sift").values[:4000], "sift")
METHODS = make_methods("sift", [2], [2], BOOK, [10], 2, [2000, 500])
LIFTED = METHODS[1:3]


@pytest.fixture(scope="module")
def scene(strecha_room: Path) -> MapScene:
    return load_strecha(strecha_room)[0]


def run(scene: MapScene, out: Path, methods: list[Method], settings: Settings = SETTINGS) -> list[Record]:
    return run_resumable([(scene, SceneReleases(scene, settings))], methods, settings, out)


@pytest.fixture(scope="module")
def out(scene: MapScene, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one run; copy it before changing it."""
    folder = tmp_path_factory.mktemp("localization")
    run(scene, folder, METHODS)
    return folder


@pytest.fixture(scope="module")
def records(out: Path) -> list[Record]:
    return read_records(out / "records.jsonl")


def test_methods() -> None:
    """Raw first; words by each rule and number of iterations, the others by the fewest."""
    assert [(method.scheme.name, method.map_kind, method.distance, method.iterations) for method in METHODS] == [
        ("raw", "raw", "point-to-point", (500,)),
        ("sub-hybrid-2", "raw", "point-to-subspace", (500,)),
        ("sub-hybrid-2", "private", "subspace-to-subspace", (500,)),
        *(
            (scheme, "raw", rule, (500, 2000))
            for rule in ("vocabulary", SUPPORTED, "nearest")
            for scheme in ("quantised", "subset-10-2")
        ),
    ]
    assert make_methods("sift", [], [], BOOK, [], 2, [9]) == [Method(RAW, "raw", "point-to-point", (9,))]


def test_a_record_for_each_method_and_query(records: list[Record]) -> None:
    assert len(records) == 6 * (3 + 6 * 2)
    for record in records:
        assert (record.task, record.dataset, record.metric) == ("localization", "room", METRIC)
        matches = record.parameters["correspondences"]
        assert isinstance(matches, int) and 0 <= record.count <= matches
        assert ("image_epsilon" in record.parameters) == (record.scheme == "subset-10-2")


def test_queries_are_localized(records: list[Record]) -> None:
    rows = {(row.scheme, row.map_kind, row.distance, row.iterations): row for row in summarize_localization(records)}
    assert len(rows) == 15
    for name in (("raw", "raw", "point-to-point"), ("sub-hybrid-2", "raw", "point-to-subspace")):
        assert rows[*name, 500].within((0.02, 0.2)) == 1
    assert rows["sub-hybrid-2", "private", "subspace-to-subspace", 500].within((0.05, 0.5)) == 1
    assert rows["subset-10-2", "raw", SUPPORTED, 2000].within((0.05, 0.5)) == 1
    assert "\n| subset-10-2 | 10 | 5,000 | raw |" in localization_markdown(records)


def test_neighbours_leave_fewer_matches(records: list[Record]) -> None:
    def matches(distance: str) -> int:
        chosen = [one for one in records if one.scheme == "subset-10-2" and one.parameters["distance"] == distance]
        return sum(count for one in chosen if isinstance(count := one.parameters["correspondences"], int))

    assert matches(SUPPORTED) < 0.8 * matches("vocabulary")


def test_a_map_lacks_the_query(out: Path, scene: MapScene) -> None:
    for scheme in ("raw", "sub-hybrid-2"):
        for query in scene.images:
            views = read_model(out / "maps" / "room" / scheme / f"without-{query}").views
            assert views.keys() == scene.images.keys() - {query}


def test_names_that_differ_in_folder_or_ending_only(scene: MapScene, tmp_path: Path) -> None:
    """Each has a map of its own, which lacks it."""
    new = dict(zip(scene.images, ("a/1.png", "b/1.png", "1.png", "1.jpg", "a%2F1.png", "2.png"), strict=True))
    renamed = MapScene(
        "renamed",
        {new[name]: path for name, path in scene.images.items()},
        {new[name]: camera for name, camera in scene.cameras.items()},
        {new[name]: pose for name, pose in scene.poses.items()},
    )
    records = run(renamed, tmp_path, METHODS[:1])
    assert [record.parameters["query"] for record in records] == sorted(new.values())
    maps = [path for path in (tmp_path / "maps" / "renamed" / "raw").iterdir() if path.is_dir()]
    missing = [renamed.images.keys() - read_model(path).views.keys() for path in maps]
    assert sorted(name for names in missing for name in names) == sorted(new.values())


def test_nothing_is_measured_twice(
    scene: MapScene, out: Path, records: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    def estimate(*arguments: object) -> None:
        raise AssertionError

    monkeypatch.setattr(localization, "estimate_pose", estimate)
    monkeypatch.setattr(localization, "triangulate", estimate)
    before = (out / "records.jsonl").read_bytes()
    assert sorted(map(repr, run(scene, out, METHODS))) == sorted(map(repr, records))
    assert (out / "records.jsonl").read_bytes() == before


def test_a_stopped_run_gives_the_same(
    scene: MapScene, tmp_path: Path, records: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(monkeypatch, "featveil.lab.localization.estimate_pose", estimate_pose, stop_at=9)
    with pytest.raises(KeyboardInterrupt):
        run(scene, tmp_path, LIFTED)
    assert len(read_records(tmp_path / "records.jsonl")) == 8
    again = run(scene, tmp_path, LIFTED)
    assert again == [record for record in records if record.scheme == "sub-hybrid-2"]
    assert watched.calls == 9 + 12 - 8


def test_other_settings_are_refused(scene: MapScene, out: Path) -> None:
    for other in (Settings(max_features=400), Settings(max_features=500, seed=1), replace(SETTINGS, retrieved=2)):
        with pytest.raises(InputError, match="name another folder"):
            run(scene, out, METHODS, other)


def test_a_scene_without_true_cameras(scene: MapScene, tmp_path: Path) -> None:
    some = dict(list(scene.poses.items())[:3])
    for bare in (MapScene("a", scene.images, {}, {}), MapScene("a", scene.images, scene.cameras, some)):
        with pytest.raises(InputError, match="no true cameras for all its images"):
            run(bare, tmp_path, METHODS)
    assert not list(tmp_path.iterdir())


def test_a_query_is_matched_with_the_nearest_images(scene: MapScene, tmp_path: Path) -> None:
    """The views stand on an arc in the order of their names."""
    few = replace(SETTINGS, retrieved=1)
    records = run(scene, tmp_path / "out", METHODS[:1], few)
    all_of_them = run(scene, tmp_path / "all", METHODS[:1])
    for one, every in zip(records, all_of_them, strict=True):
        assert one.parameters["retrieved"] == 1
        assert int(str(one.parameters["correspondences"])) < int(str(every.parameters["correspondences"]))
        assert one.count > 0
    with pytest.raises(InputError, match="retrieved must be"):
        Settings(retrieved=0)
