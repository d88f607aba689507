"""Reading image files as uint8 RGB, the only image representation in featveil."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from cv2.utils import logging as opencv_logging
from numpy.typing import NDArray

from featveil.core import InputError

Image = NDArray[np.uint8]

IMAGE_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")

_LARGEST_FILE = 2**31 - 1
_log_level = threading.Lock()


def read_image(path: str | Path) -> Image:
    """The image in a file as uint8 RGB (h, w, 3), upright as its EXIF orientation says.

    Grey and palette images become RGB, 16-bit values are rounded to 8 bits, of several pages one is read.
    Transparent pixels are laid over white: what nobody sees in the picture must not come back as a feature.
    Raises InputError when the file is missing, damaged, too large or no image.
    """
    path = Path(path)
    encoded = _read_bytes(path)
    # IMREAD_UNCHANGED would skip the EXIF orientation, and plain IMREAD_COLOR drops the low 8 of 16 bits.
    decoded = _decode(encoded, cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH, path)
    if decoded is None or decoded.dtype not in (np.uint8, np.uint16):
        raise InputError(f"{path} is no image that can be read: it is damaged, cut off or of another format")
    alpha = None if encoded[:2].tobytes() == b"\xff\xd8" else _alpha(encoded, decoded, path)
    return _over_white(cv2.cvtColor(_to_uint8(decoded), cv2.COLOR_BGR2RGB), alpha)


def image_files(folder: str | Path) -> list[Path]:
    """All image files under `folder`, by extension, sorted by path; hidden files and folders are left out.

    Links are followed, and a folder that is met twice is entered once. Raises InputError when the folder is missing
    or holds no image.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder")
    seen = [path for path in _walk(folder) if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file()]
    if not seen:
        raise InputError(f"no image in {folder}: expected files ending in {', '.join(IMAGE_SUFFIXES)}")
    return sorted(seen, key=lambda path: path.relative_to(folder).parts)


def check_image(image: object) -> Image:
    """Return `image` if it is a non-empty uint8 array (h, w) or (h, w, 3), else raise InputError."""
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8:
        came = f"an array of {image.dtype}" if isinstance(image, np.ndarray) else type(image).__name__
        raise InputError(f"an image is a uint8 array, got {came}: scale it to 0..255 and convert it first")
    if image.ndim not in (2, 3) or image.size == 0 or image.shape[2:] not in ((), (3,)):
        raise InputError(f"an image has shape (h, w) or (h, w, 3) in RGB order, got {image.shape}")
    return image


def _walk(folder: Path) -> Iterator[Path]:
    """All files under a folder: those that are in it, then those that it links to under other names."""
    entered: set[Path] = set()
    waiting = [folder]
    while waiting:
        for place, folders, files in os.walk(waiting.pop(0)):
            here = Path(place)
            if (real := here.resolve()) in entered:
                folders.clear()
                continue
            entered.add(real)
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            waiting += [here / name for name in folders if (here / name).is_symlink()]
            yield from (here / name for name in files if not name.startswith("."))


def _read_bytes(path: Path) -> Image:
    if path.is_dir():
        raise InputError(f"{path} is a folder: name an image file")
    if not path.is_file():
        raise InputError(f"image {path} does not exist")
    try:
        size = path.stat().st_size
        if size > _LARGEST_FILE:
            raise InputError(f"image {path} is too large: {size} bytes, at most {_LARGEST_FILE}")
        encoded = np.fromfile(path, dtype=np.uint8)
    except OSError as error:
        raise InputError(f"cannot read image {path}: {error.strerror or error}") from error
    if encoded.size == 0:
        raise InputError(f"image {path} is empty")
    return encoded


def _decode(encoded: Image, flags: int, path: Path) -> NDArray[Any] | None:
    """The decoded BGR image, or None when it cannot be.

    From memory, not by `imread`, which fills the rest of a cut-off JPEG with grey and fails on rotated TIFF.
    """
    # OpenCV would print its errors too. Its log level is global: two threads must not restore it crosswise.
    with _log_level:
        level = opencv_logging.setLogLevel(opencv_logging.LOG_LEVEL_SILENT)
        try:
            return cv2.imdecode(encoded, flags)
        except (cv2.error, MemoryError) as error:
            raise InputError(f"image {path} has too many pixels to be read: scale it down first") from error
        finally:
            opencv_logging.setLogLevel(level)


def _alpha(encoded: Image, decoded: NDArray[Any], path: Path) -> Image | None:
    """The opacity (h, w) of a file with transparent pixels; None when every pixel is opaque."""
    unchanged = _decode(encoded, cv2.IMREAD_UNCHANGED, path)
    if unchanged is None or unchanged.ndim != 3 or unchanged.shape[2] != 4:
        return None
    alpha = _to_uint8(unchanged[:, :, 3])
    if alpha.min() == 255:
        return None
    if not np.array_equal(unchanged[:, :, :3], decoded):
        raise InputError(f"image {path} is both transparent and rotated by EXIF: save it upright first")
    return alpha


def _over_white(image: NDArray[Any], alpha: Image | None) -> Image:
    if alpha is None:
        return image
    opacity = alpha[:, :, None].astype(np.uint32)
    return ((image * opacity + 255 * (255 - opacity) + 127) // 255).astype(np.uint8)


def _to_uint8(image: NDArray[Any]) -> Image:
    """16-bit values to the nearest of 0..255, where 65535 is 255."""
    if image.dtype == np.uint8:
        return image
    return ((image.astype(np.uint32) + 128) // 257).astype(np.uint8)
