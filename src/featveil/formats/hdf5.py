"""HDF5 files with groups named by images: opened, changed and read so that no name or link leads out of them.

Read only files you trust: the HDF5 library is not made for hostile ones.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from featveil.core import FeatveilError, FormatError, InputError
from featveil.core.files import replacing

# A dataset may claim any shape without holding it; this is 2 GiB of float32 in one image.
_MAX_VALUES = 2**29


@contextmanager
def opened(path: str | Path) -> Iterator[Any]:
    """The file, open for reading. Raises InputError when there is none and FormatError when it is damaged."""
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


@contextmanager
def changed(path: Path) -> Iterator[Any]:
    """A copy of the file, or a new one, open for writing; it is moved into place if the block succeeds.

    What is deleted from it stays in the free space of the file until that is used again.
    """
    there = path.exists()
    if there:
        with opened(path):
            pass
    with replacing(path) as temporary:
        if there:
            shutil.copyfile(path, temporary)
        with h5py.File(temporary, "r+" if there else "w") as file:
            yield file


def is_name(name: str) -> bool:
    """Whether `name` is a relative path that stays below where it is joined to."""
    return all(part not in ("", ".", "..") for part in name.split("/")) and name.isprintable()


def check_name(name: str) -> None:
    """Raise InputError unless `name` can name an image."""
    if not is_name(name):
        raise InputError(f"an image name is a relative path with '/', got {name!r}")


def image_names(file: Any, member: str = "keypoints") -> list[str]:
    """The sorted names of all groups with a dataset `member`. Raises FormatError for one that is no relative path."""
    names: list[str] = []

    # h5py visits hard links only, so no name leads out of the file.
    def visit(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and name.endswith(f"/{member}"):
            names.append(name.removesuffix(f"/{member}"))

    file.visititems(visit)
    for name in names:
        if not is_name(name):
            raise FormatError(f"an image name in the file is not a relative path: {name!r}")
    return sorted(names)


def find_group(file: Any, name: str) -> Any:
    """The group `name`, or None; links to other places and files are not followed."""
    group = file if is_name(name) else None
    for part in name.split("/"):
        group = None if group is None else linked(group, part, h5py.Group)
    return group


def linked(group: Any, name: str, kind: type) -> Any:
    """The member `name` of `group`, or None; links to other places and files are not followed."""
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        return None
    return group[name] if group.get(name, getclass=True) is kind else None


def numbers(group: Any, name: str) -> NDArray[Any]:
    """The numbers in dataset `name`; raises InputError when there are none or they lie outside the file."""
    dataset = linked(group, name, h5py.Dataset)
    if dataset is None:
        raise InputError(f"dataset {name} is missing")
    if dataset.dtype.kind not in "fiu" or dataset.shape is None:
        raise InputError(f"dataset {name} does not hold numbers")
    if dataset.size > _MAX_VALUES or dataset.is_virtual or dataset.external:
        raise InputError(f"dataset {name} is too large or stored in another file")
    return np.asarray(dataset[()])


def new_group(file: Any, name: str) -> Any:
    """An empty group for image `name`, instead of what is there; raises InputError where it meets another image."""
    check_name(name)
    parents = ["/".join(name.split("/")[:depth]) for depth in range(1, name.count("/") + 1)]
    if any(_is_image(file, parent) for parent in parents) or name.endswith("/keypoints"):
        raise InputError(f"image {name!r} would lie inside the features of another image")
    if name in file:
        if not _is_image(file, name):
            raise InputError(f"{name!r} is a folder of images in this file, not an image")
        del file[name]
    return file.create_group(name)


def _is_image(file: Any, name: str) -> bool:
    """Whether the group `name` is that of an image, not a folder in which another is called `keypoints`."""
    return file.get(f"{name}/keypoints", getclass=True) is h5py.Dataset
