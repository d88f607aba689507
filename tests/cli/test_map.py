"""featveil map, on six small views of the rendered room."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from colmap_databases import connected, tables, write_database
from featveil.core import Camera
from featveil.formats import hloc, private_hloc
from featveil.geometry.match_database import matched_pairs
from featveil.geometry.models import read_model
from featveil.matching import match
from featveil.metrics import align_poses, pose_errors
from hloc_lists import write_pairs, write_queries
from interruptions import Watched
from rooms import Room, RoomFiles

MODEL = {"cameras.bin", "frames.bin", "images.bin", "points3D.bin", "rigs.bin"}
MADE = MODEL | {"database.db", "settings.json", "model.png"}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "map"


def content(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def stop_at(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """Ctrl-C when pair number `call`, from 1, is matched."""
    Watched(monkeypatch, "featveil.pipelines.map_parts.map_building.match", match, call)


def check_cameras(room: Room, out: Path, metres: float, degrees: float) -> None:
    """Of all images, against the true ones."""
    poses = align_poses(read_model(out).poses, room.scene.poses)
    assert poses.keys() == set(room.names)
    for name, pose in poses.items():
        turned, moved = pose_errors(pose, room.scene.poses[name])
        assert moved < metres and turned < degrees


def test_images_are_released_once_and_mapped(run: Any, ran: Any, room: Room, files: RoomFiles, out: Path) -> None:
    command = ("map", files.images, "--out", out, "--dimension", 2, "--cameras", files.cameras, "--max-features", 500)
    shown = ran(*command)
    assert shown["private"] and (shown["images"], shown["registered_images"], shown["pairs"]) == (6, 6, 15)
    assert shown["points"] == len(read_model(out).points) > 300 and shown["picture"] == str(out / "model.png")
    assert content(out) == {*MADE, "private.h5"}
    check_cameras(room, out, 0.1, 1.5)
    released = (out / "private.h5").read_bytes()
    again = run(*command)
    assert again.exit_code == 0 and "registered images   6 of 6" in again.stdout
    assert "features            private" in again.stdout and "verified pairs      15 of 15" in again.stdout
    assert (out / "private.h5").read_bytes() == released
    with connected(out / "database.db") as connection:
        assert connection.execute("SELECT count(*) FROM descriptors").fetchone() == (0,)


def test_raw_images(ran: Any, room: Room, files: RoomFiles, out: Path) -> None:
    command = ("map", files.images, "--out", out, "--defense", "raw", "--cameras", files.cameras, "--ratio", 0.8)
    shown = ran(*command, "--max-features", 500)
    assert not shown["private"] and shown["registered_images"] == 6
    assert content(out) == {*MADE, "features.h5"} and hloc.names(out / "features.h5") == room.names
    check_cameras(room, out, 0.02, 0.5)


def test_features_of_a_file(ran: Any, room: Room, files: RoomFiles, out: Path) -> None:
    """Raw ones that are hidden, or not, and private ones as they are; only what is made goes to the folder."""
    cameras = ("--cameras", files.cameras)
    words = ("--defense", "subset", "--epsilon", 10, "--subset-size", 4)
    for number, (source, options, private, made) in enumerate(
        (
            (files.raw, ("--defense", "raw"), False, set()),
            (files.raw, words, True, {"private.h5"}),
            (files.lifted, (), True, set()),
            (files.words, (), True, set()),
        )
    ):
        folder = out.with_name(f"map{number}")
        shown = ran("map", source, "--out", folder, *cameras, *options)
        assert shown["private"] == private and shown["registered_images"] >= 5
        assert content(folder) == MADE | made
    assert private_hloc.names(out.with_name("map1") / "private.h5") == room.names


def test_unknown_cameras_are_found(ran: Any, room: Room, files: RoomFiles, out: Path, tmp_path: Path) -> None:
    """Of the first three views they are known and stay, in the others they are refined."""
    lines = files.cameras.read_text().splitlines(keepends=True)
    (tmp_path / "three.txt").write_text("".join(lines[:3]))
    ran("map", files.raw, "--out", out, "--defense", "raw", "--ratio", 0.8, "--cameras", tmp_path / "three.txt")
    true = room.scene.cameras[room.names[0]]
    views = read_model(out).views
    assert views.keys() == set(room.names)
    for name in room.names:
        assert (views[name].camera == true) == (name in room.names[:3])
        assert views[name].camera.parameters[0] == pytest.approx(true.parameters[0], rel=0.1)


def test_only_some_pairs(
    run: Any, ran: Any, refused: Any, room: Room, files: RoomFiles, out: Path, tmp_path: Path
) -> None:
    pairs = [(room.names[0], name) for name in room.names[1:]]
    write_pairs(tmp_path / "pairs.txt", pairs)
    command = ("map", files.lifted, "--out", out, "--cameras", files.cameras, "--pairs")
    assert ran(*command, tmp_path / "pairs.txt")["pairs"] == 5
    assert matched_pairs(out / "database.db") == {*pairs, *((two, one) for one, two in pairs)}
    write_pairs(tmp_path / "wrong.txt", [(room.names[0], "elsewhere.png")])
    assert "begun with other pairs" in refused(*command, tmp_path / "wrong.txt")
    assert "does not exist" in refused(*command, tmp_path / "no.txt")
    unknown = run("map", files.lifted, "--out", tmp_path / "other", "--pairs", tmp_path / "wrong.txt")
    assert unknown.exit_code == 2 and "name image 'elsewhere.png', which is not in" in unknown.stderr


def test_another_model_is_drawn_beside(ran: Any, refused: Any, room: Room, files: RoomFiles, out: Path) -> None:
    command = ("map", files.lifted, "--out", out, "--cameras", files.cameras)
    ran(*command)
    alone = np.asarray(cv2.imread(str(out / "model.png"))).shape
    ran(*command, "--beside", room.model)
    both = np.asarray(cv2.imread(str(out / "model.png"))).shape
    assert both[1] > 1.9 * alone[1]
    assert "holds no COLMAP model" in refused("map", files.lifted, "--out", out, "--beside", files.images)


def test_ctrl_c_in_the_middle(run: Any, ran: Any, files: RoomFiles, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was matched stays, nothing is half-written, and the same command does the rest."""
    command = ("map", files.lifted, "--out", out, "--cameras", files.cameras)
    with monkeypatch.context() as interrupted:
        stop_at(interrupted, 8)
        result = run(*command)
    assert result.exit_code == 130 and "Traceback" not in result.output
    assert content(out) == {"settings.json", "database.db"}
    assert len(matched_pairs(out / "database.db")) == 2 * 7
    with monkeypatch.context() as counted:
        stop_at(counted, 9)  # which it does not come to
        assert ran(*command)["registered_images"] == 6
    assert content(out) == MADE


def test_a_folder_is_not_mixed_with_other_settings(
    run: Any, ran: Any, refused: Any, files: RoomFiles, out: Path
) -> None:
    command = ("map", files.raw, "--out", out, "--cameras", files.cameras, "--defense")
    ran(*command, "raw")
    for other, named in (
        (("lifting",), "defense"),
        (("raw", "--ratio", 0.9), "ratio"),
        (("raw", "--rule", "nearest"), "rule"),
        (("raw", "--on-sphere"), "on sphere"),
        (("raw", "--kind", "sift"), "kind"),
    ):
        assert f"was begun with other {named}: use another folder" in refused(*command, *other)
    assert "other images" in refused("map", files.lifted, "--out", out)
    result = run("map", files.raw, "--out", out, "--defense", "raw")
    assert result.exit_code == 2 and "has another camera" in result.stderr


def test_releases_are_not_mixed(run: Any, refused: Any, files: RoomFiles, out: Path) -> None:
    command = ("map", files.images, "--out", out, "--cameras", files.cameras, "--max-features", 150, "--dimension")
    assert run(*command, 2).exit_code in (0, 1)
    assert "was made with other settings" in refused(*command, 4)
    assert "was begun with other apart" in refused(*command, 2, "--apart")


def test_a_mistake_leaves_no_folder(refused: Any, files: RoomFiles, out: Path, tmp_path: Path) -> None:
    """The next try is not refused for having other settings."""
    assert "there is no image" in refused("map", tmp_path / "no", "--out", out)
    for wrong, message in (
        (("--rule", "other"), "unknown rule 'other'"),
        (("--ratio", 2), "ratio must be"),
        (("--cameras", tmp_path / "no.txt"), "does not exist"),
        (("--beside", tmp_path), "holds no COLMAP model"),
        (("--kind", "other"), "other"),
        (("--defense", "other"), "other"),
        (("--defense", "raw", "--epsilon", 3), "raw features are not hidden"),
        (("--defense", "raw", "--max-features", 9), "leave --max-features out"),
    ):
        assert message in refused("map", files.raw, "--out", out, *wrong)
    assert "unknown descriptor kind" in refused("map", files.images, "--out", out, "--kind", "other")
    for given in (("--defense", "lifting"), ("--dimension", 2), ("--apart",)):
        assert "is private already" in refused("map", files.lifted, "--out", out, *given)
    assert "leave --max-features out" in refused("map", files.lifted, "--out", out, "--max-features", 9)


def test_databases_that_cannot_be_mapped(run: Any, refused: Any, out: Path, tmp_path: Path) -> None:
    write_database(tmp_path / "empty.db", {})
    assert "image" in refused("map", tmp_path / "empty.db", "--out", out, "--defense", "raw")
    assert "image" in refused("map", tmp_path / "empty.db", "--out", out)
    write_database(tmp_path / "short.db", {name: tables(20, seed, size=64) for seed, name in enumerate("abc")})
    result = run("map", tmp_path / "short.db", "--out", out)
    assert result.exit_code == 2 and "none of the 3 images could be used" in result.stderr
    write_database(tmp_path / "mixed.db", {"a": tables(20), "b": tables(20, 1, size=64)})
    result = run("map", tmp_path / "mixed.db", "--out", out.with_name("mixed"), "--defense", "raw")
    assert (
        result.exit_code == 2 and "128" in result.stderr and "64" in result.stderr and "Traceback" not in result.stderr
    )


def test_a_colmap_database_brings_its_cameras(run: Any, out: Path, tmp_path: Path) -> None:
    """Features of nowhere: none can be put together, which is said and has exit code 1."""
    write_database(tmp_path / "made_up.db", {f"{name}.jpg": tables(40, seed) for seed, name in enumerate("abc")})
    result = run("map", tmp_path / "made_up.db", "--out", out, "--json")
    assert result.exit_code == 1 and "no images could be put together" in result.stderr
    shown = json.loads(result.stdout)
    assert (shown["images"], shown["registered_images"], shown["picture"]) == (3, 0, None)
    assert content(out) == {"settings.json", "private.h5", "database.db"}
    with connected(out / "database.db") as connection:
        assert connection.execute("SELECT model, prior_focal_length FROM cameras").fetchall() == [(2, 1)]


def test_one_image_is_no_map(run: Any, files: RoomFiles, out: Path) -> None:
    result = run("map", files.images / "view00.png", "--out", out, "--max-features", 50)
    assert result.exit_code == 2 and "at least two images, got 1" in result.stderr


def test_without_pycolmap(refused: Any, files: RoomFiles, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("featveil.geometry.colmap._loaded", None)
    monkeypatch.setitem(sys.modules, "pycolmap", None)
    assert "pip install 'featveil[colmap]'" in refused("map", files.lifted, "--out", out)


def test_settings_that_cannot_be_read(refused: Any, files: RoomFiles, out: Path) -> None:
    out.mkdir()
    for text in ("{", "[]", "\0"):
        (out / "settings.json").write_text(text)
        assert "use another folder" in refused("map", files.lifted, "--out", out)
    (out.parent / "file").write_text("")
    assert "file" in refused("map", files.lifted, "--out", out.parent / "file")


def test_a_folder_that_is_not_ours(ran: Any, refused: Any, files: RoomFiles, out: Path, tmp_path: Path) -> None:
    """Neither somebody's database, with descriptors in it, nor a model of other images ends up beside private ones."""
    for name in ("database.db", "features.h5", "points3D.bin"):
        out.mkdir(exist_ok=True)
        (out / name).write_bytes(b"theirs")
        assert f"has a {name} that was not made here" in refused("map", files.lifted, "--out", out)
        assert content(out) == {name}
        (out / name).unlink()
    assert "lies in" in refused("map", files.images, "--out", files.images / "map")


def test_an_image_that_is_gone_is_not_mapped_on(ran: Any, refused: Any, files: RoomFiles, out: Path) -> None:
    photos = out.parent / "photos"
    shutil.copytree(files.images, photos)
    for defense in ("raw", "lifting"):
        command = ("map", photos, "--out", out.with_name(defense), "--defense", defense, "--max-features", 300)
        ran(*command)
        (photos / "view05.png").rename(photos / "view09.png")
        assert "'view05.png', which is not in" in refused(*command)
        (photos / "view09.png").rename(photos / "view05.png")


def test_a_camera_of_another_size(run: Any, room: Room, files: RoomFiles, out: Path) -> None:
    cameras = out.with_name("cameras.txt")
    half = {
        name: Camera(camera.model, camera.width // 2, camera.height // 2, camera.parameters)
        for name, camera in room.scene.cameras.items()
    }
    write_queries(cameras, half)
    result = run("map", files.lifted, "--out", out, "--cameras", cameras)
    assert result.exit_code == 2 and "is for 160 x 120 pixels" in result.stderr
    assert content(out) == {"settings.json"}
    write_queries(cameras, {"other.png": half[room.names[0]]})
    result = run("map", files.lifted, "--out", out.with_name("warned"), "--cameras", cameras)
    assert "names none for 6 of 6 images" in result.stderr
