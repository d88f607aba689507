"""COLMAP's database: what is read of it, and that nothing is written."""

import shutil
import sqlite3
import zlib  # noqa: F401  pycolmap corrupts the heap of whatever loads zlib after it
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colmap_databases import PARAMETERS, edit, tables, write_database
from featveil.core import Camera, InputError
from featveil.formats import colmap_database
from featveil.formats.camera_models import NAMES
from featveil.formats.camera_models import PARAMETERS as COUNTS

N = 6


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "database.db"


@pytest.fixture
def pycolmap() -> Any:
    return pytest.importorskip("pycolmap", reason="COLMAP itself: pip install 'featveil[colmap]'")


def unit(values: Any) -> Any:
    return values / np.linalg.norm(values.astype(np.float64), axis=1, keepdims=True)


def test_features_and_camera(path: Path) -> None:
    images = {"b.jpg": tables(N, 1), "a/x.jpg": tables(3, 2)}
    write_database(path, images)
    assert colmap_database.names(path) == ["a/x.jpg", "b.jpg"]
    for name, (keypoints, descriptors) in images.items():
        features = colmap_database.read(path, name)
        assert features.keypoints is not None and features.image_size == (640, 480)
        assert np.array_equal(features.keypoints.xy, keypoints[:, :2])
        np.testing.assert_allclose(features.descriptors.values, unit(descriptors), atol=1e-7)
        assert colmap_database.camera_of(path, name) == Camera("SIMPLE_RADIAL", 640, 480, PARAMETERS)


def test_the_kind_is_rootsift_unless_told(path: Path) -> None:
    write_database(path, {"a.jpg": tables(N)})
    assert colmap_database.kind_of(path, "a.jpg") is None
    assert colmap_database.read(path, "a.jpg").kind == "rootsift"
    assert colmap_database.read(path, "a.jpg", "sift").kind == "sift"
    with pytest.raises(InputError, match="lower-case"):
        colmap_database.read(path, "a.jpg", "Bad Kind")


def test_databases_from_before_methods_had_numbers(path: Path) -> None:
    write_database(path, {"a.jpg": tables(N)})
    edit(path, "ALTER TABLE descriptors DROP COLUMN type")
    assert colmap_database.kind_of(path, "a.jpg") is None
    assert colmap_database.read(path, "a.jpg").kind == "rootsift"


def test_methods_with_float_components(path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(N, 64)).astype("<f4")
    write_database(path, {"a.jpg": (tables(N)[0], values.view(np.uint8))}, method=2)
    assert colmap_database.kind_of(path, "a.jpg") == "aliked_n32"
    features = colmap_database.read(path, "a.jpg")
    assert features.kind == "aliked_n32"
    np.testing.assert_allclose(features.descriptors.values, unit(values), atol=1e-6)
    with pytest.raises(InputError, match="are aliked_n32, not rootsift"):
        colmap_database.read(path, "a.jpg", "rootsift")


def test_a_method_that_is_not_known_needs_a_name(path: Path) -> None:
    """It is not called rootsift, which it surely is not."""
    write_database(path, {"a.jpg": (tables(N)[0], np.ones((N, 8), "<f4").view(np.uint8))}, method=99)
    with pytest.raises(InputError, match="name their kind"):
        colmap_database.read(path, "a.jpg")
    assert colmap_database.read(path, "a.jpg", "newest").kind == "newest"


@pytest.mark.parametrize("columns", [2, 4, 6])
def test_what_keypoints_say(path: Path, columns: int) -> None:
    """Position, then scale and orientation in radians, or a matrix that says the same: here 2 and 30 degrees."""
    turn = np.radians(30)
    more = {2: [], 4: [2, turn], 6: [2 * np.cos(turn), -2 * np.sin(turn), 2 * np.sin(turn), 2 * np.cos(turn)]}
    keypoints = np.array([[10, 20, *more[columns]]], np.float32)
    write_database(path, {"a.jpg": (keypoints, tables(1)[1])})
    stored = colmap_database.read(path, "a.jpg").keypoints
    assert stored is not None and stored.xy.tolist() == [[10, 20]] and stored.response is None
    if columns == 2:
        assert stored.scale is None and stored.orientation is None
    else:
        assert stored.scale is not None and stored.orientation is not None
        np.testing.assert_allclose([stored.scale[0], stored.orientation[0]], [2, 30], rtol=1e-6)


def test_other_descriptor_sizes_and_no_features(path: Path) -> None:
    empty = (np.empty((0, 4), np.float32), np.empty((0, 128), np.uint8))
    write_database(path, {"wide.jpg": tables(N, size=200), "flat.jpg": empty})
    assert colmap_database.read(path, "wide.jpg").descriptors.values.shape == (N, 200)
    assert len(colmap_database.read(path, "flat.jpg")) == 0
    edit(path, "UPDATE keypoints SET data = NULL WHERE rows = 0")
    assert len(colmap_database.read(path, "flat.jpg")) == 0


def test_unknown_images(path: Path) -> None:
    write_database(path, {"a.jpg": tables(N)})
    for name in ("b.jpg", "", "../a.jpg", "A.JPG", "%"):
        for use in (colmap_database.kind_of, colmap_database.read, colmap_database.camera_of):
            with pytest.raises(InputError, match="has no image"):
                use(path, name)


def test_no_images(path: Path) -> None:
    write_database(path, {})
    with pytest.raises(InputError, match="holds no images: run COLMAP"):
        colmap_database.names(path)


def test_features_of_an_image_without_camera(path: Path) -> None:
    write_database(path, {"a.jpg": tables(N)})
    edit(path, "DELETE FROM cameras")
    assert colmap_database.read(path, "a.jpg").image_size is None


def test_which_files_are_databases(path: Path) -> None:
    write_database(path, {"a.jpg": tables(N)})
    other = path.rename(path.with_name("features"))
    assert colmap_database.is_database(other) and colmap_database.is_database("missing.DB")
    other.write_text("text")
    assert not colmap_database.is_database(other) and not colmap_database.is_database(path.with_name("missing"))
    assert not colmap_database.is_database(path.parent)


def test_a_path_with_signs_of_an_address(path: Path) -> None:
    strange = path.with_name("a#b?mode=rwc&c%20d.db")
    write_database(strange, {"a.jpg": tables(N)})
    assert colmap_database.names(strange) == ["a.jpg"]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_nothing_is_written(path: Path, mode: str) -> None:
    write_database(path, {"a.jpg": tables(N)})
    edit(path, f"PRAGMA journal_mode = {mode}")
    before = files(path.parent)
    assert list(before) == [path.name]
    colmap_database.names(path)
    colmap_database.read(path, "a.jpg")
    colmap_database.camera_of(path, "a.jpg")
    assert files(path.parent) == before


def test_what_is_in_a_log_counts(path: Path) -> None:
    """Of a program that still has the database open, or was stopped; SQLite may add an index of the log, no more."""
    write_database(path, {"old.jpg": tables(N)})
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("UPDATE images SET name = 'new.jpg'")
        writer.commit()
        assert colmap_database.names(path) == ["new.jpg"]
        crashed = path.with_name("crashed")
        crashed.mkdir()
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{path}{suffix}", crashed / f"{path.name}{suffix}")
    before = files(crashed)
    assert colmap_database.names(crashed / path.name) == ["new.jpg"]
    assert {name: content for name, content in files(crashed).items() if not name.endswith("-shm")} == before


def test_a_change_that_was_broken_off_is_not_read(path: Path) -> None:
    """The journal beside the file would take it back, which is not for a reader to do."""
    write_database(path, {f"{number}.jpg": tables(40, number) for number in range(9)})
    crashed = path.with_name("crashed")
    crashed.mkdir()
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA cache_size = 1")
        writer.execute("UPDATE images SET name = 'half/' || name")
        writer.execute("UPDATE descriptors SET data = zeroblob(length(data))")
        for suffix in ("", "-journal"):
            shutil.copyfile(f"{path}{suffix}", crashed / f"{path.name}{suffix}")
    before = files(crashed)
    with pytest.raises(InputError, match="another program"):
        colmap_database.names(crashed / path.name)
    assert files(crashed) == before


def test_what_colmap_writes(path: Path, pycolmap: Any) -> None:
    keypoints, descriptors = tables(N, columns=6)
    camera = pycolmap.Camera(model="OPENCV", width=800, height=600, params=[700, 710, 400, 300, 0, 0, 0, 0.1])
    with closing(pycolmap.Database.open(path)) as database:
        number = database.write_camera(camera)
        image = database.write_image(pycolmap.Image(name="db/1.jpg", camera_id=number))
        database.write_keypoints(image, keypoints)
        method = pycolmap.FeatureExtractorType.SIFT
        database.write_descriptors(image, pycolmap.FeatureDescriptors(method, descriptors))
    before = files(path.parent)
    assert colmap_database.names(path) == ["db/1.jpg"]
    features = colmap_database.read(path, "db/1.jpg")
    stored = features.keypoints
    assert stored is not None and stored.scale is not None and stored.orientation is not None
    assert features.image_size == (800, 600)
    np.testing.assert_allclose(features.descriptors.values, unit(descriptors), atol=1e-7)
    fields = ("x", "y", "a11", "a12", "a21", "a22")
    expected = [pycolmap.FeatureKeypoint(dict(zip(fields, row, strict=True))) for row in keypoints.tolist()]
    np.testing.assert_allclose(stored.scale, [each.compute_scale() for each in expected], rtol=1e-5)
    turns = np.degrees([each.compute_orientation() for each in expected])
    np.testing.assert_allclose(stored.orientation, turns, rtol=1e-5)
    parameters = (700.0, 710.0, 400.0, 300.0, 0.0, 0.0, 0.0, 0.1)
    assert colmap_database.camera_of(path, "db/1.jpg") == Camera("OPENCV", 800, 600, parameters)
    assert files(path.parent) == before == {path.name: before[path.name]}


def test_camera_models_are_those_of_colmap(pycolmap: Any) -> None:
    theirs = {int(number): name for name, number in pycolmap.CameraModelId.__members__.items() if int(number) >= 0}
    assert dict(enumerate(NAMES)).items() >= theirs.items()
    for name in theirs.values():
        camera = pycolmap.Camera.create_from_model_name(1, name, 500.0, 640, 480)
        assert len(camera.params) == COUNTS[name]
