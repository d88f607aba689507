"""Patch sets -> folders in the layout of PhotoTour, written beside and renamed: all of a set is there, or nothing."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from featveil.core import InputError
from featveil.core.arrays import Integers, integers
from featveil.core.files import check_folder
from featveil.datasets.phototour import ACROSS, CARD, INFO, ON_SHEET, SHEET, PatchPairs, sheet_name
from featveil.extractors.patch_cutting import SIDE, Patches, check_patches


class PhotoTourWriter:
    """Takes the patches of a set block by block; no more than a sheet of them is kept in memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._points: list[Integers] = []
        self._waiting: list[Patches] = []
        self._sheets = 0

    @property
    def points(self) -> Integers:
        """Which point each patch shows (n,), of all that were added."""
        return np.concatenate([np.empty(0, np.int64), *self._points])

    def add(self, patches: Patches, points: Integers) -> None:
        """Add patches (k, 64, 64) that show `points` (k,)."""
        checked = integers("points", points, (len(check_patches(patches)),))
        if len(checked) and checked.min() < 0:
            raise InputError("the number of a point must be at least 0")
        self._points.append(checked)
        self._waiting.append(patches)
        while sum(map(len, self._waiting)) >= ON_SHEET:
            together = np.concatenate(self._waiting)
            self._write_sheet(together[:ON_SHEET])
            self._waiting = [together[ON_SHEET:]]

    def finish(self, pairs: PatchPairs | None = None, card: dict[str, Any] | None = None) -> None:
        """Write what is left, the list of points, the pairs and the card. Raises InputError when no patch was added."""
        points = self.points
        if len(points) == 0:
            raise InputError("a patch set needs at least one patch, got none")
        left = np.concatenate(self._waiting)
        if len(left):
            self._write_sheet(left)
        (self._folder / INFO).write_text("".join(f"{point} 0\n" for point in points.tolist()))
        if pairs is not None:
            self._write_pairs(pairs, points)
        if card is not None:
            (self._folder / CARD).write_text(json.dumps(card, allow_nan=False, indent=2) + "\n")

    def _write_pairs(self, pairs: PatchPairs, points: Integers) -> None:
        match = points[pairs.first] == points[pairs.second]
        if not np.array_equal(match, pairs.match):
            raise InputError("matching pairs show one point and other pairs two, and these do not")
        name = f"m50_{int(match.sum())}_{int((~match).sum())}_0.txt"
        columns = (pairs.first, points[pairs.first], pairs.second, points[pairs.second])
        lines = (
            f"{a} {p} 0 {b} {q} 0 0\n" for a, p, b, q in zip(*(column.tolist() for column in columns), strict=True)
        )
        (self._folder / name).write_text("".join(lines))

    def _write_sheet(self, patches: Patches) -> None:
        full = np.zeros((ON_SHEET, SIDE, SIDE), np.uint8)
        full[: len(patches)] = patches
        sheet = full.reshape(ACROSS, ACROSS, SIDE, SIDE).transpose(0, 2, 1, 3).reshape(SHEET, SHEET)
        _, content = cv2.imencode(".bmp", sheet)
        (self._folder / sheet_name(self._sheets)).write_bytes(content.tobytes())
        self._sheets += 1


@contextmanager
def writing_phototour(folder: str | Path, overwrite: bool = False) -> Iterator[PhotoTourWriter]:
    """Yield a writer to a folder beside `folder`; move it there if the block succeeds, delete it if not.

    A folder that is there is replaced as a whole, with `overwrite` only. Raises InputError when it is there otherwise,
    or the disk refuses.
    """
    folder = Path(folder)
    check_target(folder, overwrite)
    try:
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise InputError(f"cannot write in {folder.parent}: {error.strerror}") from error
    try:
        written = temporary / folder.name
        written.mkdir()
        yield PhotoTourWriter(written)
        _swap(written, folder, temporary / "before")
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _swap(written: Path, folder: Path, before: Path) -> None:
    """Move `written` to `folder`, and what is there to `before`; that comes back when the first fails."""
    if folder.exists():
        folder.replace(before)
    try:
        written.replace(folder)
    except OSError:
        if before.exists():
            before.replace(folder)
        raise


def write_phototour(
    folder: str | Path,
    patches: Patches,
    points: Integers,
    pairs: PatchPairs | None = None,
    card: dict[str, Any] | None = None,
) -> None:
    """Write a set of patches (n, 64, 64) that show `points` (n,), as a whole. Raises InputError when it cannot be."""
    with writing_phototour(folder) as writer:
        writer.add(patches, points)
        writer.finish(pairs, card)


def check_target(folder: Path, overwrite: bool) -> None:
    """Raise InputError unless a set can be written to `folder`: it is new, or a patch set that may be replaced."""
    check_folder(folder.parent)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: name a folder")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not overwrite:
        raise InputError(f"{folder} is there already: --overwrite replaces it, or name another folder")
    if not (folder / INFO).is_file() or not (folder / sheet_name(0)).is_file():
        raise InputError(f"{folder} holds something else than a patch set: name another folder")
