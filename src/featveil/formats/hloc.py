"""hloc's `features.h5`: one HDF5 group per image name, nested on '/'.

A group holds `keypoints` (n, 2), `descriptors` (d, n), and possibly `scores`, `scales`, `oris` (n,) and
`image_size` (width, height). hloc puts the centre of the first pixel at (0, 0), featveil at (0.5, 0.5).
Read only files you trust: the HDF5 library is not made for hostile ones.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from featveil.core import Features, FormatError, InputError, Keypoints, Points
from featveil.core.arrays import Float32, floats
from featveil.core.features import check_kind
from featveil.formats.hdf5 import changed, check_name, find_group, image_names, new_group, numbers, opened

_KIND = "featveil_kind"
_GEOMETRY = {"scale": "scales", "orientation": "oris", "response": "scores"}


def names(path: str | Path) -> list[str]:
    """The names of all images with keypoints in the file, sorted.

    Raises InputError when there is no file and FormatError when it is not HDF5.
    """
    with opened(path) as file:
        return image_names(file)


def kind_of(path: str | Path, name: str) -> str | None:
    """The descriptor kind of image `name`, if the file says so; hloc's own files do not."""
    with opened(path) as file:
        return _stored_kind(_group(file, name))


def read(path: str | Path, name: str, kind: str | None = None) -> Features:
    """The features of image `name`, descriptors scaled to unit norm; `kind` names the descriptor.

    Files written by featveil know their kind; for others it must be given.
    Raises InputError when the image is not in the file and FormatError when its features cannot be used.
    """
    with opened(path) as file:
        return _read_group(_group(file, name), name, kind)


def read_features(path: str | Path, kind: str | None = None) -> Iterator[tuple[str, Features]]:
    """Names and features of all images, sorted by name, one in memory at a time. Raises like `read`."""
    with opened(path) as file:
        for name in image_names(file):
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
    with changed(path) as file:
        for name, features in items:
            _write_group(file, name, features)


def _group(file: Any, name: str) -> Any:
    group = find_group(file, name)
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
    known = kind or stored or ""
    check_kind(known)
    return known


def _read_group(group: Any, name: str, kind: str | None) -> Features:
    kind = _kind(group, name, kind)
    try:
        xy = floats("keypoints", numbers(group, "keypoints"), (None, 2), np.float64) + 0.5
        values = floats("descriptors", numbers(group, "descriptors"), (None, len(xy)), np.float64).T
        norms = np.linalg.norm(values, axis=1, keepdims=True)
        if not norms.all():
            raise InputError(f"descriptor {int(np.argmin(norms))} has zero norm")
        geometry = {ours: numbers(group, theirs) for ours, theirs in _GEOMETRY.items() if theirs in group}
        keypoints = Keypoints(xy, **geometry)
        return Features(Points(values / norms), kind, keypoints, _image_size(group))
    except InputError as error:
        raise FormatError(f"the features of image {name!r} cannot be used: {error}") from error


def _image_size(group: Any) -> tuple[int, int] | None:
    if "image_size" not in group:
        return None
    width, height = floats("image_size", numbers(group, "image_size"), (2,), np.float64)
    return int(width), int(height)


def _write_group(file: Any, name: str, features: Features) -> None:
    check_name(name)
    if features.keypoints is None:
        raise InputError(f"the features of image {name!r} have no keypoints, which hloc needs")
    group = new_group(file, name)
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
