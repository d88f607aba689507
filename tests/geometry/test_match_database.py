"""COLMAP's database: what is written can be read by COLMAP, descriptors are not among it, and it is all or none."""

import shutil
import sqlite3
import struct
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from colmap_databases import edit, tables, write_database
from featveil.core import Camera, Features, FormatError, InputError, Keypoints, Matches, Points
from featveil.core.arrays import Float32
from featveil.defenses import Lifting, privatize
from featveil.geometry.colmap import from_colmap, pycolmap, to_colmap
from featveil.geometry.map_images import MapImage, camera_from_exif, guess_camera, map_image
from featveil.geometry.match_database import (
    Pair,
    add_matches,
    matched_pairs,
    opened,
    stored_images,
    write_images,
    write_matches,
)
from featveil.geometry.sfm import build_map
from featveil.geometry.two_view import verify
from rooms import STEADY, Room

PINHOLE = Camera("PINHOLE", 640, 480, (500.0, 510.0, 320.0, 240.0))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "database.db"


def places(n: int, seed: int = 0) -> Float32:
    return np.random.default_rng(seed).uniform(0, 480, (n, 2)).astype(np.float32)


def image(n: int, camera: Camera = PINHOLE, known: bool = True) -> MapImage:
    return MapImage(places(n, n), camera, known)


def features(xy: Float32) -> Features:
    """Features at given places; their descriptors do not matter."""
    return Features(Points(np.eye(4, dtype=np.float32)[np.arange(len(xy)) % 4]), "sift", Keypoints(xy), (640, 480))


def match(*pairs: tuple[int, int]) -> Matches:
    return Matches(np.array(pairs, np.int64).reshape(-1, 2), np.zeros(len(pairs), np.float32))


def content(path: Path) -> list[str]:
    """All that a database holds."""
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def count(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def stored_matches(path: Path, first: str, second: str) -> list[list[int]]:
    """As pycolmap reads them."""
    with opened(path) as database:
        numbers = {image.name: image.image_id for image in database.read_all_images()}
        matches: list[list[int]] = database.read_matches(numbers[first], numbers[second]).tolist()
    return matches


def stored_cameras(path: Path) -> dict[str, tuple[int, Any]]:
    """The number and the camera that pycolmap reads for each image."""
    with opened(path) as database:
        cameras = {camera.camera_id: camera for camera in database.read_all_cameras()}
        return {image.name: (image.camera_id, cameras[image.camera_id]) for image in database.read_all_images()}


def three_images(path: Path) -> None:
    """Images of 5, 6 and 7 keypoints with two verified pairs, more or less."""
    write_images(path, {"a": image(5), "b": image(6), "c": image(7)})
    add_matches(path, [(("a", "b"), match((0, 1), (4, 5))), (("a", "c"), match((1, 6)))])
    with opened(path) as database:
        for other in (2, 3):
            database.write_two_view_geometry(1, other, pycolmap().TwoViewGeometry())


def test_images_are_read_by_colmap(path: Path) -> None:
    images = {"b/x.jpg": image(3), "a.jpg": image(4), "empty.jpg": image(0)}
    write_images(path, images)
    with opened(path) as database:
        numbers = {image.name: image.image_id for image in database.read_all_images()}
        assert numbers.keys() == images.keys()
        for name, number in numbers.items():
            keypoints = database.read_keypoints(number)
            assert keypoints.dtype == np.float32
            assert np.array_equal(keypoints, images[name].xy)
    for _, camera in stored_cameras(path).values():
        assert from_colmap(camera) == PINHOLE
        assert camera.has_prior_focal_length
    assert stored_images(path) == images.keys()


def test_images_are_added_to_those_that_are_there(path: Path) -> None:
    write_images(path, {"a": image(3)})
    write_images(path, {"b": image(4)})
    assert stored_images(path) == {"a", "b"}
    before = content(path)
    with pytest.raises(InputError, match=r"image 'b' is in .*already"):
        write_images(path, {"c": image(5), "b": image(4)})
    assert content(path) == before


def test_matches_are_read_by_colmap_in_either_order(path: Path) -> None:
    write_images(path, {"a": image(5), "b": image(6)})
    add_matches(path, [(("b", "a"), match((5, 0), (2, 4)))])
    assert stored_matches(path, "b", "a") == [[5, 0], [2, 4]]
    assert stored_matches(path, "a", "b") == [[0, 5], [4, 2]]


def test_descriptors_are_never_written(path: Path, room: Room) -> None:
    one, two = room.names[:2]
    private = {name: privatize(room.features[name], Lifting(dimension=2)) for name in (one, two)}
    write_matches(path, private, [((one, two), match((0, 0)))])
    for database in (path, room.database):
        assert count(database, "keypoints") >= 2
        assert count(database, "descriptors") == 0


def test_equal_known_cameras_are_shared_and_guesses_are_not(path: Path) -> None:
    other = Camera("PINHOLE", 640, 480, (500.0, 510.0, 320.0, 241.0))
    images = {
        "a guess": image(1, PINHOLE, known=False),
        "known": image(1),
        "known too": image(1),
        "other": image(1, other),
        "second guess": image(1, PINHOLE, known=False),
    }
    write_images(path, images)
    cameras = stored_cameras(path)
    sharing = Counter(number for number, _ in cameras.values())
    assert sorted(sharing.values()) == [1, 1, 1, 2]
    assert cameras["known"][0] == cameras["known too"][0]
    for name, (_, camera) in cameras.items():
        assert camera.has_prior_focal_length == images[name].known, name


def test_every_camera_has_a_rig_and_every_image_a_frame(path: Path) -> None:
    write_images(path, {"a": image(1), "b": image(2), "c": image(3, PINHOLE, known=False)})
    with opened(path) as database:
        rigs = {rig.rig_id: rig.ref_sensor_id.id for rig in database.read_all_rigs()}
        assert sorted(rigs.values()) == sorted(camera.camera_id for camera in database.read_all_cameras())
        images = {image.image_id: image.camera_id for image in database.read_all_images()}
        shown = {data.id: rigs[frame.rig_id] for frame in database.read_all_frames() for data in frame.data_ids}
        assert shown == images


def test_a_database_of_an_older_colmap_stays_usable(tmp_path: Path, room: Room) -> None:
    """It has no rigs and frames; where an added image has, COLMAP wants all to have one."""
    old = tmp_path / "old.db"
    shutil.copy(room.database, old)
    edit(old, *(f"DELETE FROM {table}" for table in ("frame_data", "frames", "rigs")))
    write_images(old, {"new": image(9)})
    assert count(old, "rigs") == count(old, "cameras") == 2
    assert count(old, "frames") == count(old, "images") == len(room.names) + 1
    assert build_map(old, tmp_path / "model", STEADY).views.keys() == set(room.names)


def test_guessed_and_told_cameras(path: Path) -> None:
    whole = features(places(3))
    assert map_image(whole).camera == guess_camera((640, 480)) and not map_image(whole).known
    assert map_image(whole, PINHOLE).camera == PINHOLE and map_image(whole, PINHOLE).known
    with pytest.raises(InputError, match="image 'x' have no keypoints"):
        map_image(Features(whole.descriptors, "sift"), PINHOLE, "x")
    with pytest.raises(InputError, match="neither size nor camera of image 'x'"):
        map_image(Features(whole.descriptors, "sift", whole.keypoints), name="x")


def test_the_guess_is_that_of_colmap(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "plain.png"), np.zeros((240, 320, 3), np.uint8))
    assert guess_camera((320, 240)) == from_colmap(pycolmap().infer_camera_from_image(tmp_path / "plain.png"))


def write_jpeg(path: Path, size: tuple[int, int], millimetres: int) -> None:
    """A grey picture whose EXIF data have one entry, the focal length on 35 mm film."""
    plain = cv2.imencode(".jpg", np.full((size[1], size[0], 3), 128, np.uint8))[1].tobytes()
    entries = struct.pack("<HHHII", 1, 0x8769, 4, 1, 26) + struct.pack("<I", 0)
    entries += struct.pack("<HHHIHH", 1, 0xA405, 3, 1, millimetres, 0) + struct.pack("<I", 0)
    exif = b"Exif\0\0" + b"II*\0" + struct.pack("<I", 8) + entries
    path.write_bytes(plain[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + plain[2:])


def test_cameras_from_exif(tmp_path: Path) -> None:
    write_jpeg(tmp_path / "photo.jpg", (320, 240), 35)
    camera = camera_from_exif(tmp_path / "photo.jpg")
    assert camera is not None and (camera.width, camera.height) == (320, 240)
    # The diagonal of 35 mm film is 43.27 mm, that of the picture 400 pixels.
    assert camera.parameters[0] == pytest.approx(35 / 43.27 * 400, rel=1e-3)


def test_files_that_tell_no_camera(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "plain.png"), np.zeros((240, 320, 3), np.uint8))
    (tmp_path / "junk.jpg").write_bytes(b"junk")
    for name in ("plain.png", "junk.jpg", "missing.jpg"):
        assert camera_from_exif(tmp_path / name) is None


def write_as_colmap(path: Path, images: dict[str, Float32]) -> None:
    """A database as COLMAP's feature extraction leaves it: keypoints with scale and orientation."""
    module = pycolmap()
    with module.Database.open(path) as database:
        camera = database.write_camera(to_colmap(PINHOLE))
        rig = module.Rig()
        rig.add_ref_sensor(module.sensor_t(module.SensorType.CAMERA, camera))
        rig.rig_id = database.write_rig(rig)
        for name, xy in images.items():
            image = module.Image(name=name, camera_id=camera)
            image.image_id = database.write_image(image)
            frame = module.Frame()
            frame.rig_id = rig.rig_id
            frame.add_data_id(image.data_id)
            database.write_frame(frame)
            database.write_keypoints(image.image_id, np.hstack([xy, np.ones_like(xy)]))


def test_matches_are_translated_to_keypoints_in_another_order(path: Path) -> None:
    xy = {name: places(40, seed) for seed, name in enumerate(("a", "b", "new"))}
    theirs = {name: np.random.default_rng(9).permutation(xy[name]) for name in ("b", "a")}
    write_as_colmap(path, theirs)
    # Of b the features are only some of the keypoints; "new" is not in the database at all.
    sides = {"a": features(xy["a"]), "b": features(xy["b"][:20]), "new": features(xy["new"])}
    pairs = [(3, 7), (0, 19), (39, 0)]
    write_matches(path, sides, [(("a", "b"), match(*pairs)), (("new", "a"), match((5, 6)))])
    for (one, two), (first, second) in zip(stored_matches(path, "a", "b"), pairs, strict=True):
        assert np.array_equal(theirs["a"][one], xy["a"][first])
        assert np.array_equal(theirs["b"][two], xy["b"][second])
    ((one, two),) = stored_matches(path, "new", "a")
    assert one == 5 and np.array_equal(theirs["a"][two], xy["a"][6])
    assert stored_images(path) == {"a", "b", "new"}


def test_keypoints_at_one_place_are_each_taken_once(path: Path) -> None:
    """SIFT gives a place two keypoints where it sees two orientations."""
    xy = places(4)[[0, 1, 1, 2, 1]]
    write_as_colmap(path, {"a": xy[::-1], "b": xy})
    write_matches(path, {"a": features(xy), "b": features(xy)}, [(("a", "b"), match(*((i, i) for i in range(5))))])
    matches = stored_matches(path, "a", "b")
    assert sorted(one for one, _ in matches) == sorted(two for _, two in matches) == [0, 1, 2, 3, 4]
    for one, two in matches:
        assert np.array_equal(xy[::-1][one], xy[two])


@pytest.mark.parametrize("other", [places(40, 5), places(41, 0), places(40)[[0, *range(39)]], places(40) + 0.25])
def test_other_keypoints_are_refused(path: Path, other: Float32) -> None:
    write_as_colmap(path, {"a": places(40), "b": places(40)})
    before = content(path)
    sides = {"a": features(other), "b": features(places(40)), "new": features(places(3))}
    with pytest.raises(InputError, match="keypoints of image 'a' are not those in the database"):
        write_matches(path, sides, [(("b", "new"), match((0, 0)))])
    assert content(path) == before


def test_matches_of_a_pair_are_replaced_and_its_geometry_dropped(path: Path) -> None:
    three_images(path)
    add_matches(path, [(("b", "a"), match((3, 3)))])
    assert stored_matches(path, "a", "b") == [[3, 3]]
    assert stored_matches(path, "a", "c") == [[1, 6]]
    with opened(path) as database:
        assert not database.exists_two_view_geometry(1, 2)
        assert database.exists_two_view_geometry(1, 3)


@pytest.mark.parametrize(
    ("pair", "matches", "message"),
    [
        (("a", "x"), match((0, 0)), "no image 'x'"),
        (("x", "a"), match(), "no image 'x'"),
        (("a", "b"), match((5, 0)), "image 'a' does not have: it has 5"),
        (("a", "b"), match((0, 0), (0, 6)), "image 'b' does not have: it has 6"),
        (("a", "b"), match((-1, 0)), "image 'a' does not have"),
    ],
)
def test_matches_that_cannot_be(path: Path, pair: Pair, matches: Matches, message: str) -> None:
    three_images(path)
    before = content(path)
    with pytest.raises(InputError, match=message):
        add_matches(path, [(("b", "c"), match((0, 0))), (pair, matches)])
    sides = {name: features(image(n).xy) for name, n in (("a", 5), ("b", 6), ("c", 7))}
    with pytest.raises(InputError, match=message):
        write_matches(path, sides, [(("b", "c"), match((0, 0))), (pair, matches)])
    assert content(path) == before


def test_matches_of_an_image_that_has_no_keypoints_yet(path: Path) -> None:
    three_images(path)
    edit(path, "DELETE FROM keypoints WHERE image_id = 2")
    with pytest.raises(InputError, match="image 'b' does not have: it has 0"):
        add_matches(path, [(("a", "b"), match((0, 0)))])


def test_matches_of_features_that_are_not_given(path: Path) -> None:
    three_images(path)
    with pytest.raises(InputError, match="no image 'c' in the features"):
        write_matches(path, {"a": features(image(5).xy)}, [(("a", "c"), match((0, 0)))])


def broken_off(error: BaseException) -> Iterator[tuple[Pair, Matches]]:
    yield ("a", "b"), match((2, 2))
    yield ("b", "c"), match((1, 1))
    raise error


@pytest.mark.parametrize("error", [KeyError("x"), RuntimeError("x"), KeyboardInterrupt(), InputError("x")])
def test_an_error_in_the_middle_leaves_the_database_as_it_was(path: Path, error: BaseException) -> None:
    three_images(path)
    before = content(path)
    with pytest.raises(type(error)):
        add_matches(path, broken_off(error))
    assert content(path) == before
    sides = {name: features(image(n).xy) for name, n in (("a", 5), ("b", 6), ("c", 7), ("new", 8))}
    with pytest.raises(type(error)):
        write_matches(path, sides, broken_off(error))
    assert content(path) == before
    assert [path.name for path in path.parent.iterdir()] == ["database.db"]


def test_an_error_in_the_middle_leaves_no_new_database(path: Path) -> None:
    sides = {name: features(places(9)) for name in "abc"}
    with pytest.raises(KeyboardInterrupt):
        write_matches(path, sides, broken_off(KeyboardInterrupt()))
    with pytest.raises(InputError, match="NOPE"):
        write_images(path, {"a": image(3), "b": image(3, Camera("NOPE", 640, 480, (1.0,)))})
    assert list(path.parent.iterdir()) == []


def test_a_database_that_another_program_writes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    three_images(path)
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0))
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(InputError, match=r"cannot write .*locked"):
            add_matches(path, [(("a", "b"), match((0, 0)))])
    add_matches(path, [(("a", "b"), match((0, 0)))])
    assert stored_matches(path, "a", "b") == [[0, 0]]


def test_which_pairs_are_matched(path: Path) -> None:
    three_images(path)
    add_matches(path, [(("c", "b"), match())])
    edit(path, "INSERT INTO matches VALUES (2147483647000, 0, 2, NULL)")  # of images that are gone
    assert matched_pairs(path) == {(x, y) for x in "abc" for y in "abc" if x != y}


USES: list[Callable[[Path], object]] = [
    stored_images,
    matched_pairs,
    verify,
    lambda path: write_images(path, {"new": image(3)}),
    lambda path: add_matches(path, []),
    lambda path: write_matches(path, {"new": features(places(3))}, []),
    lambda path: build_map(path, path.parent / "model"),
]


@pytest.mark.parametrize("use", USES)
def test_folders_and_files_that_are_no_database(tmp_path: Path, use: Callable[[Path], object]) -> None:
    with pytest.raises(InputError, match="is a folder"):
        use(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        use(tmp_path / "no folder" / "database.db")
    for name, spoilt in (("text", b"not a database " * 50), ("magic", b"SQLite format 3\0" + b"x" * 500)):
        (tmp_path / name).write_bytes(spoilt)
        with pytest.raises(FormatError, match="not an SQLite database, or it is damaged"):
            use(tmp_path / name)
        assert (tmp_path / name).read_bytes() == spoilt
    assert sorted(path.name for path in tmp_path.iterdir()) == ["magic", "text"]


@pytest.mark.parametrize("use", USES)
def test_a_database_of_another_program_is_left_alone(path: Path, use: Callable[[Path], object]) -> None:
    """pycolmap would add its tables to it."""
    edit(path, "CREATE TABLE notes (text)", "INSERT INTO notes VALUES ('mine')")
    before = path.read_bytes()
    with pytest.raises(FormatError, match="not a COLMAP database"):
        use(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("use", [stored_images, matched_pairs, verify])
def test_reading_does_not_make_a_database(path: Path, use: Callable[[Path], object]) -> None:
    with pytest.raises(InputError, match="does not exist"):
        use(path)
    assert not path.exists()


@pytest.mark.parametrize("use", [stored_images, lambda path: write_images(path, {"new": image(3)})])
def test_a_damaged_database(path: Path, use: Callable[[Path], object]) -> None:
    write_database(path, {f"{n:09d}.jpg": tables(1, size=1) for n in range(500)})
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(FormatError):
        use(path)


def test_a_large_file_is_not_read_whole(path: Path) -> None:
    three_images(path)
    junk = path.with_name("junk.db")
    junk.write_bytes(b"junk")
    for large in (path, junk):
        with large.open("r+b") as file:
            file.truncate(2**28)  # without taking room on the disk
    tracemalloc.start()
    assert stored_images(path) == {"a", "b", "c"}
    with pytest.raises(FormatError):
        stored_images(junk)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20
