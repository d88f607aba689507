"""What a database is built from: folders of images, feature files, arrays.

Each source opens into items, loaded one at a time in a fixed order, so that an interrupted build can go on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from featveil.core.arrays import Float32, floats
from featveil.core.errors import FormatError, InputError
from featveil.core.features import Features
from featveil.databases.recipes import SAMPLING, Recipe

_ROWS_PER_BLOCK = 2**14


@dataclass(frozen=True)
class Item:
    """One image, feature set or block of rows: `load` gives its descriptors (n, d).

    An image (`may_skip`) is reported and left out when it cannot be read; anything else damaged stops the
    build.
    """

    name: str
    load: Callable[[], Float32]
    may_skip: bool = False
    images: int = 1


def open_sources(sources: list[Path], recipe: Recipe) -> list[Item]:
    """The items of all `sources`, in order.

    Raises InputError for a source that is missing, empty or of an unknown type, and FormatError for a damaged
    one.
    """
    items: list[Item] = []
    for source in sources:
        opened = _open(source, recipe)
        if not opened:
            raise InputError(f"{source} holds nothing to build from")
        items += opened
    return items


def _open(source: Path, recipe: Recipe) -> list[Item]:
    if not source.exists():
        raise InputError(f"there is no folder or file {source}")
    if source.is_dir():
        return _veil_items(source, recipe) or _image_items(source, recipe)
    match source.suffix.lower():
        case ".npy":
            return _array_items(source)
        case ".veil":
            return [Item(str(source), partial(_raw_veil, source, recipe))]
        case ".h5" | ".hdf5":
            return _hloc_items(source, recipe)
    raise InputError(f"cannot build from {source}: expected a folder of images, or a .veil, .h5 or .npy file")


def _veil_items(folder: Path, recipe: Recipe) -> list[Item]:
    """The feature files of a folder, as extract writes it; nothing where it holds images as well."""
    from featveil.extractors.images import IMAGE_SUFFIXES

    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if any(path.suffix.lower() in IMAGE_SUFFIXES for path in files):
        return []
    return [Item(str(path), partial(_raw_veil, path, recipe)) for path in files if path.suffix.lower() == ".veil"]


def _image_items(folder: Path, recipe: Recipe) -> list[Item]:
    from featveil.extractors import EXTRACTORS, image_files

    if recipe.kind not in EXTRACTORS:
        raise InputError(
            f"cannot extract {recipe.kind} descriptors from images (only {', '.join(EXTRACTORS)}): extract them first,"
            " with 'featveil extract' or elsewhere, and build from a folder of .veil files or an .npy array"
        )
    return [Item(str(path), partial(_extracted, path, recipe), may_skip=True) for path in image_files(folder)]


def _extracted(path: Path, recipe: Recipe) -> Float32:
    from featveil.extractors import extract

    return extract(path, kind=recipe.kind, max_features=recipe.max_per_image).descriptors.values


def _raw_veil(path: Path, recipe: Recipe) -> Float32:
    from featveil.formats.veil import load

    features = load(path)
    if not isinstance(features, Features):
        raise InputError(f"{path} holds private features: a database is built from raw ones")
    return _of_kind(features, path, recipe)


def _of_kind(features: Features, path: Path, recipe: Recipe) -> Float32:
    """The descriptors, at random the allowed number of them: a file need not have the strongest first."""
    if features.kind != recipe.kind:
        raise InputError(f"{path} holds {features.kind} descriptors, asked for kind {recipe.kind}")
    values = features.descriptors.values
    if not recipe.clusters or len(values) <= recipe.max_per_image:
        return values
    rng = np.random.default_rng([SAMPLING, recipe.seed, len(values)])
    return values[np.sort(rng.choice(len(values), recipe.max_per_image, replace=False))]


def _array_items(path: Path) -> list[Item]:
    rows = len(_array(path))
    return [
        Item(f"{path}[{start}]", partial(_block, path, start), images=0) for start in range(0, rows, _ROWS_PER_BLOCK)
    ]


def _array(path: Path) -> NDArray[Any]:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        raise FormatError(f"{path} is not a readable .npy file of numbers") from error
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "fiu":
        raise InputError(f"{path} must hold descriptors as rows (n, d), got {array.dtype} {array.shape}")
    return array  # type: ignore[no-any-return]


def _block(path: Path, start: int) -> Float32:
    block: Float32 = floats(str(path), _array(path)[start : start + _ROWS_PER_BLOCK], (None, None))
    return block


def _hloc_items(path: Path, recipe: Recipe) -> list[Item]:
    from featveil.formats.hloc import names

    reader = _HlocReader(path, recipe)
    return [Item(f"{path}:{name}", partial(reader.load, name)) for name in names(path)]


class _HlocReader:
    """Reads the images of an hloc file in order: opening it for each one would be quadratic."""

    def __init__(self, path: Path, recipe: Recipe) -> None:
        from featveil.formats.hloc import read_features

        self.path, self.recipe = path, recipe
        self.remaining = read_features(path, recipe.kind)

    def load(self, name: str) -> Float32:
        for image, features in self.remaining:
            if image == name:
                return _of_kind(features, self.path, self.recipe)
        raise FormatError(f"{self.path} changed while it was read: image {name!r} is gone")
