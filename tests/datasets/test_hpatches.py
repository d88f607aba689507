"""The HPatches layout, and its pixel convention."""

from pathlib import Path

import numpy as np
import pytest

from featveil.core import DatasetError
from featveil.datasets import load_hpatches


def make_scene(root: Path, name: str, matrix: str = "1 0 0\n0 1 0\n0 0 1\n", suffix: str = ".ppm") -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    for number in range(1, 7):
        (folder / f"{number}{suffix}").write_bytes(b"not read here")
    for number in range(2, 7):
        (folder / f"H_1_{number}").write_text(matrix)
    return folder


def test_pairs_of_all_scenes_in_order(tmp_path: Path) -> None:
    root = tmp_path / "scenes"
    make_scene(root, "v_wall", suffix=".png")
    make_scene(root, "i_lamp")
    make_scene(root, "other", suffix=".jpg")
    (root / ".cache").mkdir()
    dataset = load_hpatches(root)
    assert dataset.name == "scenes"
    assert [scene.name for scene in dataset.scenes] == ["i_lamp", "other", "v_wall"]
    assert [scene.change for scene in dataset.scenes] == ["illumination", None, "viewpoint"]
    pairs = list(dataset.pairs())
    assert [pair.number for pair in pairs] == [2, 3, 4, 5, 6] * 3
    assert (pairs[-1].first.name, pairs[-1].second.name, pairs[-1].scene) == ("1.png", "6.png", "v_wall")


def test_homographies_apply_to_our_keypoints(tmp_path: Path) -> None:
    # Twice the size, about the centre of the first pixel: (0.5, 0.5) stays, (10.5, 0.5) goes to (20.5, 0.5).
    make_scene(tmp_path, "a", "2 0 0\n0 2 0\n0 0 1\n")
    pair = next(load_hpatches(tmp_path).pairs())
    moved = pair.homography @ np.array([[0.5, 10.5], [0.5, 0.5], [1, 1]])
    np.testing.assert_allclose((moved[:2] / moved[2]).T, [[0.5, 0.5], [20.5, 0.5]])


@pytest.mark.parametrize("name", ["3.ppm", "H_1_4"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    (make_scene(tmp_path, "a") / name).unlink()
    with pytest.raises(DatasetError, match=f"lacks .*{name[0]}"):
        load_hpatches(tmp_path)


def test_two_files_for_one_image(tmp_path: Path) -> None:
    (make_scene(tmp_path, "a") / "1.png").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"both 1\.ppm and 1\.png"):
        load_hpatches(tmp_path)


@pytest.mark.parametrize("text", ["", "1 2 3", "1 0 0 0 1 0 0 0 nan", "a b c d e f g h i", "1 0 0 1 0 0 0 0 1"])
def test_text_that_is_no_homography(tmp_path: Path, text: str) -> None:
    (make_scene(tmp_path, "a") / "H_1_6").write_text(text)
    with pytest.raises(DatasetError, match="H_1_6"):
        load_hpatches(tmp_path)


def test_wrong_folders(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no scene"):
        load_hpatches(tmp_path)
    with pytest.raises(DatasetError, match="not a folder"):
        load_hpatches(tmp_path / "none")
    with pytest.raises(DatasetError, match="is one scene"):
        load_hpatches(make_scene(tmp_path, "a"))
