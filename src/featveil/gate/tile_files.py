"""Tiles of a large map: a folder of `.sketch` files and index.json, which says what each of them holds.

Tiles are chosen by the index and checked against it. The folder is written beside its place and moved there, so that a
reader never sees half of it.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from featveil.core import FormatError, InputError
from featveil.core.files import beside, check_folder, flush, read_start
from featveil.formats.tensors import read_json_object
from featveil.gate.map_sketch import Sketch
from featveil.gate.sketch_files import encode_sketch, load_sketch

INDEX = "index.json"

_VERSION = 1
_NEW, _OLD = "new", "old"  # contents of a folder that is replaced
_MAX_BYTES = 2**22  # of an index: a tile takes less than 300, and parsing takes thirty times as much memory
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
    """Raise unless tiles may be written to `folder`: it is new or empty, or has tiles to `overwrite` and nothing else.

    That is an InputError; a FormatError where its index cannot be read, so that nobody knows what it has.
    """
    place = _place(folder)
    check_folder(place.parent)
    if place.exists() and not place.is_dir():
        raise InputError(f"{folder} is a file: tiles are a folder")
    try:
        if place in (Path.cwd(), *Path.cwd().parents) or place.is_mount():
            raise InputError(f"{folder} cannot be replaced: it is the current folder, one above it or a disk")
        there = sorted(place.iterdir()) if place.exists() else []
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror or error}") from error
    listed = {INDEX, *(tile.file for tile in read_index(place))} if place / INDEX in there else set()
    if strange := next((path.name for path in there if path.name not in listed or not path.is_file()), None):
        raise InputError(f"{folder} holds {strange!r}, which is no tile that its index lists: use another folder")
    if there and not overwrite:
        raise InputError(f"{folder} holds tiles already: --overwrite replaces them")


def save_tiles(tiles: Iterable[Sketch], folder: str | Path, overwrite: bool = False) -> tuple[Tile, ...]:
    """Write tiles and their index to `folder`, all of them or nothing; what the index says of each.

    Where `folder` is a link to another one, that one is written. Raises like `check_tiles_folder`, and InputError when
    the disk refuses the write.
    """
    folder = Path(folder)
    check_tiles_folder(folder, overwrite)
    listed = []
    with _replacing_folder(_place(folder)) as temporary:
        for number, sketch in enumerate(tiles):
            path = temporary / f"tile-{number:03d}.sketch"
            path.write_bytes(encode_sketch(sketch))
            flush(path)
            listed.append(_tile(path, sketch))
        index = {"version": _VERSION, "tiles": [asdict(tile) for tile in listed]}
        content = (json.dumps(index, indent=1) + "\n").encode()
        if len(content) > _MAX_BYTES:
            raise InputError(f"{len(listed)} tiles are too many for one index: use more images a tile (--tile-images)")
        (temporary / INDEX).write_bytes(content)
        flush(temporary / INDEX)
    return tuple(listed)


def read_index(folder: str | Path) -> tuple[Tile, ...]:
    """What the index in `folder` says of its tiles; raises InputError when there is none, FormatError."""
    path = Path(folder) / INDEX
    try:
        content = read_start(path, _MAX_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"{folder} holds no tiles of a sketch: cannot read {path}: {error.strerror or error}"
        ) from error
    try:
        if len(content) > _MAX_BYTES:
            raise FormatError(f"it has more than {_MAX_BYTES} bytes")
        return _read(read_json_object(content, "content"))
    except (FormatError, InputError) as error:
        raise FormatError(f"{path} is not a usable index of tiles: {error}") from error


def load_tiles(folder: str | Path) -> Iterator[tuple[Path, Sketch]]:
    """The tiles in `folder` with their files; raises like `read_index` and `load_sketch`.

    Raises FormatError for a tile that is another, or holds more or less, than its index says.
    """
    for tile in read_index(folder):
        path = Path(folder) / tile.file
        sketch = load_sketch(path, tile.digest)
        there, stated = asdict(_tile(path, sketch)), asdict(tile)
        if wrong := next((name for name in _COUNTS if there[name] != stated[name]), None):
            raise FormatError(
                f"{path} has {there[wrong]} {wrong}, and {INDEX} says {stated[wrong]}: one was changed alone"
            )
        yield path, sketch


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


def _tile(path: Path, sketch: Sketch) -> Tile:
    """What an index says of `sketch`, which is in the file at `path`."""
    return Tile(path.name, sketch.digest, len(sketch.seen), len(sketch.known), len(sketch), path.stat().st_size)


def _place(folder: Path) -> Path:
    """Where `folder` is, whatever links lead there."""
    return Path(os.path.realpath(folder))


@contextmanager
def _replacing_folder(folder: Path) -> Iterator[Path]:
    """Yield a new folder, and move it to `folder` if the block succeeds; what was there is gone then, and only then."""
    work = beside(folder)
    new, old = work / _NEW, work / _OLD
    try:
        try:
            work.mkdir(0o700)
            new.mkdir()
            yield new
            if folder.exists():
                folder.rename(old)
            new.rename(folder)
        except OSError as error:
            raise InputError(f"cannot write {folder}: {error.strerror or error}") from error
        finally:
            _settle(work, folder)
    finally:
        _settle(work, folder)  # again: Ctrl-C may have come meanwhile


def _settle(work: Path, folder: Path) -> None:
    """Put what was in `folder` back there where the new content did not follow, and remove all else."""
    new, old = work / _NEW, work / _OLD
    if old.exists() and (new.exists() or not folder.exists()):
        try:
            old.rename(folder)
        except OSError as error:
            raise InputError(f"cannot write {folder}: what was in it is in {old} now") from error
    with suppress(OSError):  # Ctrl-C within: Python may then close a folder twice
        shutil.rmtree(work, ignore_errors=True)
