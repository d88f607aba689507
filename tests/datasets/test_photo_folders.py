"""Folders of photographs without poses, and their calibration."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from featveil.core import Camera, DatasetError
from featveil.datasets import load_map_scenes, load_photos

FULL = "1000 0 640\n0 1010 480\n0 0 1\n"  # of images of 1280 x 960 pixels


def photo(path: Path, width: int = 64, height: int = 48) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), np.full((height, width), 128, np.uint8))


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    """Two photographs, at a twentieth of the full size."""
    for name in ("b.png", "a/1.jpg"):
        photo(tmp_path / "castle" / "images" / name)
    (tmp_path / "castle" / "images_K.txt").write_text(FULL)
    return tmp_path / "castle"


@pytest.mark.parametrize("place", ["images", "mapping", "."])
def test_names_without_calibration(tmp_path: Path, place: str) -> None:
    for name in ("b.png", "a/1.jpg"):
        photo(tmp_path / "tower" / place / name)
    for found in (load_photos(tmp_path / "tower"), *load_map_scenes(tmp_path / "tower")):
        assert (found.name, list(found.images)) == ("tower", ["a/1.jpg", "b.png"])
        assert found.images["b.png"] == tmp_path / "tower" / place / "b.png"
        assert (found.cameras, found.poses) == ({}, {})


def test_images_are_not_read_without_calibration(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"not read here")
    assert list(load_photos(tmp_path).images) == ["a.jpg"]


def test_the_calibration_is_scaled_to_the_images(scene: Path) -> None:
    expected = Camera("PINHOLE", 64, 48, (50.0, 50.5, 32.0, 24.0))
    assert load_photos(scene).cameras == dict.fromkeys(["a/1.jpg", "b.png"], expected)
    photo(scene / "images" / "b.png", 1280, 960)
    assert load_photos(scene).cameras["b.png"] == Camera("PINHOLE", 1280, 960, (1000.0, 1010.0, 640.0, 480.0))


def test_the_folder_of_the_images_is_the_scene_too(scene: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = load_photos(scene / "images")
    assert (found.name, list(found.images), len(found.cameras)) == ("castle", ["a/1.jpg", "b.png"], 2)
    monkeypatch.chdir(scene / "images")
    assert load_photos(".").name == "castle"


def test_photographs_of_another_shape_have_another_camera(scene: Path) -> None:
    photo(scene / "images" / "upright.png", 48, 64)
    with pytest.raises(DatasetError, match=r"images of about 1280 x 960 pixels, and upright\.png with 48 x 64"):
        load_photos(scene)


def test_a_damaged_photograph_has_no_camera(scene: Path) -> None:
    (scene / "images" / "c.png").write_bytes(b"no image")
    with pytest.raises(DatasetError, match=r"c\.png is no image"):
        load_photos(scene)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "nine finite numbers, got 0"),
        ("1 2 3", "nine finite numbers, got 3"),
        (f"{FULL} 7", "nine finite numbers, got 10"),
        ("a b c", "expected nine numbers as text"),
        (FULL.replace("640", "nan"), "nine finite numbers"),
        (FULL.replace("1000 0", "1000 3"), "must hold fx 0 cx"),
        (FULL.replace("0 0 1", "0 0 2"), "must hold fx 0 cx"),
        (FULL.replace("640", "-640"), "positive"),
        (FULL.replace("1010", "0"), "positive"),
    ],
)
def test_text_that_is_no_calibration(scene: Path, text: str, message: str) -> None:
    (scene / "images_K.txt").write_text(text)
    with pytest.raises(DatasetError, match=message) as caught:
        load_photos(scene)
    assert "images_K.txt" in str(caught.value)


def test_wrong_folders(tmp_path: Path, scene: Path) -> None:
    with pytest.raises(DatasetError, match="holds several scenes: name one of them, such as castle"):
        load_photos(tmp_path)
    with pytest.raises(DatasetError, match="not a folder"):
        load_photos(scene / "images" / "b.png")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match="no image in"):
        load_photos(tmp_path / "empty")


def test_real_photographs(real_data: Path) -> None:
    """One set is at half the size of its calibration, one has none."""
    castle = load_photos(real_data / "sfm_small" / "sceaux_castle")
    assert len(castle.images) == 11 and not castle.poses
    for camera in castle.cameras.values():
        assert (camera.width, camera.height) == (1416, 1064)
        np.testing.assert_allclose(camera.parameters, (2905.88 / 2, 2905.88 / 2, 708, 532))
    church = load_photos(real_data / "sfm_small" / "sacre_coeur")
    assert (church.name, len(church.images), church.cameras) == ("sacre_coeur", 10, {})
