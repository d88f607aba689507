"""Matches -> COLMAP's database.db: cameras, keypoints and matches. Descriptors are never written.

COLMAP makes the file and reads it. What is written goes through SQLite: pycolmap's transaction is committed also when
its block fails, and a commit that fails goes unseen.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from featveil.core import Camera, Features, FeatveilError, FormatError, InputError, Matches, PrivateFeatures
from featveil.core.arrays import Float32, Integers
from featveil.core.files import replacing
from featveil.formats import colmap_database
from featveil.geometry.colmap import from_colmap, pycolmap, to_colmap
from featveil.geometry.map_images import MapImage, map_image, positions
from featveil.geometry.places import in_half_precision

Pair = tuple[str, str]

_CAMERA = 0  # among COLMAP's types of sensors


def write_images(path: str | Path, images: Mapping[str, MapImage]) -> None:
    """Add images with their keypoints to the database at `path`, which is made when missing; all or none.

    Equal known cameras among them are shared. An image of that name must not be there. Raises InputError and
    FormatError.
    """
    with _transaction(path) as connection:
        if taken := sorted(images.keys() & _identities(connection).keys()):
            raise InputError(f"image {taken[0]!r} is in {path} already")
        _add_images(connection, images)


def write_matches(
    path: str | Path,
    sides: Mapping[str, Features | PrivateFeatures],
    matches: Iterable[tuple[Pair, Matches]],
) -> None:
    """Write matches between named features into the database at `path`, which is made when missing; all or none.

    Images that are not there are added with a guessed camera. Where an image is there, its keypoints may have another
    order but must lie at the same places; matches are translated to them, and those of a pair replaced. Raises
    InputError for other keypoints or unknown features, and FormatError when the file is no COLMAP database.
    """
    path = Path(path)
    counts = {name: len(features) for name, features in sides.items()}
    translations = _translations(path, sides) if path.exists() else {}
    with _transaction(path) as connection:
        new = {name: map_image(features, name=name) for name, features in sides.items() if name not in translations}
        _add_images(connection, new)
        identities = _identities(connection)
        for pair, own in matches:
            _check(own, pair, counts, "the features")
            _replace_matches(connection, pair, identities, _translated(own, pair, translations))


def add_matches(path: str | Path, matches: Iterable[tuple[Pair, Matches]]) -> None:
    """Write the matches of image pairs, all or none; those of a pair that is there are replaced, its geometry dropped.

    Raises InputError when an image, or one of its keypoints, is not in the database.
    """
    with _transaction(path) as connection:
        identities = _identities(connection)
        stored = "SELECT name, coalesce(rows, 0) FROM images LEFT JOIN keypoints USING (image_id)"
        counts = dict(connection.execute(stored))
        for pair, own in matches:
            _check(own, pair, counts, str(path))
            _replace_matches(connection, pair, identities, own.indices)


def check_images(path: str | Path, images: Mapping[str, MapImage]) -> None:
    """Raise InputError when one of `images`, all of which are in the database, has other keypoints or a camera there
    that is not the same."""
    with opened(path) as database:
        there = {image.name: image for image in database.read_all_images()}
        for name, image in images.items():
            stored = database.read_camera(there[name].camera_id)
            if from_colmap(stored) != image.camera or bool(stored.has_prior_focal_length) != image.known:
                raise InputError(f"image {name!r} has another camera in {path}: use another folder")
            xy = np.asarray(database.read_keypoints(there[name].image_id), np.float32)[:, :2]
            if not np.array_equal(xy.reshape(-1, 2), image.xy):
                raise InputError(f"image {name!r} has other keypoints in {path}: use another folder")


def stored_images(path: str | Path) -> set[str]:
    """The names of the images in the database."""
    with opened(path) as database:
        return {image.name for image in database.read_all_images()}


def matched_pairs(path: str | Path) -> set[Pair]:
    """The pairs that have matches in the database, even none, each in both orders."""
    colmap_database.check(path)
    with _transaction(path) as connection:
        names = {number: name for name, number in _identities(connection).items()}
        numbers = connection.execute("SELECT pair_id FROM matches").fetchall()  # pycolmap leaves out those without any
    stored = [pycolmap().pair_id_to_image_pair(number) for (number,) in numbers]
    both = [(names[one], names[two]) for one, two in stored if one in names and two in names]
    return {*both, *((two, one) for one, two in both)}


@contextmanager
def opened(path: str | Path) -> Iterator[Any]:
    """The database as pycolmap reads it, brought up to date when an older COLMAP made it.

    Raises InputError when there is none, and FormatError when the file is no COLMAP database or damaged.
    """
    path = Path(path)
    colmap_database.check(path)  # for pycolmap makes a database of any file that SQLite opens
    database = _open(path)
    try:
        yield database
    except FeatveilError:
        raise
    except (RuntimeError, ValueError, LookupError, MemoryError) as error:
        raise FormatError(f"the COLMAP database {path} is damaged") from error
    finally:
        database.close()


def _open(path: Path) -> Any:
    try:
        return pycolmap().Database.open(path)
    except RuntimeError as error:
        raise FormatError(f"COLMAP cannot open the database {path}: it is damaged, or may not be written") from error


@contextmanager
def _transaction(path: str | Path) -> Iterator[sqlite3.Connection]:
    """A connection that writes all that the block writes, or nothing; the database is made when missing."""
    path = Path(path)
    try:
        with ExitStack() as stack:
            if path.exists():
                target = path
                with opened(path):
                    pass
            else:
                target = stack.enter_context(replacing(path))
                _open(target).close()
            connection = stack.enter_context(closing(sqlite3.connect(target)))
            yield stack.enter_context(connection)
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise InputError(f"cannot write {path}: {error}") from error
        raise FormatError(f"the COLMAP database {path} is damaged or of an unknown version") from error


def _identities(connection: sqlite3.Connection) -> dict[str, int]:
    return dict(connection.execute("SELECT name, image_id FROM images"))


def _insert(connection: sqlite3.Connection, table: str, **values: str | int | bytes) -> int:
    """Add a row and return its number."""
    places = ", ".join("?" * len(values))
    inserted = connection.execute(
        f"INSERT INTO {table} ({', '.join(values)}) VALUES ({places})", tuple(values.values())
    )
    return inserted.lastrowid or 0


def _add_images(connection: sqlite3.Connection, images: Mapping[str, MapImage]) -> None:
    cameras: dict[Camera, int] = {}
    for name, image in sorted(images.items()):
        number = cameras.get(image.camera) if image.known else None
        if number is None:
            number = _add_camera(connection, image)
        if image.known:
            cameras[image.camera] = number
        identity = _insert(connection, "images", name=name, camera_id=number)
        xy = image.xy.astype("<f4").tobytes()
        _insert(connection, "keypoints", image_id=identity, rows=len(image.xy), cols=2, data=xy)
    if images:
        _complete_frames(connection)


def _add_camera(connection: sqlite3.Connection, image: MapImage) -> int:
    camera = to_colmap(image.camera)
    return _insert(
        connection,
        "cameras",
        model=int(camera.model),
        width=camera.width,
        height=camera.height,
        params=np.asarray(camera.params, "<f8").tobytes(),
        prior_focal_length=int(image.known),
    )


def _complete_frames(connection: sqlite3.Connection) -> None:
    """Give each camera that has none a rig of its own, and each image a frame.

    Also those that were there: COLMAP does without in a database of an older version, but not where some have one.
    """
    connection.execute(
        "INSERT INTO rigs (ref_sensor_id, ref_sensor_type) SELECT camera_id, ? FROM cameras WHERE camera_id NOT IN "
        "(SELECT ref_sensor_id FROM rigs WHERE ref_sensor_type = ? UNION "
        "SELECT sensor_id FROM rig_sensors WHERE sensor_type = ?)",
        (_CAMERA, _CAMERA, _CAMERA),
    )
    rigs = dict(connection.execute("SELECT ref_sensor_id, rig_id FROM rigs WHERE ref_sensor_type = ?", (_CAMERA,)))
    rigs.update(connection.execute("SELECT sensor_id, rig_id FROM rig_sensors WHERE sensor_type = ?", (_CAMERA,)))
    lacking = connection.execute(
        "SELECT image_id, camera_id FROM images WHERE image_id NOT IN "
        "(SELECT data_id FROM frame_data WHERE sensor_type = ?)",
        (_CAMERA,),
    )
    for image, camera in lacking.fetchall():
        frame = _insert(connection, "frames", rig_id=rigs[camera])
        _insert(connection, "frame_data", frame_id=frame, data_id=image, sensor_id=camera, sensor_type=_CAMERA)


def _check(matches: Matches, pair: Pair, counts: Mapping[str, int], where: str) -> None:
    """Refuse what would make COLMAP read beyond its keypoints."""
    for name, indices in zip(pair, matches.indices.T, strict=True):
        if name not in counts:
            raise InputError(f"there is no image {name!r} in {where}")
        if len(indices) and not 0 <= indices.min() <= indices.max() < counts[name]:
            raise InputError(f"a match names a keypoint that image {name!r} does not have: it has {counts[name]}")


def _replace_matches(
    connection: sqlite3.Connection, pair: Pair, identities: Mapping[str, int], indices: Integers
) -> None:
    one, two = (identities[name] for name in pair)
    number = pycolmap().image_pair_to_pair_id(one, two)
    connection.execute("DELETE FROM two_view_geometries WHERE pair_id = ?", (number,))
    connection.execute("DELETE FROM matches WHERE pair_id = ?", (number,))
    stored = indices if one < two else indices[:, ::-1]  # the image of the smaller number comes first
    _insert(connection, "matches", pair_id=number, rows=len(stored), cols=2, data=stored.astype("<u4").tobytes())


def _translations(path: Path, sides: Mapping[str, Features | PrivateFeatures]) -> dict[str, Integers]:
    """For each side that is in the database, where its features are among the keypoints there."""
    with opened(path) as database:
        there = {image.name: image.image_id for image in database.read_all_images()}
        return {
            name: _translation(np.asarray(database.read_keypoints(there[name]), np.float32)[:, :2], features, name)
            for name, features in sides.items()
            if name in there
        }


def _translation(stored: Float32, features: Features | PrivateFeatures, name: str) -> Integers:
    """For each feature the keypoint of the database at the same place; of several there, each is taken once."""
    ours = positions(features, name)
    for places in (ours, in_half_precision(ours)):
        waiting: dict[bytes, list[int]] = {}
        for index in reversed(range(len(stored))):
            waiting.setdefault(stored[index].tobytes(), []).append(index)
        with suppress(KeyError, IndexError):
            return np.array([waiting[place.tobytes()].pop() for place in places], np.int64)
    raise InputError(
        f"the keypoints of image {name!r} are not those in the database: use the features that it was made of"
    )


def _translated(matches: Matches, pair: Pair, translations: Mapping[str, Integers]) -> Integers:
    sides = zip(pair, matches.indices.T, strict=True)
    return np.stack([translations[name][side] if name in translations else side for name, side in sides], axis=1)
