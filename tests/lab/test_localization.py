"""The task of localization on the rendered room: every view in a map of the others, whose true poses are known."""

import sys
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from featveil.core import InputError, MissingExtraError
from featveil.core.records import Parameter, Record, read_records
from featveil.databases import Database, builtin
from featveil.datasets import MapScene, load_strecha
from featveil.geometry.absolute_pose import estimate_pose
from featveil.geometry.models import read_model
from featveil.lab import localization
from featveil.lab.bench import headings_and_cells
from featveil.lab.localization import BENCH, COLUMNS, THRESHOLDS, draw, make_methods, study, threshold_label
from featveil.lab.localization_parts import localization_maps
from featveil.lab.localization_parts.localization_maps import SUPPORTED, Method
from featveil.lab.scene_studies import RAW, SceneReleases, Settings
from interruptions import Watched

SETTINGS = Settings(max_features=500)
BOOK = Database(builtin("sift").values[:4000], "sift")
METHODS = make_methods("sift", [2], [2], BOOK, [10], 2, [2000, 500])
LIFTED = METHODS[1:3]


@pytest.fixture(scope="module")
def scene(strecha_room: Path) -> MapScene:
    return load_strecha(strecha_room)[0]


def run(
    scene: MapScene, out: Path, methods: list[Method], settings: Settings = SETTINGS, retrieved: int = 20
) -> list[Record]:
    wanted = study([SceneReleases(scene, settings)], methods, settings, retrieved, out)
    return BENCH.resume(wanted, out / "records.jsonl")


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
        assert (record.task, record.dataset, record.metric) == ("localization", "room", BENCH.metric)
        matches = record.parameters["correspondences"]
        assert isinstance(matches, int) and 0 <= record.count <= matches
        assert ("image_epsilon" in record.parameters) == (record.scheme == "subset-10-2")


def test_queries_are_localized(records: list[Record]) -> None:
    rows = {(row.scheme, row.map_kind, row.distance, row.iterations): row for row in BENCH.summarize(records)}
    assert len(rows) == 15
    for name in (("raw", "raw", "point-to-point"), ("sub-hybrid-2", "raw", "point-to-subspace")):
        assert rows[*name, 500].within((0.02, 0.2)) == 1
    assert rows["sub-hybrid-2", "private", "subspace-to-subspace", 500].within((0.05, 0.5)) == 1
    assert rows["subset-10-2", "raw", SUPPORTED, 2000].within((0.05, 0.5)) == 1
    assert "\n| subset-10-2 | 10 | 5,000 | raw |" in BENCH.markdown(records)


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
    monkeypatch.setattr(localization_maps, "triangulate", estimate)
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
    others = (Settings(max_features=400), 20), (Settings(max_features=500, seed=1), 20), (SETTINGS, 2)
    for other, retrieved in others:
        with pytest.raises(InputError, match="name another folder"):
            run(scene, out, METHODS, other, retrieved)


def test_a_scene_without_true_cameras(scene: MapScene, tmp_path: Path) -> None:
    some = dict(list(scene.poses.items())[:3])
    for bare in (MapScene("a", scene.images, {}, {}), MapScene("a", scene.images, scene.cameras, some)):
        with pytest.raises(InputError, match="no true cameras for all its images"):
            run(bare, tmp_path, METHODS)
    assert not list(tmp_path.iterdir())


def test_a_query_is_matched_with_the_nearest_images(scene: MapScene, tmp_path: Path) -> None:
    """The views stand on an arc in the order of their names."""
    (tmp_path / "out").mkdir()
    (tmp_path / "all").mkdir()
    records = run(scene, tmp_path / "out", METHODS[:1], retrieved=1)
    all_of_them = run(scene, tmp_path / "all", METHODS[:1])
    for one, every in zip(records, all_of_them, strict=True):
        assert one.parameters["retrieved"] == 1
        assert int(str(one.parameters["correspondences"])) < int(str(every.parameters["correspondences"]))
        assert one.count > 0
    with pytest.raises(InputError, match="retrieved must be"):
        run(scene, tmp_path, METHODS[:1], retrieved=0)


METRIC = "rotation and centre error"
Named = tuple[str, str, str, int]
BARE: Named = ("raw", "raw", "point-to-point", 10_000)
SUBSPACES: Named = ("sub-hybrid-4", "private", "subspace-to-subspace", 10_000)
WORDS: Named = ("subset-10-2", "raw", "vocabulary", 10_000)
MORE: Named = ("subset-10-2", "raw", "vocabulary", 1_000_000)


def record(scene: str, query: str, method: Named, value: tuple[float, ...], inliers: int, **more: Parameter) -> Record:
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
    record("castle", "0.jpg", BARE, (0.05, 0.004), 400),
    record("castle", "0.jpg", MORE, (0.3, 0.04), 30),
    record("castle", "1.jpg", WORDS, (), 3, image_epsilon=10_000.0),
    record("castle", "1.jpg", BARE, (0.15, 0.008), 300),
    record("castle", "1.jpg", MORE, (4.0, 0.2), 25),
    record("fountain", "0.jpg", BARE, (0.01, 0.3), 100),
    record("fountain", "0.jpg", SUBSPACES, (90.0, 40.0), 12),
    record("fountain", "0.jpg", WORDS, (), 0),
]


def test_rows_are_scene_by_scene_then_all_together() -> None:
    found = [(row.scene, row.scheme, row.iterations, row.queries) for row in BENCH.summarize(RECORDS)]
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
    assert {row.scene for row in BENCH.summarize(RECORDS[:6])} == {"castle"}


def test_a_query_is_within_a_threshold_by_both_errors_or_not_at_all() -> None:
    rows = BENCH.summarize(RECORDS)
    by_hand = {0.01: 1 / 3, 0.02: 2 / 3, 0.05: 2 / 3, 0.25: 2 / 3, 0.5: 1.0, 5.0: 1.0}
    raw = next(row for row in rows if (row.scene, row.scheme) == ("all scenes", "raw"))
    assert {threshold: raw.within(threshold) for threshold in THRESHOLDS} == {
        threshold: by_hand[threshold[0]] for threshold in THRESHOLDS
    }
    lost = next(row for row in rows if (row.scene, row.scheme) == ("fountain", "sub-hybrid-4"))
    assert lost.localized == 1 and set(lost.shares) == {0.0}


def test_medians_count_queries_that_were_not_localized() -> None:
    raw, words, more = BENCH.summarize(RECORDS[:6])
    assert (raw.rotation_error, raw.centre_error, raw.inliers) == pytest.approx((0.1, 0.006, 350))
    assert (words.rotation_error, words.centre_error) == (inf, inf)
    assert (words.localized, words.queries, words.inliers, words.shares[0]) == (1, 2, 11.5, 0.5)
    assert more.localized == 2 and more.centre_error == pytest.approx(0.12)
    assert (words.epsilon, words.image_epsilon) == (10, 15_000)
    mostly = [replace(RECORDS[0], parameters={**RECORDS[0].parameters, "query": name}) for name in "abc"]
    assert BENCH.summarize([*mostly, RECORDS[3], RECORDS[8]])[0].centre_error == 0.005


def test_cells() -> None:
    headings, cells = headings_and_cells(COLUMNS, BENCH.summarize(RECORDS[:6]))
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
    assert threshold_label((5.0, 10.0)) == "5 m, 10 deg"


def test_markdown_explains_and_has_a_table_a_scene() -> None:
    text = BENCH.markdown(RECORDS)
    places = [text.index(part) for part in ("# Localization", "- epsilon", "## castle", "## fountain", "## All scenes")]
    assert places == sorted(places) and places[0] == 0
    assert text.count("| scheme |") == 3 and "at most 2000 features" in text
    assert "All scenes" not in BENCH.markdown(RECORDS[:6])
    with pytest.raises(InputError, match="no record"):
        BENCH.markdown([])


def test_records_of_something_else() -> None:
    one = RECORDS[0]
    for wrong in (
        replace(one, task="mapping"),
        replace(one, metric="accuracy"),
        replace(one, value=1.0),
        replace(one, parameters={}),
    ):
        with pytest.raises(InputError, match=r"not one of|damaged"):
            BENCH.summarize([wrong])
    with pytest.raises(InputError, match="damaged"):
        BENCH.summarize([replace(one, value=(1.0, 2.0, 3.0))])
    with pytest.raises(InputError, match="that of the image too"):
        BENCH.summarize([replace(one, parameters={**one.parameters, "image_epsilon": None})])
    with pytest.raises(InputError, match="twice"):
        BENCH.summarize([one, one])
    assert BENCH.summarize([one, replace(one, seed=1)])[0].queries == 2


@pytest.mark.parametrize("records", [RECORDS, RECORDS[:1], RECORDS[3:4], RECORDS[6:8]])
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
