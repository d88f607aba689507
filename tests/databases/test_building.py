"""Building: from images, feature files and arrays; broken parts, interruptions, full disks."""

import errno
import json
import logging
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from featveil.core import FormatError, InputError
from featveil.core.descriptors import Points
from featveil.core.features import Features, Keypoints
from featveil.core.files import locked
from featveil.databases import Database, Recipe, build, sampling
from featveil.databases.building import discard_work
from featveil.databases.entries import unit_rows

SMALL = Recipe(clusters=32, parts=4, max_per_image=60, iterations=3)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five small textured pictures, one file that is none."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(5):
        noise = np.random.default_rng(number).integers(0, 256, (120, 160)).astype(np.float32)
        smooth = cv2.GaussianBlur(noise, (0, 0), 1.5)
        cv2.imwrite(str(folder / f"{number}.png"), cv2.normalize(smooth, smooth, 0, 255, cv2.NORM_MINMAX))
    (folder / "2broken.jpg").write_bytes(b"\xff\xd8 this is no picture")
    return folder


@pytest.fixture
def array(tmp_path: Path) -> Path:
    np.save(tmp_path / "a.npy", np.random.default_rng(0).normal(size=(500, 10)))
    return tmp_path / "a.npy"


def test_images_with_a_broken_one(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        database = build([photos], SMALL)
    assert [record.message for record in caplog.records if "2broken.jpg" in record.message]
    assert len(caplog.records) == 1
    assert (len(database), database.size, database.kind, database.parts) == (32, 128, "sift", 4)
    assert database.values.dtype == np.uint8
    card = database.card
    assert (card["images"], card["images_skipped"]) == (5, 1)
    assert card["descriptors_found"] == card["descriptors_used"] <= 5 * 60
    assert card["source"] == photos.name
    assert card["recipe"] == {
        "kind": "sift",
        "clusters": 32,
        "parts": 4,
        "max_per_image": 60,
        "max_descriptors": 39 * 32,
        "iterations": 3,
        "seed": 0,
    }


def test_the_same_seed_gives_the_same_database_and_another_another(photos: Path) -> None:
    first = build([photos], SMALL)
    assert build([photos], SMALL).digest == first.digest
    other = Recipe(clusters=32, parts=4, max_per_image=60, iterations=3, seed=1)
    assert build([photos], other).digest != first.digest


@pytest.mark.parametrize("after", [1, 2, 4])
def test_stopped_again_and_again_gives_the_same(photos: Path, tmp_path: Path, after: int) -> None:
    """Every run stops after `after` steps of progress, in extraction as in clustering."""
    recipe = Recipe(clusters=32, parts=4, max_per_image=60, max_descriptors=150, iterations=4)
    straight = build([photos], recipe)
    loaded: list[int] = []

    def stop() -> Any:
        calls = 0

        def progress(stage: str, done: int, total: int) -> None:
            nonlocal calls
            calls += 1
            if stage == "extract":
                loaded.append(done)
            if calls == after:
                raise KeyboardInterrupt

        return progress

    for _ in range(20):
        try:
            resumed = build([photos], recipe, tmp_path / "work", progress=stop())
            break
        except KeyboardInterrupt:
            continue
    assert loaded == [1, 2, 3, 4, 5, 6]  # no image twice
    assert resumed.digest == straight.digest
    assert resumed.card == straight.card


def test_stopped_in_the_middle_of_an_image(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = Recipe(clusters=32, parts=4, max_per_image=60, max_descriptors=100, iterations=2)
    write = sampling._write
    calls = 0

    def half(rows: Any, slots: Any, file: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            write(rows[: len(rows) // 2], slots[: len(rows) // 2], file)
            raise KeyboardInterrupt
        write(rows, slots, file)

    with monkeypatch.context() as patch:
        patch.setattr(sampling, "_write", half)
        with pytest.raises(KeyboardInterrupt):
            build([photos], recipe, tmp_path / "work")
    manifest = tmp_path / "work" / sampling.MANIFEST
    manifest.write_text(manifest.read_text() + '{"done": 4, "im')  # a line that was being written
    assert build([photos], recipe, tmp_path / "work").digest == build([photos], recipe).digest


def test_a_work_folder_of_another_build_is_refused(photos: Path, array: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    build([photos], SMALL, work)
    with pytest.raises(InputError, match="another build"):
        build([photos], Recipe(clusters=31, parts=4), work)
    with pytest.raises(InputError, match="another build"):
        build([photos, array], SMALL, work)
    (work / sampling.MANIFEST).write_text("rubbish\n")
    with pytest.raises(FormatError, match="delete its folder"):
        build([photos], SMALL, work)


def test_a_work_folder_in_use_is_refused(photos: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    with locked(work / "lock"), pytest.raises(InputError, match="another process is at work"):
        build([photos], SMALL, work)
    assert len(build([photos], SMALL, work)) == SMALL.clusters


def test_discarding_work_leaves_strangers_files(photos: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    build([photos], SMALL, work)
    assert any(work.iterdir())
    (work / "letter.txt").write_text("mine")
    discard_work(work)
    assert [path.name for path in work.iterdir()] == ["letter.txt"]
    (work / "letter.txt").unlink()
    discard_work(work)
    assert not work.exists()
    discard_work(work)


def test_too_few_descriptors_says_how_many(photos: Path) -> None:
    with pytest.raises(InputError, match=r"\d+ descriptors \(from 5 images\) are too few for 4096 clusters"):
        build([photos], Recipe(clusters=4096, max_per_image=10))


def test_a_full_disk_while_extracting(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = sampling._write
    calls = 0

    def full(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(sampling, "_write", full)
        with pytest.raises(InputError, match="No space left on device; run the same again"):
            build([photos], SMALL, tmp_path / "work")
    assert build([photos], SMALL, tmp_path / "work").digest == build([photos], SMALL).digest


def test_every_descriptor_is_kept_with_its_label_without_clustering(array: Path) -> None:
    values = np.load(array).astype(np.float32)
    labels = np.arange(500) % 7
    database = build([array], Recipe(kind="face", clusters=0), labels=labels)
    assert database.labels is not None
    assert database.values.dtype == np.float32
    order = np.argsort(database.values[:, 0])
    expected = np.argsort(values[:, 0])
    np.testing.assert_array_equal(database.values[order], values[expected])
    np.testing.assert_array_equal(database.labels[order], labels[expected])
    assert database.card["images"] == 0
    with pytest.raises(InputError, match="labels"):
        build([array], Recipe(kind="face", clusters=0), labels=labels[:-1])
    with pytest.raises(InputError, match="clusters=0"):
        build([array], Recipe(kind="face", clusters=8, parts=2), labels=labels)


def test_zero_rows_are_left_out_of_clustering_only(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((100, 4))
    values[::2] = 0
    np.save(tmp_path / "z.npy", values)
    database = build([tmp_path / "z.npy"], Recipe(kind="face", clusters=5, parts=1))
    assert database.card["descriptors_used"] == 50
    with pytest.raises(InputError, match="zero"):
        build([tmp_path / "z.npy"], Recipe(kind="face", clusters=0))


def test_the_sample_is_uniform(tmp_path: Path) -> None:
    """Rows 1..40000 over three blocks: a sample of 4000 has their mean and spread, and no row twice."""
    values = np.arange(1, 40_001, dtype=np.float32)[:, None] * np.ones(2, np.float32)
    np.save(tmp_path / "n.npy", values)
    database = build([tmp_path / "n.npy"], Recipe(kind="count", clusters=0, max_descriptors=4000))
    drawn = database.values[:, 0]
    assert len(np.unique(drawn)) == 4000
    counts, _ = np.histogram(drawn, bins=8, range=(1, 40_001))
    assert np.abs(counts - 500).max() < 5 * np.sqrt(500)


def test_arrays_and_files_that_cannot_be_used(tmp_path: Path, array: Path) -> None:
    recipe = Recipe(kind="face", clusters=4, parts=1)
    for name, content, error in [
        ("flat.npy", np.ones(5), InputError),
        ("text.npy", np.array([["a"]]), InputError),
        ("none.npy", np.empty((0, 5)), InputError),
        ("nan.npy", np.full((5, 5), np.nan), InputError),
        ("other.npy", np.ones((5, 11)), InputError),
    ]:
        np.save(tmp_path / name, content)
        with pytest.raises(error):
            build([array, tmp_path / name], recipe)
    np.save(tmp_path / "object.npy", np.array([[{}]], object), allow_pickle=True)
    (tmp_path / "cut.npy").write_bytes(array.read_bytes()[:200])
    (tmp_path / "not.npy").write_bytes(b"hello")
    for name in ("object.npy", "cut.npy", "not.npy"):
        with pytest.raises(FormatError, match=name):
            build([tmp_path / name], recipe)
    (tmp_path / "x.txt").write_text("x")
    for source, message in [("x.txt", "expected a folder"), ("absent", "no folder or file")]:
        with pytest.raises(InputError, match=message):
            build([tmp_path / source], recipe)
    with pytest.raises(InputError, match="at least one source"):
        build([], recipe)


def test_kinds_that_cannot_be_extracted_are_one_error(photos: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InputError, match="cannot extract face"):
        build([photos], Recipe(kind="face"))
    assert not caplog.records


def features(number: int, count: int, kind: str = "sift") -> Features:
    rng = np.random.default_rng(number)
    values, xy = rng.random((count, 128), np.float32), rng.random((count, 2), np.float32)
    return Features(Points(values), kind, Keypoints(100 * xy))


def test_feature_files(tmp_path: Path) -> None:
    from featveil.formats import hloc, veil

    veil.save(features(0, 70), tmp_path / "one.veil")
    hloc.write_features(tmp_path / "two.h5", [("b/2.jpg", features(2, 40)), ("a.jpg", features(1, 100))])
    recipe = Recipe(clusters=16, parts=2, max_per_image=50)
    database = build([tmp_path / "one.veil", tmp_path / "two.h5"], recipe)
    assert database.card["images"] == 3
    assert database.card["descriptors_found"] == 50 + 50 + 40
    whole = build([tmp_path / "one.veil", tmp_path / "two.h5"], Recipe(clusters=0))
    assert len(whole) == 70 + 100 + 40
    first = unit_rows(features(2, 40).descriptors.values)[0]
    assert (whole.points() @ first).max() > 0.9999
    with pytest.raises(InputError, match="holds sift descriptors, asked for kind rootsift"):
        build([tmp_path / "one.veil"], Recipe(kind="rootsift", clusters=16))


def test_a_folder_of_feature_files(photos: Path, tmp_path: Path) -> None:
    from featveil.formats import veil

    folder = tmp_path / "features"
    (folder / "below").mkdir(parents=True)
    veil.save(features(0, 70, "hardtfeat"), folder / "a.jpg.veil")
    veil.save(features(1, 30, "hardtfeat"), folder / "below" / "b.jpg.veil")
    assert len(build([folder], Recipe(kind="hardtfeat", clusters=0))) == 100
    (folder / "c.png").write_bytes(next(photos.glob("*.png")).read_bytes())  # images are what a folder of both is for
    with pytest.raises(InputError, match="cannot extract hardtfeat descriptors from images"):
        build([folder], Recipe(kind="hardtfeat", clusters=0))


def test_stopped_within_an_hloc_file(tmp_path: Path) -> None:
    from featveil.formats import hloc

    hloc.write_features(tmp_path / "f.h5", [(f"{i}.jpg", features(i, 30)) for i in range(5)])
    recipe = Recipe(clusters=8, parts=2)

    def stop(stage: str, done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build([tmp_path / "f.h5"], recipe, tmp_path / "work", progress=stop)
    resumed = build([tmp_path / "f.h5"], recipe, tmp_path / "work")
    assert resumed.digest == build([tmp_path / "f.h5"], recipe).digest


@pytest.mark.parametrize(
    "wrong",
    [
        {"clusters": -1},
        {"parts": 0},
        {"clusters": 8, "parts": 16},
        {"max_per_image": 0},
        {"max_descriptors": 10},
        {"clusters": 0, "max_descriptors": 0},
        {"iterations": 0},
        {"seed": -1},
        {"kind": "Bad Kind"},
    ],
)
def test_recipes_that_cannot_be_followed(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Recipe(**wrong)


def test_entries_are_near_the_descriptors_they_stand_for(photos: Path) -> None:
    everything = build([photos], Recipe(clusters=0, parts=1, max_per_image=60)).points()
    clustered = build([photos], SMALL).points()
    noise = Database.from_array(np.random.default_rng(0).random((32, 128)), "sift").points()
    assert (everything @ clustered.T).max(axis=1).mean() > (everything @ noise.T).max(axis=1).mean() + 0.02
    assert json.dumps(build([photos], SMALL).card)
