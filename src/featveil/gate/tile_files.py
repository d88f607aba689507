"""Tiles of a large map: a folder of `.sketch` files and index.json, which says what each of them holds.

Tiles are chosen by the index and checked against it. The folder is written beside its place and moved there, so that a
reader never sees half of it.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from featveil.core import FormatError, InputError
from featveil.core.files import check_folder
from featveil.formats.tensors import read_json_object
from featveil.gate.map_sketch import Sketch
from featveil.gate.sketch_files import load_sketch, save_sketch

INDEX = "index.json"

_VERSION = 1
_MAX_BYTES = 2**26  # of an index
_NAME = re.compile(r"tile-[0-9]{3,9}\.sketch")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_COUNTS = ("images", "points", "entries", "bytes")


@dataclass(frozen=True)
class Tile:
    """What an index says of a tile: its `file` and that one's size, its digest, and how much of the map it holds."""

    file: str
    digest: str
    images: int
    points: int
    entries: int
    bytes: int

    def __post_init__(self) -> None:
        if not isinstance(self.file, str) or not _NAME.fullmatch(self.file):
            raise InputError("a tile's file is called tile-000.sketch, or so with another number")
        if not isinstance(self.digest, str) or not _DIGEST.fullmatch(self.digest):
            raise InputError("a tile is named by its digest: 64 lower-case hexadecimal digits")
        if any(type(getattr(self, name)) is not int or getattr(self, name) < 1 for name in _COUNTS):
            raise InputError("a tile has at least one image, point, entry and byte")


def check_tiles_folder(folder: Path, overwrite: bool) -> None:
    """Raise InputError unless tiles may be written to `folder`: it is new or empty, or has tiles to `overwrite`."""
    check_folder(folder.parent)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: tiles are a folder")
    there = [path.name for path in folder.iterdir()] if folder.exists() else []
    if strange := next((name for name in sorted(there) if name != INDEX and not _NAME.fullmatch(name)), None):
        raise InputError(f"{folder} holds {strange!r}, which is no tile: use another folder")
    if there and not overwrite:
        raise InputError(f"{folder} holds tiles already: --overwrite replaces them")


def save_tiles(tiles: Iterable[Sketch], folder: str | Path, overwrite: bool = False) -> tuple[Tile, ...]:
    """Write tiles and their index to `folder`, all of them or nothing; what the index says of each.

    Raises InputError when there is something else in the folder, or the disk refuses the write.
    """
    folder = Path(folder)
    check_tiles_folder(folder, overwrite)
    listed = []
    with _replacing_folder(folder) as temporary:
        for number, sketch in enumerate(tiles):
            path = temporary / f"tile-{number:03d}.sketch"
            save_sketch(sketch, path)
            counts = len(sketch.seen), len(sketch.known), len(sketch), path.stat().st_size
            listed.append(Tile(path.name, sketch.digest, *counts))
        index = {"version": _VERSION, "tiles": [asdict(tile) for tile in listed]}
        (temporary / INDEX).write_text(json.dumps(index, indent=1) + "\n", "utf-8")
    return tuple(listed)


def read_index(folder: str | Path) -> tuple[Tile, ...]:
    """What the index in `folder` says of its tiles; raises InputError when there is none, FormatError."""
    path = Path(folder) / INDEX
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{folder} holds no tiles of a sketch: cannot read {path}") from error
    try:
        if len(content) > _MAX_BYTES:
            raise FormatError(f"it has more than {_MAX_BYTES} bytes")
        return _read(read_json_object(content, "content"))
    except (FormatError, InputError) as error:
        raise FormatError(f"{path} is not a usable index of tiles: {error}") from error


def load_tiles(folder: str | Path) -> Iterator[tuple[Path, Sketch]]:
    """The tiles in `folder` with their files, each as its index says; raises like `read_index` and `load_sketch`."""
    for tile in read_index(folder):
        path = Path(folder) / tile.file
        yield path, load_sketch(path, tile.digest)


def _read(index: dict[str, Any]) -> tuple[Tile, ...]:
    listed = index.get("tiles")
    if index.keys() != {"version", "tiles"} or type(index["version"]) is not int or not isinstance(listed, list):
        raise FormatError("it must have exactly version and tiles")
    if index["version"] != _VERSION:
        raise FormatError("it is of another version: upgrade featveil")
    if any(not isinstance(one, dict) or one.keys() != Tile.__annotations__.keys() for one in listed):
        raise FormatError("a tile does not have the fields of one")
    tiles = tuple(Tile(**one) for one in listed)
    if not tiles or len({tile.file for tile in tiles}) < len(tiles):
        raise FormatError("it names no tile, or one file twice")
    return tiles


@contextmanager
def _replacing_folder(folder: Path) -> Iterator[Path]:
    """Yield a new folder, and move it to `folder` if the block succeeds; what was there is gone then, and only then."""
    try:
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise InputError(f"cannot write in {folder.parent}: {error.strerror}") from error
    new, old = work / "new", work / "old"
    try:
        new.mkdir()
        yield new
        if folder.exists():
            folder.rename(old)
        try:
            new.rename(folder)
        except BaseException:
            if old.exists():
                old.rename(folder)
            raise
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
