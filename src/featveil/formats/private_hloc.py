"""The private file: private features of many images in one HDF5 file, which hloc reads as a features file.

A group per image name, nested on '/', holds `keypoints` (n, 2) and `image_size` as hloc has them, and `veil`: the
bytes of a `.veil` file. There are no `descriptors`: hloc's triangulation, reconstruction and localization only read
keypoints. docs/file-format.md describes it.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from featveil.core import FormatError, InputError, Keypoints, PrivacyError, PrivateFeatures
from featveil.core.arrays import Float32
from featveil.core.files import replacing
from featveil.formats import veil
from featveil.formats.hdf5 import check_name, find_group, image_names, new_group, numbers, opened

_CONTENT, _POSITIONS, _SIZE = "veil", "keypoints", "image_size"
_MEMBERS = {_CONTENT, _POSITIONS, _SIZE}


def names(path: str | Path) -> list[str]:
    """The names of all images in the file, sorted.

    Raises InputError when there is no file or it holds something else, FormatError if damaged.
    """
    with opened(path) as file:
        if not _is_private(file, path) and len(file) > 0:
            raise InputError(f"{path} does not hold private features: name another file for them")
        return image_names(file, _CONTENT)


def check_names(names: Iterable[str]) -> None:
    """Raise InputError when images with these `names` do not fit one file."""
    together = set(names)
    for name in sorted(together):
        check_name(name)
        parts = name.split("/")
        folders = {"/".join(parts[:depth]) for depth in range(1, len(parts))}
        if folders & together or (parts[1:] and parts[-1] in _MEMBERS):
            raise InputError(f"image {name!r} would lie inside the features of another image")


def is_private(path: str | Path) -> bool:
    """Whether this HDF5 file holds private features; raises FormatError when it holds something else as well."""
    with opened(path) as file:
        return _is_private(file, path)


def read(path: str | Path, name: str) -> PrivateFeatures:
    """The private features of image `name`.

    Raises InputError when the image is not in the file and FormatError when its content is not as specified.
    """
    with opened(path) as file:
        group = find_group(file, name)
        if group is None or _CONTENT not in group:
            raise InputError(f"{path} has no private features of image {name!r}")
        try:
            private = veil.decode(_content(group))
            if not isinstance(private, PrivateFeatures):
                raise FormatError("they are raw")
            _check_positions(group, private.keypoints)
        except (FormatError, InputError) as error:
            raise FormatError(f"the private features of image {name!r} in {path} cannot be used: {error}") from error
        return private


def write(path: str | Path, items: Iterable[tuple[str, PrivateFeatures]]) -> None:
    """Add named releases to `path`, which is made when missing; an image already there is replaced.

    All of `items` are written or, after any error, none. The file is made anew, because HDF5 leaves in place what is
    deleted and a release that was replaced must not be sent along. Raises PrivacyError for raw features, and
    InputError for ones without keypoints, an unusable or repeated name and a file that holds anything else.
    """
    path = Path(path)
    kept = set(names(path)) if path.exists() else set()
    written: set[str] = set()
    with replacing(path) as temporary, h5py.File(temporary, "w") as file:
        for name, private in items:
            if name in written:
                raise InputError(f"image {name!r} comes twice: release it once")
            written.add(name)
            content = encoded(name, private)
            group = new_group(file, name)
            _fill(group, content, _stored_positions(private.keypoints), private.image_size)
        if kept - written:
            with opened(path) as before:
                for name in sorted(kept - written):
                    _copy(find_group(before, name), new_group(file, name))


def encoded(name: str, private: PrivateFeatures) -> bytes:
    """What is stored as `veil`, once all is checked that can be wrong with one image. Raises like `write`."""
    check_name(name)
    if not isinstance(private, PrivateFeatures):
        raise PrivacyError(f"the features of image {name!r} are raw: a private file takes private ones only")
    if private.keypoints is None:
        raise InputError(f"the features of image {name!r} have no keypoints, which a private file needs")
    return veil.encode(private)


def _is_private(file: Any, path: str | Path) -> bool:
    datasets: list[str] = []
    file.visititems(lambda name, item: datasets.append(name) if isinstance(item, h5py.Dataset) else None)
    members = {name.rpartition("/")[2] for name in datasets}
    if _CONTENT not in members:
        return False
    images = set(image_names(file, _CONTENT))
    if members - _MEMBERS or {name.rpartition("/")[0] for name in datasets} != images:
        raise FormatError(f"{path} holds more than private features, perhaps raw ones: do not send it; release again")
    return True


def _content(group: Any) -> bytes:
    stored = numbers(group, _CONTENT)
    if stored.dtype != np.uint8 or stored.ndim != 1:
        raise InputError(f"dataset {_CONTENT} must be a row of bytes")
    return stored.tobytes()


def _stored_positions(keypoints: Keypoints | None) -> Float32 | None:
    """hloc puts the centre of the first pixel at (0, 0)."""
    return None if keypoints is None else (keypoints.xy.astype(np.float64) - 0.5).astype(np.float32)


def _check_positions(group: Any, keypoints: Keypoints | None) -> None:
    expected = _stored_positions(keypoints)
    if expected is None or not np.array_equal(numbers(group, _POSITIONS), expected):
        raise FormatError("its keypoints are not those that were released")


def _fill(group: Any, content: bytes, positions: object, image_size: object) -> None:
    group.create_dataset(_CONTENT, data=np.frombuffer(content, np.uint8))
    group.create_dataset(_POSITIONS, data=positions).attrs["uncertainty"] = 1.0
    if image_size is not None:
        group.create_dataset(_SIZE, data=np.array(image_size, np.int64))


def _copy(source: Any, group: Any) -> None:
    try:
        size = numbers(source, _SIZE) if _SIZE in source else None
        _fill(group, _content(source), numbers(source, _POSITIONS), size)
    except InputError as error:
        raise FormatError(f"the private features of image {source.name!r} cannot be used: {error}") from error
