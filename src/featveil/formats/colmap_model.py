"""COLMAP's binary model files: whether each holds all that it says it holds.

COLMAP believes the counts in them. Where a file is cut off or damaged it can read nothing for minutes, until the memory
is full, before it notices.
"""

import mmap
import struct
from collections.abc import Callable
from pathlib import Path

from featveil.core import FormatError
from featveil.formats.camera_models import NAMES, PARAMETERS

Skip = Callable[[mmap.mmap, int], int]


def check(folder: str | Path) -> None:
    """Raise FormatError when a file of the model in `folder` is shorter than its contents; text files are not read."""
    for name, skip in _SKIPS.items():
        path = Path(folder) / f"{name}.bin"
        if path.is_file() and not _is_whole(path, skip):
            raise FormatError(f"{path} is damaged: it does not hold as many {name} as it says")


def _is_whole(path: Path, skip: Skip) -> bool:
    if path.stat().st_size == 0:
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            place = 8
            for _ in range(*struct.unpack_from("<Q", data)):
                place = skip(data, place)
        except (struct.error, LookupError, OverflowError):
            return False
        return place <= len(data)


def _camera(data: mmap.mmap, place: int) -> int:
    """Number and model (4 bytes each), width and height (8), parameters."""
    (model,) = struct.unpack_from("<I", data, place + 4)
    return place + 24 + 8 * PARAMETERS[NAMES[model]]


def _rig(data: mmap.mmap, place: int) -> int:
    """Number and how many sensors (4 each), the first one (8), and the others, with or without a pose."""
    (sensors,) = struct.unpack_from("<I", data, place + 4)
    place += 16 if sensors else 8
    for _ in range(sensors - 1):
        place += 9 + (56 if data[place + 8] else 0)
    return place


def _frame(data: mmap.mmap, place: int) -> int:
    """Number and rig (4 each), pose (56), and how many images (4) of 16 bytes each."""
    (images,) = struct.unpack_from("<I", data, place + 64)
    return place + 68 + 16 * int(images)


def _image(data: mmap.mmap, place: int) -> int:
    """Number (4), pose (56), camera (4), a name that ends with 0, and how many keypoints (8) of 24 bytes each."""
    end = data.find(b"\0", place + 64)
    if end < 0:
        raise LookupError
    (keypoints,) = struct.unpack_from("<Q", data, end + 1)
    return end + 9 + 24 * int(keypoints)


def _point(data: mmap.mmap, place: int) -> int:
    """Number (8), place (24), colour (3), error (8), and how many images see it (8), 8 bytes each."""
    (seen,) = struct.unpack_from("<Q", data, place + 43)
    return place + 51 + 8 * int(seen)


_SKIPS: dict[str, Skip] = {"cameras": _camera, "rigs": _rig, "frames": _frame, "images": _image, "points3D": _point}
