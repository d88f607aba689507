"""Models as values: read back from COLMAP's files of either kind, and refused when damaged."""

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from featveil.core import FormatError, InputError
from featveil.geometry.models import SparseModel, empty_model, load_reconstruction, read_model
from posed_scenes import project
from rooms import Room

FILES = ("cameras", "frames", "images", "points3D", "rigs")


def write_text(room: Room, folder: Path) -> Path:
    """The room's model in COLMAP's text files."""
    folder.mkdir()
    load_reconstruction(room.model).write_text(folder)
    return folder


def assert_equal(one: SparseModel, two: SparseModel, tolerance: float) -> None:
    assert list(one.views) == list(two.views)
    for name, view in one.views.items():
        other = two.views[name]
        assert view.camera == other.camera
        np.testing.assert_allclose(view.pose.rotation, other.pose.rotation, atol=tolerance)
        np.testing.assert_allclose(view.pose.translation, other.pose.translation, atol=tolerance)
        np.testing.assert_allclose(view.xy, other.xy, atol=tolerance)
        # Points may come in another order: compare where they are.
        assert np.array_equal(view.points < 0, other.points < 0)
        seen = view.points >= 0
        np.testing.assert_allclose(one.points[view.points[seen]], two.points[other.points[seen]], atol=tolerance)
    assert np.array_equal(np.sort(one.track_lengths), np.sort(two.track_lengths))
    np.testing.assert_allclose(np.sort(one.errors), np.sort(two.errors), atol=max(tolerance, 1e-6))


def test_what_a_model_says_fits_together(room: Room) -> None:
    """Every view has all its keypoints, and its points are where the camera sees them."""
    model = room.map
    lengths: Counter[int] = Counter()
    for name, view in model.views.items():
        assert np.array_equal(view.xy, room.xy(name))
        seen = view.points >= 0
        assert seen.sum() > 100
        off = np.linalg.norm(
            project(model.points[view.points[seen]], view.camera, view.pose) - view.xy[seen].astype(np.float64), axis=1
        )
        assert off.max() <= 4  # pixels, where COLMAP drops an observation
        lengths.update(view.points[seen].tolist())
    assert [lengths[number] for number in range(len(model.points))] == model.track_lengths.tolist()
    assert model.mean_track_length == pytest.approx(np.mean(list(lengths.values())))
    assert 0 < model.mean_error < 1
    assert model.poses.keys() == model.views.keys()
    assert list(model.views) == sorted(room.names)


def test_binary_and_text_files(tmp_path: Path, room: Room) -> None:
    assert_equal(read_model(room.model), room.map, tolerance=0)
    assert_equal(read_model(str(write_text(room, tmp_path / "text"))), room.map, tolerance=1e-5)


def test_a_model_of_an_older_colmap(tmp_path: Path, room: Room) -> None:
    """It has no rigs and frames; poses are with the images."""
    for name in ("cameras", "images", "points3D"):
        shutil.copy(room.model / f"{name}.bin", tmp_path)
    assert_equal(read_model(tmp_path), room.map, tolerance=1e-12)


def test_images_without_a_pose_are_left_out(tmp_path: Path, room: Room) -> None:
    reconstruction = load_reconstruction(room.model)
    gone = reconstruction.find_image_with_name(room.names[2])
    reconstruction.deregister_frame(gone.frame_id)
    reconstruction.write_binary(tmp_path)
    assert read_model(tmp_path).views.keys() == set(room.names) - {room.names[2]}


def test_an_empty_model() -> None:
    model = empty_model()
    assert model.views == {}
    assert model.poses == {}
    assert model.points.shape == (0, 3)
    assert model.mean_track_length == model.mean_error == 0


def test_a_model_without_points(tmp_path: Path, room: Room) -> None:
    reconstruction = load_reconstruction(room.model)
    reconstruction.delete_all_points2D_and_points3D()
    reconstruction.write_binary(tmp_path)
    model = read_model(tmp_path)
    assert model.points.shape == (0, 3)
    assert all(view.xy.shape == (0, 2) and view.points.shape == (0,) for view in model.views.values())


def test_where_there_is_no_model(tmp_path: Path, room: Room) -> None:
    shutil.copytree(room.model, tmp_path / "part")
    (tmp_path / "part" / "images.bin").unlink()
    (tmp_path / "part" / "images.txt").write_text("")
    (tmp_path / "file").write_text("")
    for folder in (tmp_path, tmp_path / "part", tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(InputError, match="holds no COLMAP model"):
            read_model(folder)


@pytest.mark.parametrize("ending", ["bin", "txt"])
@pytest.mark.parametrize("part", FILES)
def test_files_that_are_cut_off(tmp_path: Path, room: Room, part: str, ending: str) -> None:
    """Refused, and at once; what is left of a text file may make sense, with fewer images."""
    folder = tmp_path / "model"
    if ending == "txt":
        write_text(room, folder)
    else:
        shutil.copytree(room.model, folder)
    spoilt = folder / f"{part}.{ending}"
    whole = spoilt.read_bytes()
    for length in {0, 7, 8, 9, len(whole) // 3, len(whole) // 2, len(whole) - 9}:
        spoilt.write_bytes(whole[:length])
        try:
            model = read_model(folder)
        except FormatError:
            continue
        assert ending == "txt" and model.views.keys() <= set(room.names)


@pytest.mark.parametrize("part", FILES)
def test_files_with_wrong_bytes(tmp_path: Path, room: Room, part: str) -> None:
    """Nothing but FormatError is raised; a byte that does no harm may go unseen."""
    folder = tmp_path / "model"
    shutil.copytree(room.model, folder)
    spoilt = folder / f"{part}.bin"
    whole, rng = spoilt.read_bytes(), np.random.default_rng(0)
    refused = 0
    for _ in range(20):
        wrong = bytearray(whole)
        for place in rng.integers(0, min(len(whole), 200), 3):
            wrong[place] = rng.integers(256)
        spoilt.write_bytes(wrong)
        try:
            read_model(folder)
        except FormatError as error:
            assert str(folder) in str(error)
            refused += 1
    assert refused > 5


def test_points_that_are_nowhere(tmp_path: Path, room: Room) -> None:
    folder = write_text(room, tmp_path / "text")
    lines = (folder / "points3D.txt").read_text().splitlines()
    number, _, *others = lines[-1].split()
    (folder / "points3D.txt").write_text("\n".join([*lines[:-1], " ".join([number, "nan", *others])]) + "\n")
    with pytest.raises(FormatError, match="damaged"):
        read_model(folder)
