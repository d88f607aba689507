"""Patches of tracked points in the layout of UBC PhotoTour (Winder and Brown, CVPR 2007): liberty, notredame, yosemite.

    folder/patches0000.bmp ...    1024 x 1024 grey, 16 x 16 patches of 64 x 64 pixels, row by row
    folder/info.txt               a line for each patch: its point, and 0
    folder/m50_5000_5000_0.txt    a line for each pair: patch, its point, 0, patch, its point, 0, 0
    folder/card.json              how the set was made, where featveil made it

Sheets are read when their patches are asked for: the downloads hold two to three gigabytes each.
"""

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from featveil.core import DatasetError, InputError
from featveil.core.arrays import Integers
from featveil.extractors import read_image
from featveil.extractors.patch_cutting import SIDE, Patches

ACROSS = 16
ON_SHEET = ACROSS * ACROSS
SHEET = ACROSS * SIDE
INFO, CARD = "info.txt", "card.json"
STANDARD_PAIRS = "m50_100000_100000_0.txt"  # what published rates are measured on

_MOST = 2**24
_LARGEST_TEXT = 2**29
_LARGEST_SHEET = 2**23
_LARGEST_CARD = 2**20
_PAIR_NAME = re.compile(r"m50_(\d{1,9})_(\d{1,9})_\d{1,9}\.txt")


@dataclass(frozen=True, eq=False)
class PatchPairs:
    """Pairs of patches: indices `first` and `second` (k,), and which `match` (k,)."""

    first: Integers
    second: Integers
    match: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True, eq=False)
class PatchSet:
    """Patches of tracked points: `points` (n,) says which one a patch shows, `pairs` are some to tell apart.

    `pairs` is None where the folder has none.
    """

    name: str
    folder: Path
    points: Integers
    pairs: PatchPairs | None = None
    card: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.points)

    def read(self, indices: object = None) -> Patches:
        """The patches (k, 64, 64) at `indices` (k,), in that order; all without.

        Each sheet is read once. Raises InputError for an index that there is not, DatasetError for a damaged sheet.
        """
        wanted = np.arange(len(self)) if indices is None else np.asarray(indices, np.int64).reshape(-1)
        if len(wanted) and not 0 <= wanted.min() <= wanted.max() < len(self):
            raise InputError(f"{self.name} has patches 0 to {len(self) - 1}, and another one was asked for")
        patches = np.empty((len(wanted), SIDE, SIDE), np.uint8)
        sheets = wanted // ON_SHEET
        for sheet in np.unique(sheets).tolist():
            here = np.flatnonzero(sheets == sheet)
            patches[here] = _read_sheet(self.folder / sheet_name(sheet))[wanted[here] % ON_SHEET]
        return patches

    def blocks(self, sheets: int = 16) -> Iterator[Patches]:
        """All patches in order, those of some sheets at a time."""
        for start in range(0, len(self), sheets * ON_SHEET):
            yield self.read(np.arange(start, min(start + sheets * ON_SHEET, len(self))))


def load_phototour(folder: str | Path, pairs: str | None = None) -> PatchSet:
    """The patch set in `folder`. Sheets are counted, not read yet.

    `pairs` names a file of pairs; without, it is that of the published rates, or the largest. Raises DatasetError
    when the folder is incomplete or a text in it is damaged.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DatasetError(f"{folder} is not a folder: name one with {INFO} and {sheet_name(0)}")
    if not (folder / INFO).is_file():
        raise DatasetError(f"{folder} is no patch set, it lacks {INFO}: make one with 'featveil patches build'")
    points = _table(folder / INFO, 2)[:, 0].copy()
    if len(points) > _MOST:
        raise DatasetError(f"{folder / INFO} lists {len(points)} patches: at most {_MOST} are read")
    for sheet in range(-(-len(points) // ON_SHEET)):
        if not (folder / sheet_name(sheet)).is_file():
            raise DatasetError(f"{folder} lacks {sheet_name(sheet)}: {INFO} lists {len(points)} patches")
    points.setflags(write=False)
    chosen = _pair_file(folder, pairs)
    listed = None if chosen is None else _read_pairs(chosen, len(points))
    return PatchSet(folder.resolve().name, folder, points, listed, _read_card(folder / CARD))


def sheet_name(number: int) -> str:
    """The file of a sheet."""
    return f"patches{number:04d}.bmp"


def _pair_file(folder: Path, name: str | None) -> Path | None:
    if name is not None:
        if Path(name).name != name or not (folder / name).is_file():
            raise DatasetError(f"{folder} has no file of pairs {name!r}")
        return folder / name
    if (folder / STANDARD_PAIRS).is_file():
        return folder / STANDARD_PAIRS
    files = {path: match for path in folder.glob("m50_*.txt") if (match := _PAIR_NAME.fullmatch(path.name))}
    return max(files, key=lambda path: (int(files[path][1]) + int(files[path][2]), path.name), default=None)


def _read_pairs(path: Path, patches: int) -> PatchPairs:
    table = _table(path, 7)
    first, second = table[:, 0].copy(), table[:, 3].copy()
    if min(first.min(), second.min()) < 0 or max(first.max(), second.max()) >= patches:
        raise DatasetError(f"{path} names a patch that {INFO} does not list: it belongs to another set")
    return PatchPairs(first, second, table[:, 1] == table[:, 4])


def _table(path: Path, columns: int) -> Integers:
    """The whole numbers (n, columns) of a text file, n at least 1."""
    try:
        if path.stat().st_size > _LARGEST_TEXT:
            raise DatasetError(f"{path} is larger than {_LARGEST_TEXT >> 20} MB: this is no list of patches")
        content = path.read_bytes()
        if not content.strip():
            raise DatasetError(f"{path} is empty")
        numbers = np.loadtxt(io.BytesIO(content), np.int64, comments=None, ndmin=2)
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, OverflowError) as error:
        raise DatasetError(f"{path} is damaged: expected lines of {columns} whole numbers") from error
    if numbers.shape[1] != columns:
        raise DatasetError(f"{path} must have {columns} whole numbers a line, got {numbers.shape[1]}")
    return numbers


def _read_sheet(path: Path) -> Patches:
    """The patches (256, 64, 64) of a sheet."""
    try:
        with path.open("rb") as file:
            header = file.read(26)
            size = file.seek(0, io.SEEK_END)
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror}") from error
    # The size that a file states is looked at before anything is unpacked: a small one may claim gigabytes.
    sides = [abs(int.from_bytes(header[at : at + 4], "little", signed=True)) for at in (18, 22)]
    if header[:2] != b"BM" or sides != [SHEET, SHEET] or size > _LARGEST_SHEET:
        raise DatasetError(f"{path} is no bitmap of {SHEET} x {SHEET} pixels: it is damaged or of another set")
    try:
        image = read_image(path)
    except InputError as error:
        raise DatasetError(str(error)) from error
    grey = image[:, :, 0].reshape(ACROSS, SIDE, ACROSS, SIDE)
    return grey.transpose(0, 2, 1, 3).reshape(ON_SHEET, SIDE, SIDE)


def _read_card(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        if path.stat().st_size > _LARGEST_CARD:
            raise DatasetError(f"{path} is larger than {_LARGEST_CARD >> 20} MB: this is no card")
        card = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DatasetError(f"{path} is damaged: expected JSON, or no such file") from error
    if not isinstance(card, dict):
        raise DatasetError(f"{path} must hold one JSON object, got a {type(card).__name__}")
    return card
