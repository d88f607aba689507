"""The layout of Strecha's scenes, its pixel convention, and files that cannot be used."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from featveil.core import DatasetError
from featveil.datasets import MapScene, RenderedScene, load_map_scenes, load_strecha, render_scene
from featveil.datasets.strecha import has_strecha
from featveil.extractors import extract, read_image
from featveil.matching import match
from posed_scenes import matrix, write_strecha


@pytest.fixture(scope="module")
def room() -> RenderedScene:
    return render_scene(3, (64, 48))


@pytest.fixture
def folder(tmp_path: Path, room: RenderedScene) -> Path:
    write_strecha(room, tmp_path / "room")
    return tmp_path / "room"


def change(folder: Path, name: str = "view01.png", **fields: Any) -> None:
    """Set fields of one camera; None removes them."""
    entries = json.loads((folder / "cameras.json").read_text())
    entries[name] = {key: value for key, value in (entries[name] | fields).items() if value is not None}
    (folder / "cameras.json").write_text(json.dumps(entries))


def test_what_was_written_comes_back(folder: Path, room: RenderedScene) -> None:
    (scene,) = load_strecha(folder)
    assert scene.name == "room"
    assert list(scene.images) == list(room.images)
    for name, path in scene.images.items():
        assert np.array_equal(read_image(path), room.images[name])
        ours, theirs = scene.cameras[name], room.cameras[name]
        assert (ours.model, ours.width, ours.height) == ("PINHOLE", theirs.width, theirs.height)
        np.testing.assert_allclose(ours.parameters, theirs.parameters, rtol=1e-12)
        assert np.array_equal(scene.poses[name].rotation, room.poses[name].rotation)
        assert np.array_equal(scene.poses[name].translation, room.poses[name].translation)


def test_the_first_pixel_is_at_a_half(folder: Path) -> None:
    change(folder, K=[[50, 0, 31.5], [0, 60, 23.5], [0, 0, 1]])
    (scene,) = load_strecha(folder)
    assert scene.cameras["view01.png"].parameters == (50, 60, 32, 24)


def test_many_scenes_in_order_and_none(folder: Path, room: RenderedScene) -> None:
    write_strecha(room, folder.with_name("another"))
    folder.with_name("empty").mkdir()
    for load in (load_strecha, load_map_scenes):
        assert [scene.name for scene in load(folder.parent)] == ["another", "room"]
    assert has_strecha(folder) and has_strecha(folder.parent)
    for path in (folder.with_name("empty"), folder / "images"):
        assert not has_strecha(path)
        with pytest.raises(DatasetError, match=r"no scene in .*: expected cameras\.json"):
            load_strecha(path)
    with pytest.raises(DatasetError, match="not a folder"):
        load_strecha(folder / "cameras.json")


def test_images_are_not_read_and_cameras_may_be_too_many(folder: Path) -> None:
    (folder / "images" / "view00.png").unlink()
    (folder / "images" / "view01.png").write_bytes(b"not read here")
    (scene,) = load_strecha(folder)
    assert list(scene.images) == list(scene.cameras) == list(scene.poses) == ["view01.png", "view02.png"]


def test_an_image_without_camera(folder: Path) -> None:
    (folder / "images" / "deep").mkdir()
    (folder / "images" / "deep" / "more.png").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"image deep/more\.png has no camera in .*: 1 of 4 lack one"):
        load_strecha(folder)


def test_no_images(folder: Path) -> None:
    for path in (folder / "images").iterdir():
        path.unlink()
    with pytest.raises(DatasetError, match="keeps its images in a folder of that name: no image"):
        load_strecha(folder)
    (folder / "images").rmdir()
    with pytest.raises(DatasetError, match="is not a folder"):
        load_strecha(folder)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"K": None, "width": None}, "it lacks K, width"),
        ({"K": [[50, 0, 32], [0, 50, 24]]}, r"K must have shape \(3, 3\)"),
        ({"K": [[50, 0, 32], [0, 50, 24], [0, 0]]}, "not a rectangular array"),
        ({"K": [[50, 1, 32], [0, 50, 24], [0, 0, 1]]}, r"K must be \[\[fx, 0, cx\]"),
        ({"K": [[50, 0, 32], [0, 50, 24], [0, 0, 2]]}, r"K must be \[\[fx, 0, cx\]"),
        ({"K": [[50, 0, 32], [0, -50, 24], [0, 0, 1]]}, "positive focal lengths"),
        ({"K": [["a", "b", "c"]] * 3}, "real numbers"),
        ({"K": {}}, "shape"),
        ({"K": [[float("nan"), 0, 32], [0, 50, 24], [0, 0, 1]]}, "NaN"),
        ({"width": 64.5}, "whole numbers, got 64.5"),
        ({"height": True}, "whole numbers"),
        ({"height": 0}, "image size"),
        ({"R_world_to_cam": [[2, 0, 0], [0, 2, 0], [0, 0, 2]]}, "orthonormal"),
        ({"R_world_to_cam": [[1, 0, 0], [0, 1, 0], [0, 0, -1]]}, "determinant 1"),
        ({"t_world_to_cam": [1, 2]}, "translation must have shape"),
        ({"t_world_to_cam": [1, 2, 10**400]}, "real numbers"),
    ],
)
def test_cameras_that_cannot_be(folder: Path, fields: dict[str, Any], message: str) -> None:
    load_strecha(folder)
    change(folder, **fields)
    with pytest.raises(DatasetError, match=message) as caught:
        load_strecha(folder)
    assert str(caught.value).startswith("the camera of view01.png in ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected JSON"),
        ("{", "expected JSON"),
        ("\udcff", "expected JSON"),
        ("[" * 100_000, "expected JSON"),
        ("[]", "must map image names to cameras, got a list"),
        ("{}", "has no camera"),
        ('{"view00.png": 3, "view01.png": 3, "view02.png": 3}', "expected an object, got a int"),
    ],
)
def test_text_that_lists_no_cameras(folder: Path, text: str, message: str) -> None:
    (folder / "cameras.json").write_text(text, errors="surrogateescape")
    with pytest.raises(DatasetError, match=message):
        load_strecha(folder)


def test_a_list_of_cameras_that_is_too_long(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("featveil.datasets.strecha._LARGEST_TEXT", 100)
    with pytest.raises(DatasetError, match="no list of cameras"):
        load_strecha(folder)


def _epipolar_distances(scene: MapScene, first: str, second: str) -> Any:
    """How far matches lie, in pixels of the second image, from the line on which the true cameras put them."""
    features = [extract(scene.images[name], max_features=2000) for name in (first, second)]
    rows, columns = match(*features, ratio=0.7).indices.T
    one, two = (scene.poses[name] for name in (first, second))
    rotation = two.rotation @ one.rotation.T
    x, y, z = two.translation - rotation @ one.translation
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    inverse = [np.linalg.inv(matrix(scene.cameras[name])) for name in (first, second)]
    fundamental = inverse[1].T @ cross @ rotation @ inverse[0]
    here, there = (
        np.column_stack([each.keypoints.xy[chosen], np.ones(len(chosen))])  # type: ignore[union-attr]
        for each, chosen in zip(features, (rows, columns), strict=True)
    )
    lines = here @ fundamental.T
    return np.abs((lines * there).sum(axis=1)) / np.linalg.norm(lines[:, :2], axis=1)


def test_real_scenes(real_data: Path) -> None:
    """The original file of the first fountain camera has its place, and its principal point at twice the size."""
    castle, fountain = load_strecha(real_data / "strecha")
    assert (castle.name, fountain.name) == ("castle-P30", "fountain-P11")
    assert (len(castle.images), len(fountain.images)) == (30, 11)
    camera, pose = fountain.cameras["0000.jpg"], fountain.poses["0000.jpg"]
    expected = (2759.48 / 2, 2764.16 / 2, (1520.69 + 0.5) / 2, (1006.81 + 0.5) / 2)
    np.testing.assert_allclose(camera.parameters, expected, rtol=1e-9)
    np.testing.assert_allclose(pose.centre, [-7.28137, -7.57667, 0.204446], atol=1e-4)
    for scene in (castle, fountain):
        distances = _epipolar_distances(scene, "0004.jpg", "0005.jpg")
        assert len(distances) > 200 and np.median(distances) < 0.5, (scene.name, len(distances), np.median(distances))
