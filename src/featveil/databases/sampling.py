"""A uniform random sample of the descriptors of many items, on disk, resumable.

Reservoir sampling: once `capacity` rows are there, row t replaces a random one with probability capacity / t.
The draws of an item depend on the seed and its position only, so an item that was interrupted half-way writes
the same rows to the same places when it is done again.
"""

import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from featveil.core.arrays import Float32
from featveil.core.errors import FeatveilError, FormatError, InputError
from featveil.core.files import replacing
from featveil.databases.described_images import Item
from featveil.databases.entries import QUANTIZED_KINDS, Values, has_direction, quantized
from featveil.databases.recipes import SAMPLING, Recipe

DESCRIPTORS, MANIFEST = "descriptors.bin", "manifest.jsonl"

_log = logging.getLogger(__name__)


@dataclass
class Tally:
    """What was read: `done` items, of them `images` and `skipped` images, `seen` rows of `size`."""

    done: int = 0
    images: int = 0
    skipped: int = 0
    seen: int = 0
    size: int = 0


def collect(
    items: list[Item], recipe: Recipe, folder: Path, progress: Callable[[int, int], None]
) -> tuple[Values, Tally]:
    """A sample (n, d) of the rows of `items` as a memory map in `folder`, and the counts.

    Images that cannot be read are logged and left out. Raises InputError when nothing is left, the disk is
    full or `folder` belongs to another build.
    """
    tally = _resume(folder / MANIFEST, _identity(items, recipe))
    path = folder / DESCRIPTORS
    try:
        path.touch()
        with path.open("r+b") as rows, (folder / MANIFEST).open("a") as manifest:
            for position in range(tally.done, len(items)):
                _add(items[position], position, recipe, tally, rows)
                manifest.write(json.dumps(asdict(tally)) + "\n")
                manifest.flush()
                progress(tally.done, len(items))
    except OSError as error:
        raise InputError(
            f"cannot write in {folder}: {error.strerror or error}; run the same again to go on from here"
        ) from error
    kept = tally.seen if recipe.capacity is None else min(tally.seen, recipe.capacity)
    if kept == 0:
        raise InputError(f"no descriptors in {tally.done} items, {tally.skipped} of them unreadable")
    return np.memmap(path, _dtype(recipe), "r", shape=(kept, tally.size)), tally


def _add(item: Item, position: int, recipe: Recipe, tally: Tally, file: BinaryIO) -> None:
    """Put the rows of `item` where the reservoir wants them, and count them."""
    rows = _load(item, recipe)
    tally.done += 1
    if rows is None:
        tally.skipped += 1
        return
    tally.images += item.images
    if len(rows) == 0:
        return
    if tally.size not in (0, rows.shape[1]):
        raise InputError(f"{item.name} has descriptors of size {rows.shape[1]}, those before {tally.size}")
    tally.size = rows.shape[1]
    slots = tally.seen + np.arange(len(rows))
    tally.seen += len(rows)
    if recipe.capacity is not None:
        rng = np.random.default_rng([SAMPLING, recipe.seed, position])
        slots = np.where(slots < recipe.capacity, slots, rng.integers(0, slots + 1))
        rows, slots = rows[slots < recipe.capacity], slots[slots < recipe.capacity]
    _write(_stored(rows, recipe, item), slots, file)


def _write(rows: NDArray[Any], slots: NDArray[np.int64], file: BinaryIO) -> None:
    """Write each row at its slot, runs of neighbours at once; of two for one slot the later stays."""
    # Not through a memory map: on a full disk that would end the process by a signal.
    width = rows.dtype.itemsize * rows.shape[1]
    for run in np.split(np.arange(len(slots)), np.flatnonzero(np.diff(slots) != 1) + 1):
        if len(run):
            file.seek(int(slots[run[0]]) * width)
            file.write(rows[run[0] : run[-1] + 1].tobytes())
    file.flush()


def _load(item: Item, recipe: Recipe) -> Float32 | None:
    """The rows of `item`, to be clustered only those that have a direction; None for an unreadable image."""
    try:
        rows = item.load()
    except FeatveilError as error:
        if not item.may_skip:
            raise
        _log.warning("left out %s: %s", item.name, error)
        return None
    return rows[has_direction(rows)] if recipe.clusters else rows


def _stored(rows: Float32, recipe: Recipe, item: Item) -> NDArray[Any]:
    try:
        return quantized(rows) if recipe.kind in QUANTIZED_KINDS else rows
    except InputError as error:
        raise InputError(f"{item.name}: {error}") from error


def _dtype(recipe: Recipe) -> type[np.uint8] | type[np.float32]:
    return np.uint8 if recipe.kind in QUANTIZED_KINDS else np.float32


def _identity(items: list[Item], recipe: Recipe) -> str:
    content = [asdict(recipe), [item.name for item in items]]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _resume(manifest: Path, identity: str) -> Tally:
    """Where the last run stopped. A last line without its end was being written: it is cut off."""
    if not manifest.exists():
        with replacing(manifest) as temporary:
            temporary.write_text(json.dumps({"build": identity}) + "\n")
        return Tally()
    first, *lines = manifest.read_text(errors="replace").splitlines(keepends=True) or [""]
    whole = [line for line in lines if line.endswith("\n")]
    try:
        header = json.loads(first)
        tally = Tally(**json.loads(whole[-1])) if whole else Tally()
    except (ValueError, TypeError) as error:
        raise FormatError(f"{manifest} is damaged: delete its folder to start again") from error
    if header != {"build": identity}:
        raise InputError(f"{manifest.parent} holds another build (sources or recipe differ): delete it first")
    if len(whole) < len(lines):
        with replacing(manifest) as temporary:
            temporary.write_text(first + "".join(whole))
    return tally
