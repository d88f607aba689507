"""Matches -> COLMAP's database.db: cameras, keypoints and matches. Descriptors are never written."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from featveil.core import Camera, Features, FormatError, InputError, Matches, PrivateFeatures
from featveil.core.arrays import Float32, Integers
from featveil.core.files import check_folder
from featveil.geometry.colmap import pycolmap, to_colmap

Pair = tuple[str, str]

_FOCAL = 1.2  # of the longer side: COLMAP's guess for an unknown camera


@dataclass(frozen=True, eq=False)
class MapImage:
    """What mapping needs of an image: keypoints `xy` (n, 2), its camera, and whether that is known or a guess."""

    xy: Float32
    camera: Camera
    known: bool


def map_image(features: Features | PrivateFeatures, camera: Camera | None = None, name: str = "") -> MapImage:
    """Keypoints of `features` with their camera, which is guessed from the image size when it is not given.

    Raises InputError when there are no keypoints, or neither a camera nor an image size.
    """
    if features.keypoints is None:
        raise InputError(f"the features of image {name!r} have no keypoints, which mapping needs")
    if camera is None and features.image_size is None:
        raise InputError(f"neither size nor camera of image {name!r} is known: give its intrinsics")
    chosen = camera or guess_camera(features.image_size or (0, 0))
    return MapImage(features.keypoints.xy, chosen, camera is not None)


def guess_camera(size: tuple[int, int]) -> Camera:
    """The camera that COLMAP assumes of an image of `size` (width, height) when nothing is known."""
    width, height = size
    return Camera("SIMPLE_RADIAL", width, height, (_FOCAL * max(size), width / 2, height / 2, 0.0))


def camera_from_exif(path: Path) -> Camera | None:
    """The camera that the EXIF data of an image file tell of; None when they do not."""
    from featveil.geometry.colmap import from_colmap

    try:
        found = pycolmap().infer_camera_from_image(path)
    except (ValueError, RuntimeError):
        return None
    return from_colmap(found) if found.has_prior_focal_length else None


def write_images(path: str | Path, images: Mapping[str, MapImage]) -> None:
    """Add images with their keypoints to the database at `path`, which is made when missing.

    Equal known cameras are shared. An image of that name must not be there. Raises InputError and FormatError.
    """
    with _transaction(path) as database:
        there = _identities(database)
        if taken := sorted(set(images) & set(there)):
            raise InputError(f"image {taken[0]!r} is in {path} already")
        cameras: dict[Camera, int] = {}
        for name, image in sorted(images.items()):
            number = cameras.get(image.camera) if image.known else None
            if number is None:
                number = _write_camera(database, image)
                cameras[image.camera] = number
            _write_image(database, name, number, image.xy)


def write_matches(
    path: str | Path,
    sides: Mapping[str, Features | PrivateFeatures],
    matches: Iterable[tuple[Pair, Matches]],
) -> None:
    """Write matches between named features into the database at `path`, which is made when missing.

    Images that are not there are added with a guessed camera. Where an image is there, its keypoints may have another
    order but must lie at the same places; matches are translated to them, and those of a pair replaced. Raises
    InputError for other keypoints, and FormatError when the file is no COLMAP database; nothing is written then.
    """
    path = Path(path)
    with opened(path) as database:
        there = _identities(database)
    translations: dict[str, Integers] = {}
    for name in sorted(set(sides) & set(there)):
        with opened(path) as database:
            translations[name] = _translation(database, there[name], sides[name], name)
    write_images(path, {name: map_image(sides[name], name=name) for name in sorted(set(sides) - set(there))})
    add_matches(path, ((pair, _translated(found, pair, translations)) for pair, found in matches))


def add_matches(path: str | Path, matches: Iterable[tuple[Pair, Matches]]) -> None:
    """Write the matches of image pairs, all or none; those of a pair that is there are replaced, its geometry dropped.

    Raises InputError when an image is not in the database.
    """
    with _transaction(path) as database:
        identities = _identities(database)
        for (first, second), found in matches:
            for name in (first, second):
                if name not in identities:
                    raise InputError(f"{path} has no image {name!r}")
            one, two = identities[first], identities[second]
            if database.exists_matches(one, two):
                database.delete_matches(one, two)
            if database.exists_two_view_geometry(one, two):
                database.delete_two_view_geometry(one, two)
            database.write_matches(one, two, found.indices.astype(np.uint32))


def stored_images(path: str | Path) -> set[str]:
    """The names of the images in the database."""
    with opened(path) as database:
        return set(_identities(database))


def matched_pairs(path: str | Path) -> set[Pair]:
    """The pairs that have matches in the database, even none, each in both orders."""
    with opened(path) as database:
        names = {identity: name for name, identity in _identities(database).items()}
        found = [pycolmap().pair_id_to_image_pair(pair) for pair in database.read_num_matches()[0]]
    both = [(names[int(one)], names[int(two)]) for one, two in found]
    return {*both, *((two, one) for one, two in both)}


@contextmanager
def opened(path: str | Path) -> Iterator[Any]:
    """The database, made when missing; raises InputError and FormatError when it cannot be opened."""
    path = Path(path)
    check_folder(path.parent)
    if path.is_dir():
        raise InputError(f"{path} is a folder: name a database file")
    if path.exists() and path.stat().st_size and not path.read_bytes()[:16].startswith(b"SQLite format 3"):
        raise FormatError(f"{path} is not a COLMAP database")
    try:
        database = pycolmap().Database.open(path)
    except RuntimeError as error:
        raise FormatError(f"{path} cannot be opened as a COLMAP database") from error
    try:
        yield database
    except RuntimeError as error:
        raise FormatError(f"{path} is a damaged database, or the disk is full") from error
    finally:
        database.close()


@contextmanager
def _transaction(path: str | Path) -> Iterator[Any]:
    with opened(path) as database, pycolmap().DatabaseTransaction(database):
        yield database


def _identities(database: Any) -> dict[str, int]:
    return {image.name: int(image.image_id) for image in database.read_all_images()}


def _write_camera(database: Any, image: MapImage) -> int:
    module = pycolmap()
    number = int(database.write_camera(to_colmap(image.camera, known=image.known)))
    rig = module.Rig()
    rig.add_ref_sensor(module.sensor_t(module.SensorType.CAMERA, number))
    database.write_rig(rig)
    return number


def _write_image(database: Any, name: str, camera: int, xy: Float32) -> None:
    module = pycolmap()
    made = module.Image(name=name, camera_id=camera)
    made.image_id = database.write_image(made)
    frame = module.Frame()
    frame.rig_id = database.read_rig_with_sensor(module.sensor_t(module.SensorType.CAMERA, camera)).rig_id
    frame.add_data_id(made.data_id)
    database.write_frame(frame)
    database.write_keypoints(made.image_id, np.asarray(xy, np.float32))


def _translation(database: Any, identity: int, features: Features | PrivateFeatures, name: str) -> Integers:
    """For each feature the keypoint of the database at the same place; of several there, each is taken once."""
    stored = np.asarray(database.read_keypoints(identity), np.float32)[:, :2]
    ours = map_image(features, guess_camera((1, 1)), name).xy
    waiting: dict[bytes, list[int]] = {}
    for index in reversed(range(len(stored))):
        waiting.setdefault(stored[index].tobytes(), []).append(index)
    try:
        return np.array([waiting[place.tobytes()].pop() for place in ours], np.int64)
    except (KeyError, IndexError) as error:
        raise InputError(f"the keypoints of image {name!r} are not those in the database: use another one") from error


def _translated(found: Matches, pair: Pair, translations: Mapping[str, Integers]) -> Matches:
    columns = [
        translations[name][found.indices[:, side]] if name in translations else found.indices[:, side]
        for side, name in enumerate(pair)
    ]
    return Matches(np.stack(columns, axis=1), found.distances)
