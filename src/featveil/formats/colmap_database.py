"""COLMAP's `database.db` -> raw features and cameras, read with SQLite and never written.

Tables `images`, `cameras`, `keypoints` (x, y from the image corner, then nothing, scale and orientation in radians, or
a 2 x 2 shape) and `descriptors`. COLMAP's SIFT is RootSIFT unless it was told otherwise, and the file does not say:
where it names no other method, the kind is `rootsift` by default.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from featveil.core import Camera, Features, FeatveilError, FormatError, InputError, Keypoints, Points
from featveil.core.arrays import Float64, floats
from featveil.core.features import check_kind
from featveil.formats.camera_models import NAMES, check_model
from featveil.formats.hdf5 import is_name

DEFAULT_KIND = "rootsift"

_MAGIC = b"SQLite format 3\0"
_MAX_BYTES = 2**30
_TABLES = {
    "images": {"image_id", "name", "camera_id"},
    "cameras": {"camera_id", "model", "width", "height", "params"},
    "keypoints": {"image_id", "rows", "cols", "data"},
    "descriptors": {"image_id", "rows", "cols", "data"},
}
# Column `type` of newer databases; the first is SIFT, -1 is not known, and all others have float32 components.
_METHODS = {1: "aliked_n16rot", 2: "aliked_n32", 3: "loma_b", 4: "loma_b128"}
_BYTES_OF = (-1, 0)
_UNAVAILABLE = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,  # a journal would have to be rolled back first
)


def is_database(path: str | Path) -> bool:
    """Whether `path` is named like a COLMAP database or is an SQLite file."""
    path = Path(path)
    if path.suffix.lower() == ".db":
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def check(path: str | Path) -> None:
    """Raise InputError when there is no file, FormatError when it is no COLMAP database."""
    with _opened(path):
        pass


def names(path: str | Path) -> list[str]:
    """The names of all images in the database, sorted.

    Raises InputError when there is no file or no image, FormatError when it is no COLMAP database.
    """
    with _opened(path) as connection:
        images = [name for (name,) in connection.execute("SELECT name FROM images")]
    if not images:
        raise InputError(f"{path} holds no images: run COLMAP's feature extraction first")
    if not all(isinstance(name, str) and is_name(name) for name in images):
        raise FormatError(f"an image name in {path} is not a relative path")
    if len(set(images)) < len(images):
        raise FormatError(f"{path} has two images of one name")
    return sorted(images)


def kind_of(path: str | Path, name: str) -> str | None:
    """The kind of descriptors that the database names for image `name`; None for SIFT, plain or root."""
    with _opened(path) as connection:
        return _METHODS.get(_method(connection, _image(connection, path, name)[0]))


def read(path: str | Path, name: str, kind: str | None = None) -> Features:
    """The features of image `name`, descriptors scaled to unit norm.

    `kind` names the descriptor where the database does not: rootsift by default, as is COLMAP's. Raises InputError
    when the image or its descriptors are not in the file, FormatError when they cannot be used.
    """
    with _opened(path) as connection:
        image, camera = _image(connection, path, name)
        method = _method(connection, image)
        stored = _METHODS.get(method)
        if kind is not None and stored is not None and kind != stored:
            raise InputError(f"the descriptors of image {name!r} in {path} are {stored}, not {kind}")
        if kind is None and stored is None and method not in _BYTES_OF:
            raise InputError(f"the descriptors of image {name!r} in {path} are of an unknown method: name their kind")
        kind = kind or stored or DEFAULT_KIND
        check_kind(kind)
        try:
            keypoints = _keypoints(_table(connection, "keypoints", image, np.dtype("<f4")))
            values = _descriptors(_table(connection, "descriptors", image, np.dtype("u1")), method, len(keypoints))
            return Features(values, kind, keypoints, _image_size(connection, camera))
        except InputError as error:
            raise FormatError(f"the features of image {name!r} in {path} cannot be used: {error}") from error


def camera_of(path: str | Path, name: str) -> Camera:
    """The camera of image `name`. Raises InputError when the image is unknown, FormatError for an unusable camera."""
    with _opened(path) as connection:
        _, camera = _image(connection, path, name)
        try:
            return _camera(connection, camera)
        except InputError as error:
            raise FormatError(f"the camera of image {name!r} in {path} cannot be used: {error}") from error


@contextmanager
def _opened(path: str | Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection to a database with the tables of COLMAP."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} is a folder: name a file" if path.is_dir() else f"{path} does not exist")
    # Reading a database in WAL mode, as COLMAP's are, would leave two files beside it. While no other program has
    # it open, or was stopped while writing, there is no log and nothing to look for outside the file.
    logs = [path.with_name(f"{path.name}-{kind}") for kind in ("wal", "journal")]
    mode = "mode=ro" if any(log.exists() for log in logs) else "immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True)) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_BYTES)
            connection.execute("PRAGMA trusted_schema = OFF")
            _check_tables(connection, path)
            yield connection
    except FeatveilError:
        raise
    except (sqlite3.Error, OverflowError, MemoryError) as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in _UNAVAILABLE:
            raise InputError(
                f"cannot open {path}: another program holds it or was stopped while writing, or you may not read it"
            ) from error
        raise FormatError(f"{path} is not an SQLite database, or it is damaged") from error


def _check_tables(connection: sqlite3.Connection, path: Path) -> None:
    # Tables only: a view could run for ever.
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for table, columns in _TABLES.items():
        if table not in tables or columns - _columns(connection, table):
            raise FormatError(f"{path} is not a COLMAP database: it has no table {table} as COLMAP makes it")


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


def _image(connection: sqlite3.Connection, path: str | Path, name: str) -> tuple[int, int]:
    """Its number and that of its camera."""
    query = "SELECT image_id, camera_id FROM images WHERE name = ?"
    row = connection.execute(query, (name,)).fetchone() if is_name(name) else None
    if row is None:
        raise InputError(f"{path} has no image {name!r}")
    return row[0], row[1]


def _method(connection: sqlite3.Connection, image: int) -> int:
    if "type" not in _columns(connection, "descriptors"):
        return -1
    row = connection.execute("SELECT type FROM descriptors WHERE image_id = ?", (image,)).fetchone()
    return row[0] if row is not None and isinstance(row[0], int) else -1


def _table(connection: sqlite3.Connection, table: str, image: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The matrix of `image` in `table`; its size is compared with that of the data before those are read."""
    query = f"SELECT rows, cols, typeof(data), length(data) FROM {table} WHERE image_id = ?"
    row = connection.execute(query, (image,)).fetchone()
    if row is None:
        raise InputError(f"it has no {table}: run COLMAP's feature extraction first")
    rows, columns, kind, length = row
    if not all(type(side) is int and 0 <= side <= _MAX_BYTES for side in (rows, columns)):
        raise InputError(f"its {table} have an impossible size")
    if (length or 0) != rows * columns * dtype.itemsize or kind not in ("blob", "null"):
        raise InputError(f"its {table} should be {rows} x {columns}, but the data have another size")
    (data,) = connection.execute(f"SELECT data FROM {table} WHERE image_id = ?", (image,)).fetchone()
    return np.frombuffer(data or b"", dtype).reshape(rows, columns)


def _keypoints(table: NDArray[Any]) -> Keypoints:
    match table.shape[1]:
        case 2:
            return Keypoints(table)
        case 4:
            return Keypoints(table[:, :2], table[:, 2], np.degrees(table[:, 3], dtype=np.float64))
        case 6:
            shape = table[:, 2:].astype(np.float64).reshape(-1, 2, 2)
            scale = np.hypot(shape[:, 0], shape[:, 1]).mean(axis=1)
            return Keypoints(table[:, :2], scale, np.degrees(np.arctan2(shape[:, 1, 0], shape[:, 0, 0])))
    raise InputError(f"keypoints have 2, 4 or 6 columns, got {table.shape[1]}")


def _descriptors(stored: NDArray[Any], method: int, n: int) -> Points:
    if len(stored) != n:
        raise InputError(f"{n} keypoints do not fit {len(stored)} descriptors")
    if method not in _BYTES_OF:
        if stored.shape[1] % 4:
            raise InputError(f"float descriptors take 4 bytes a component, got {stored.shape[1]} bytes in all")
        stored = np.ascontiguousarray(stored).view("<f4")
    values: Float64 = floats("descriptors", stored, (n, None), np.float64)
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    if not norms.all():
        raise InputError(f"descriptor {int(np.argmin(norms))} has zero norm")
    return Points(values / norms)


def _image_size(connection: sqlite3.Connection, camera: int) -> tuple[int, int] | None:
    row = connection.execute("SELECT width, height FROM cameras WHERE camera_id = ?", (camera,)).fetchone()
    return (row[0], row[1]) if row is not None and all(type(side) is int for side in row) else None


def _camera(connection: sqlite3.Connection, camera: int) -> Camera:
    row = connection.execute(
        "SELECT model, width, height, params FROM cameras WHERE camera_id = ?", (camera,)
    ).fetchone()
    if row is None:
        raise InputError("its camera is missing")
    model, width, height, stored = row
    if not all(type(value) is int for value in (model, width, height)) or not 0 <= model < len(NAMES):
        raise InputError("its camera has an unknown model or no size")
    if not isinstance(stored, bytes) or len(stored) % 8:
        raise InputError("its camera parameters are not double precision numbers")
    parameters = np.frombuffer(stored, "<f8").tolist()
    check_model(NAMES[model], len(parameters))
    return Camera(NAMES[model], width, height, tuple(parameters))
