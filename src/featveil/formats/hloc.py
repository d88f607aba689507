"""hloc's `features.h5`: one HDF5 group per image name, nested on '/'.

A group holds `keypoints` (n, 2), `descriptors` (d, n), and possibly `scores`, `scales`, `oris` (n,) and
`image_size` (width, height). hloc puts the centre of the first pixel at (0, 0), featveil at (0.5, 0.5).
Read only files you trust: the HDF5 library is not made for hostile ones.
"""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from featveil.core import Features, FeatveilError, FormatError, InputError, Keypoints, Points
from featveil.core.arrays import Float32, floats
from featveil.core.features import check_kind
from featveil.core.files import replacing

_KIND = "featveil_kind"
_GEOMETRY = {"scale": "scales", "orientation": "oris", "response": "scores"}
# A dataset may claim any shape without holding it; this is 2 GiB of float32 in one image.
_MAX_VALUES = 2**29


def names(path: str | Path) -> list[str]:
    """The names of all images with keypoints in the file, sorted.

    Raises InputError when there is no file and FormatError when it is not HDF5.
    """
    with _opened(path) as file:
        return _names(file)


def kind_of(path: str | Path, name: str) -> str | None:
    """The descriptor kind of image `name`, if the file says so; hloc's own files do not."""
    with _opened(path) as file:
        return _stored_kind(_group(file, name))


def read(path: str | Path, name: str, kind: str | None = None) -> Features:
    """The features of image `name`, descriptors scaled to unit norm; `kind` names the descriptor.

    Files written by featveil know their kind; for others it must be given.
    Raises InputError when the image is not in the file and FormatError when its features cannot be used.
    """
    with _opened(path) as file:
        return _read_group(_group(file, name), name, kind)


def read_features(path: str | Path, kind: str | None = None) -> Iterator[tuple[str, Features]]:
    """Names and features of all images, sorted by name, one in memory at a time. Raises like `read`."""
    with _opened(path) as file:
        for name in _names(file):
            yield name, _read_group(_group(file, name), name, kind)


def write_features(path: str | Path, items: Iterable[tuple[str, Features]]) -> None:
    """Add named features to `path`, which is made when missing; an image already there is replaced.

    All of `items` are written or, after any error, none: the file is copied, changed and moved into place.
    These are raw descriptors: the file must not leave the device. Raises InputError for features without
    keypoints and for an unusable name.
    """
    path = Path(path)
    if path.exists():
        names(path)
    with replacing(path) as temporary:
        if path.exists():
            shutil.copyfile(path, temporary)
        with h5py.File(temporary, "r+" if path.exists() else "w") as file:
            for name, features in items:
                _write_group(file, name, features)


@contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    """The file, open for reading; what h5py raises on damaged content becomes a FormatError."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} is a folder: name a file" if path.is_dir() else f"{path} does not exist")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except FeatveilError:
        raise
    except (PermissionError, BlockingIOError) as error:
        raise InputError(f"cannot open {path}: another program holds it, or you may not read it") from error
    except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
        what = "is a damaged HDF5 file" if h5py.is_hdf5(path) else "is not an HDF5 file"
        raise FormatError(f"{path} {what}: write it again") from error


def _names(file: Any) -> list[str]:
    found: list[str] = []

    # h5py visits hard links only, so no name leads out of the file.
    def visit(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and name.endswith("/keypoints"):
            found.append(name.removesuffix("/keypoints"))

    file.visititems(visit)
    for name in found:
        if not _is_name(name):
            raise FormatError(f"an image name in the file is not a relative path: {name!r}")
    return sorted(found)


def _is_name(name: str) -> bool:
    # Callers join names to folders, so none may climb out of one.
    return all(part not in ("", ".", "..") for part in name.split("/")) and name.isprintable()


def _linked(group: Any, name: str, kind: type) -> Any:
    """The member `name` of `group`, or None; links to other places and files are not followed."""
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        return None
    return group[name] if group.get(name, getclass=True) is kind else None


def _group(file: Any, name: str) -> Any:
    group = file if _is_name(name) else None
    for part in name.split("/"):
        group = None if group is None else _linked(group, part, h5py.Group)
    if group is None:
        raise InputError(f"the file has no features of image {name!r}")
    return group


def _stored_kind(group: Any) -> str | None:
    stored = group.attrs.get(_KIND)
    return stored if isinstance(stored, str) else None


def _kind(group: Any, name: str, kind: str | None) -> str:
    stored = _stored_kind(group)
    if kind is None and stored is None:
        raise InputError(f"the file does not say what descriptors image {name!r} has: name their kind (--kind)")
    if kind is not None and stored is not None and kind != stored:
        raise InputError(f"the descriptors of image {name!r} are {stored}, not {kind}")
    made = kind or stored or ""
    check_kind(made)
    return made


def _read_group(group: Any, name: str, kind: str | None) -> Features:
    kind = _kind(group, name, kind)
    try:
        xy = floats("keypoints", _values(group, "keypoints"), (None, 2), np.float64) + 0.5
        values = floats("descriptors", _values(group, "descriptors"), (None, len(xy)), np.float64).T
        norms = np.linalg.norm(values, axis=1, keepdims=True)
        if not norms.all():
            raise InputError(f"descriptor {int(np.argmin(norms))} has zero norm")
        geometry = {ours: _values(group, theirs) for ours, theirs in _GEOMETRY.items() if theirs in group}
        keypoints = Keypoints(xy, **geometry)
        return Features(Points(values / norms), kind, keypoints, _image_size(group))
    except InputError as error:
        raise FormatError(f"the features of image {name!r} cannot be used: {error}") from error


def _values(group: Any, name: str) -> NDArray[Any]:
    """The numbers in dataset `name`; raises InputError when there are none or they lie outside the file."""
    dataset = _linked(group, name, h5py.Dataset)
    if dataset is None:
        raise InputError(f"dataset {name} is missing")
    if dataset.dtype.kind not in "fiu" or dataset.shape is None:
        raise InputError(f"dataset {name} does not hold numbers")
    if dataset.size > _MAX_VALUES or dataset.is_virtual or dataset.external:
        raise InputError(f"dataset {name} is too large or stored in another file")
    return np.asarray(dataset[()])


def _image_size(group: Any) -> tuple[int, int] | None:
    if "image_size" not in group:
        return None
    width, height = floats("image_size", _values(group, "image_size"), (2,), np.float64)
    return int(width), int(height)


def _write_group(file: Any, name: str, features: Features) -> None:
    if not _is_name(name):
        raise InputError(f"an image name is a relative path with '/', got {name!r}")
    if features.keypoints is None:
        raise InputError(f"the features of image {name!r} have no keypoints, which hloc needs")
    parents = ["/".join(name.split("/")[:depth]) for depth in range(1, name.count("/") + 1)]
    if any(f"{parent}/keypoints" in file for parent in parents) or name.endswith("/keypoints"):
        raise InputError(f"image {name!r} would lie inside the features of another image")
    if name in file:
        if f"{name}/keypoints" not in file:
            raise InputError(f"{name!r} is a folder of images in this file, not an image")
        del file[name]
    group = file.create_group(name)
    group.attrs[_KIND] = features.kind
    # float32, where hloc writes float16: that has steps of half a pixel beyond 512.
    xy = features.keypoints.xy.astype(np.float64) - 0.5
    group.create_dataset("keypoints", data=xy.astype(np.float32)).attrs["uncertainty"] = 1.0
    group.create_dataset("descriptors", data=np.ascontiguousarray(features.descriptors.values.T))
    for ours, theirs in _GEOMETRY.items():
        values: Float32 | None = getattr(features.keypoints, ours)
        if values is not None:
            group.create_dataset(theirs, data=values)
    if features.image_size is not None:
        group.create_dataset("image_size", data=np.array(features.image_size, np.int64))
