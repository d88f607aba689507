"""featveil localize, of private and raw views of the rendered room in its map."""

import json
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import featveil as fv
from featveil.formats import hloc, private_hloc
from featveil.geometry.absolute_pose import Localized
from featveil.geometry.sfm import triangulate
from featveil.metrics import pose_errors
from featveil.pipelines.map_parts.localizer import Localizer
from hloc_lists import read_poses, write_pairs
from rooms import STEADY, Room, RoomFiles

QUERY = "view02.png"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "poses.txt"


@pytest.fixture
def queries(tmp_path: Path, files: RoomFiles) -> dict[str, Path]:
    """The third view as .veil files: raw, lifted, words."""
    paths = {name: tmp_path / name / f"{QUERY}.veil" for name in ("raw", "lifted", "words")}
    for path in paths.values():
        path.parent.mkdir()
    fv.save(hloc.read(files.raw, QUERY), paths["raw"])
    for name, source in (("lifted", files.lifted), ("words", files.words)):
        fv.save(private_hloc.read(source, QUERY), paths[name])
    return paths


def check(out: Path, room: Room, names: Iterable[str], close: float = 0.02, degrees: float = 0.5) -> None:
    """Poses of views, against those in the map; `close` is a share of how far the outer cameras are apart."""
    apart = np.linalg.norm(room.map.poses[room.names[0]].centre - room.map.poses[room.names[-1]].centre)
    poses = read_poses(out)
    assert poses.keys() == set(names)
    for name, pose in poses.items():
        turned, moved = pose_errors(pose, room.map.poses[name])
        assert moved < close * apart and turned < degrees


def counts(out: Path) -> dict[str, list[int]]:
    lines = out.with_name("poses_inliers.txt").read_text().splitlines()
    return {name: [int(word) for word in words] for name, *words in map(str.split, lines)}


@pytest.mark.parametrize("kind", ["raw", "lifted", "words"])
def test_a_query_in_a_raw_map(
    ran: Any, room: Room, files: RoomFiles, queries: dict[str, Path], out: Path, kind: str
) -> None:
    known = ("--features", files.raw, "--cameras", files.cameras)
    shown = ran("localize", queries[kind], "--model", room.model, "--out", out, *known)
    check(out, room, [QUERY])
    assert shown["out"] == str(out) and shown["localized"] == 1
    (query,) = shown["queries"].values()
    assert query["localized"] and query["reason"] is None and query["inliers"] > 60
    assert (query["inliers_by_chance"] is not None) == (kind == "words")
    assert counts(out) == {QUERY: [1, query["inliers"], query["matches"]]}


@pytest.mark.parametrize(("kind", "close"), [("lifted", 0.02), ("words", 0.05)])
def test_all_views_in_a_private_map(ran: Any, room: Room, files: RoomFiles, out: Path, kind: str, close: float) -> None:
    """A file of many queries; a view is not matched with itself."""
    source = files.lifted if kind == "lifted" else files.words
    options = ("--model", room.model, "--features", source, "--out", out, "--cameras", files.cameras)
    assert ran("localize", source, *options)["localized"] == 6
    check(out, room, room.names, close, degrees=1.5)
    assert counts(out).keys() == set(room.names)


def test_an_image_in_a_map_of_words_gets_the_care_of_words(ran: Any, room: Room, files: RoomFiles, out: Path) -> None:
    options = ("--model", room.model, "--features", files.words, "--cameras", files.cameras, "--max-features", 500)
    shown = ran("localize", files.images / QUERY, "--out", out, *options)
    assert 0 < shown["queries"][QUERY]["inliers_by_chance"] < shown["queries"][QUERY]["inliers"]
    check(out, room, [QUERY], 0.05, 1.5)


def test_images_and_features_beside_the_model(run: Any, room: Room, files: RoomFiles, out: Path) -> None:
    """A table for a person, and a focal length that is found along."""
    model = out.with_name("model")
    shutil.copytree(room.model, model)
    shutil.copy(files.raw, model / "features.h5")
    result = run("localize", files.images, "--model", model, "--out", out, "--max-features", 500)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0].split() == ["query", "localized", "inliers", "matches"]
    assert result.stdout.count(" yes ") == 6
    check(out, room, room.names, close=0.2, degrees=2)


def test_pairs_say_which_images_are_tried(
    ran: Any, refused: Any, room: Room, files: RoomFiles, queries: dict[str, Path], out: Path, tmp_path: Path
) -> None:
    """In either order; lines of other queries are for others."""
    pairs = tmp_path / "pairs.txt"
    command = (queries["raw"], "--model", room.model, "--features", files.raw, "--out", out, "--pairs", pairs)
    write_pairs(pairs, [(QUERY, "view01.png"), ("view03.png", QUERY), ("another.png", "view00.png")])
    some = ran("localize", *command)["queries"][QUERY]["matches"]
    check(out, room, [QUERY], close=0.2, degrees=2)
    write_pairs(pairs, [(QUERY, "view01.png")])
    assert 0 < ran("localize", *command)["queries"][QUERY]["matches"] < some
    write_pairs(pairs, [(QUERY, "nowhere.png")])
    assert "names image 'nowhere.png', which is not in" in refused("localize", *command)
    write_pairs(pairs, [("another.png", "view00.png")])
    shown = ran("localize", *command)["queries"][QUERY]
    assert not shown["localized"] and shown["reason"] == "no image of the map is paired with it"


def test_images_that_the_model_lacks_and_the_query_itself_are_not_tried(
    run: Any, room: Room, files: RoomFiles, queries: dict[str, Path], out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, pairs, tried = out.with_name("model"), out.with_name("pairs.txt"), []
    triangulate(room.database, {name: room.map.poses[name] for name in room.names[:5]}, model, STEADY)

    def locate(self: Localizer, query: object, camera: object, known: bool, images: list[str]) -> Localized:
        tried.append(images)
        return Localized(None, 0, 0, "not tried")

    monkeypatch.setattr(Localizer, "locate", locate)
    command = ("localize", queries["raw"], "--model", model, "--features", files.raw, "--out", out)
    assert "warning" not in run(*command).stderr
    write_pairs(pairs, [(QUERY, name) for name in room.names[3:]])
    result = run(*command, "--pairs", pairs)
    assert "1 pairs name images that the model has not registered: left out" in result.stderr
    assert tried == [[name for name in room.names[:5] if name != QUERY], room.names[3:5]]


def test_queries_that_cannot_be_localized(
    run: Any, room: Room, files: RoomFiles, queries: dict[str, Path], empty: Path, image: Path, out: Path
) -> None:
    """They are reported with the reason, others are localized, and the exit code is 0."""
    few = out.with_name("few.veil")
    fv.save(hloc.read(files.raw, QUERY).take(np.arange(3)), few)
    options = ("--model", room.model, "--features", files.raw, "--out", out, "--max-features", 300, "--ratio", 0.7)
    result = run("localize", queries["raw"], few, empty, image, *options)
    assert result.exit_code == 0, result.output
    lines = {line.split()[2].rstrip(":"): line for line in result.stderr.splitlines()}
    assert lines.keys() == {"few", "empty.png", "a.png"}
    assert "a pose needs 4" in lines["few"] and lines["empty.png"].endswith("it has no features")
    assert read_poses(out).keys() == {QUERY}
    assert {name: count[0] for name, count in counts(out).items()} == {QUERY: 1, "few": 0, "empty.png": 0, "a.png": 0}
    result = run("localize", empty, *options, "--json")
    assert result.exit_code == 0 and json.loads(result.stdout)["localized"] == 0
    assert read_poses(out) == {}


def test_words_of_nowhere_have_no_pose(ran: Any, room: Room, files: RoomFiles, image: Path, out: Path) -> None:
    words = out.with_name("nowhere.veil")
    fv.save(fv.privatize(fv.extract(image, max_features=300), fv.Subset(epsilon=10, subset_size=4)), words)
    options = ("--model", room.model, "--features", files.raw, "--iterations", 20_000)
    for more in ((), ("--no-neighbours",)):
        shown = ran("localize", words, "--out", out, *options, *more)
        assert shown["localized"] == 0 and shown["queries"]["nowhere"]["reason"]


def test_iterations_are_those_of_words_on_either_side(
    run: Any, room: Room, files: RoomFiles, queries: dict[str, Path], out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []

    def search(iterations: int, max_error: float, min_inliers: int) -> None:
        used.append(iterations)
        raise fv.InputError("enough")

    monkeypatch.setattr("featveil.geometry.absolute_pose.PoseSearch", search)
    other = out.with_name("other.png")
    shutil.copy(files.images / QUERY, other)
    options = ("--model", room.model, "--out", out)
    run("localize", queries["lifted"], "--features", files.raw, *options)
    run("localize", queries["words"], "--features", files.raw, *options)
    run("localize", queries["raw"], "--features", files.words, *options)
    run("localize", other, queries["words"], "--features", files.raw, *options)
    run("localize", queries["words"], "--features", files.raw, *options, "--iterations", 77)
    assert used == [10_000, 1_000_000, 1_000_000, 1_000_000, 77]


def test_wrong_settings(refused: Any, room: Room, files: RoomFiles, queries: dict[str, Path], out: Path) -> None:
    command = ("localize", queries["raw"], "--model", room.model, "--features", files.raw, "--out", out)
    for wrong, message in (
        (("--iterations", 0), "iterations must be 1 to 10,000,000"),
        (("--iterations", 10_000_001), "iterations must be 1 to 10,000,000"),
        (("--max-error", 0), "in pixels and above 0"),
        (("--min-inliers", 3), "at least 4 inliers"),
        (("--rule", "other"), "unknown rule"),
        (("--ratio", 2), "ratio must be"),
        (("--kind", "rootsift"), "rootsift"),
    ):
        assert message in refused(*command, *wrong)


def test_what_does_not_go_together(
    refused: Any, room: Room, files: RoomFiles, queries: dict[str, Path], out: Path, tmp_path: Path
) -> None:
    command = ("localize", queries["raw"], "--model", room.model, "--out", out)
    assert "no features beside it" in refused(*command)
    assert "does not exist" in refused(*command, "--features", tmp_path / "no.h5")
    assert "holds no COLMAP model" in refused("localize", queries["raw"], "--model", files.images, "--out", out)
    renamed, moved = tmp_path / "renamed.h5", tmp_path / "moved.h5"
    hloc.write_features(renamed, [(f"old/{name}", features) for name, features in room.features.items()])
    assert "none of the 6 images of the model is in" in refused(*command, "--features", renamed)
    hloc.write_features(moved, [(name, room.features[QUERY]) for name in room.names if name != QUERY])
    assert "are not those of the model" in refused(*command, "--features", moved)
    assert "there is no image or folder" in refused("localize", tmp_path / "no", *command[2:], "--features", files.raw)
    both = (queries["raw"], queries["lifted"])
    assert f"both hold '{QUERY}': localize them apart" in refused(
        "localize", *both, *command[2:], "--features", files.raw
    )
    spaced = tmp_path / "a b.veil"
    shutil.copy(queries["raw"], spaced)
    assert "rename the image" in refused("localize", spaced, *command[2:], "--features", files.raw)


def test_outputs_never_replace_inputs(
    refused: Any, room: Room, files: RoomFiles, queries: dict[str, Path], tmp_path: Path
) -> None:
    cameras, pairs = tmp_path / "cameras.txt", tmp_path / "q_inliers.txt"
    shutil.copy(files.cameras, cameras)
    write_pairs(pairs, [(QUERY, "view01.png")])
    command = ("localize", queries["raw"], "--model", room.model, "--features", files.raw)
    assert "is an input" in refused(*command, "--cameras", cameras, "--out", cameras)
    assert "is an input" in refused(*command, "--pairs", pairs, "--out", tmp_path / "q.txt")
    assert "is an input" in refused(*command, "--out", room.model / "images.txt")
    for wrong in (queries["raw"], tmp_path):
        assert "name a .txt file" in refused(*command, "--out", wrong)
    assert "create it first" in refused(*command, "--out", tmp_path / "no" / "poses.txt")


def test_ctrl_c_leaves_the_old_files(
    run: Any, room: Room, files: RoomFiles, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("localize", files.lifted, "--model", room.model, "--features", files.raw, "--out", out)
    assert run(*command).exit_code == 0
    before = {path: path.read_bytes() for path in out.parent.iterdir()}
    calls: list[int] = []

    def stop(*ignored: object) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("featveil.pipelines.sources.KnownCameras.find", stop)
    result = run(*command)
    assert result.exit_code == 130 and "Traceback" not in result.output
    assert {path: path.read_bytes() for path in out.parent.iterdir()} == before


def test_without_pycolmap(
    refused: Any, room: Room, files: RoomFiles, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("featveil.geometry.colmap._loaded", None)
    monkeypatch.setitem(sys.modules, "pycolmap", None)
    command = ("localize", files.lifted, "--model", room.model, "--features", files.raw, "--out", out)
    assert "pip install 'featveil[colmap]'" in refused(*command)


def test_a_large_map_needs_pairs(
    refused: Any, room: Room, files: RoomFiles, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("featveil.pipelines.localize._FEW", 5)
    command = ("localize", files.lifted, "--model", room.model, "--features", files.raw, "--out", out)
    assert "the map has 6 images: say with --pairs" in refused(*command)
