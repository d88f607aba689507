"""COLMAP databases made with SQLite alone, in COLMAP's schema, to read and to spoil."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tables = tuple[NDArray[Any], NDArray[Any]]  # keypoints (n, 2, 4 or 6) and descriptors (n, bytes) of an image

SIFT = 0
PARAMETERS = (500.0, 320.0, 240.0, 0.1)  # of the one SIMPLE_RADIAL camera of 640 x 480 pixels

_CREATION = (
    """CREATE TABLE cameras (camera_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, model INTEGER NOT NULL,
    width INTEGER NOT NULL, height INTEGER NOT NULL, params BLOB, prior_focal_length INTEGER NOT NULL)""",
    """CREATE TABLE images (image_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, name TEXT NOT NULL UNIQUE,
    camera_id INTEGER NOT NULL, CONSTRAINT image_id_check CHECK(image_id >= 0 and image_id < 2147483647),
    FOREIGN KEY(camera_id) REFERENCES cameras(camera_id))""",
    """CREATE TABLE keypoints (image_id INTEGER PRIMARY KEY NOT NULL, rows INTEGER NOT NULL, cols INTEGER NOT NULL,
    data BLOB, FOREIGN KEY(image_id) REFERENCES images(image_id) ON DELETE CASCADE)""",
    """CREATE TABLE descriptors (image_id INTEGER PRIMARY KEY NOT NULL, type INTEGER NOT NULL, rows INTEGER NOT NULL,
    cols INTEGER NOT NULL, data BLOB, FOREIGN KEY(image_id) REFERENCES images(image_id) ON DELETE CASCADE)""",
)


def tables(n: int, seed: int = 0, columns: int = 4, size: int = 128) -> Tables:
    """Made-up features of an image of 640 x 480 pixels."""
    rng = np.random.default_rng(seed)
    keypoints = np.column_stack([rng.uniform(0, 480, (n, 2)), rng.uniform(0.5, 3, (n, columns - 2))])
    return keypoints.astype(np.float32), rng.integers(1, 256, (n, size), np.uint8)


def write_database(path: Path, images: Mapping[str, Tables], method: int = SIFT) -> None:
    """Write the features of `images`, all by `method` and of one camera."""
    with connected(path) as connection:
        for statement in _CREATION:
            connection.execute(statement)
        camera = (2, 640, 480, np.array(PARAMETERS, "<f8").tobytes(), 1)
        connection.execute("INSERT INTO cameras VALUES (1, ?, ?, ?, ?, ?)", camera)
        for number, (name, (keypoints, descriptors)) in enumerate(images.items(), start=1):
            connection.execute("INSERT INTO images VALUES (?, ?, 1)", (number, name))
            stored = (number, *keypoints.shape, keypoints.tobytes())
            connection.execute("INSERT INTO keypoints VALUES (?, ?, ?, ?)", stored)
            connection.execute(
                "INSERT INTO descriptors VALUES (?, ?, ?, ?, ?)",
                (number, method, *descriptors.shape, descriptors.tobytes()),
            )


@contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    """A transaction."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA synchronous = OFF")  # tests need not outlive a power cut
        yield connection


def edit(path: Path, *statements: str) -> None:
    """Change a database by SQL."""
    with connected(path) as connection:
        for statement in statements:
            connection.execute(statement)
