"""What commands are given -> features: images and feature files by name, and the network that concealed them."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from featveil.core.errors import InputError

if TYPE_CHECKING:
    from featveil.core import ConcealingNetwork, Features, PrivateFeatures
    from featveil.extractors import Extractor

HDF5 = (".h5", ".hdf5")


def check_kind(kind: str) -> None:
    """Raise InputError for a descriptor kind that no image has by itself: a network also needs its weights."""
    from featveil.extractors import EXTRACTORS, NETWORKS

    if kind in NETWORKS:
        raise InputError(f"{kind} is a network: extract its features first (featveil extract --weights)")
    if kind not in EXTRACTORS:
        raise InputError(f"unknown descriptor kind {kind!r}: use one of {', '.join(EXTRACTORS)}")


def extracted(path: Path, kind: str, max_features: int) -> "Features":
    """The features of an image file; raises InputError when there are none."""
    from featveil.extractors import make_extractor

    return extracted_by(make_extractor(kind, max_features), path)


def extracted_by(extractor: "Extractor", path: Path) -> "Features":
    """What an extractor finds in an image file; raises InputError when that is nothing."""
    from featveil.extractors import read_image

    features = extractor.extract(read_image(path))
    if len(features) == 0:
        raise InputError(f"{path} has no features: use an image with more texture")
    return features


def read_features(path: Path, kind: str, max_features: int) -> "Features | PrivateFeatures":
    """What a .veil file holds, or what is found in an image file; raises InputError when that is nothing."""
    if path.suffix.lower() != ".veil":
        return extracted(path, kind, max_features)
    from featveil.formats.veil import load

    features = load(path)
    if len(features) == 0:
        raise InputError(f"{path} has no features")
    return features


def named_images(sources: Iterable[Path]) -> dict[str, Path]:
    """Image files by a name that is unique: the file name, or the path under the folder that was given."""
    from featveil.extractors import image_files

    named: dict[str, Path] = {}
    for source in sources:
        if source.is_dir():
            add_named(named, {path.relative_to(source).as_posix(): path for path in image_files(source)})
        elif source.exists():
            add_named(named, {source.name: source})
        else:
            raise InputError(f"there is no image or folder {source}")
    return named


def has_images(folder: Path) -> bool:
    """Whether there is an image anywhere in `folder`."""
    from featveil.extractors import image_files

    try:
        return bool(image_files(folder))
    except InputError:
        return False


def add_named(named: dict[str, Path], more: dict[str, Path]) -> None:
    """Add `more` to `named`; raises InputError when a name is taken."""
    for name, path in more.items():
        if named.setdefault(name, path) != path:
            raise InputError(f"{named[name]} and {path} would both be written as {name}: use two folders")


def find_network(path: Path | None, kinds: Iterable[str]) -> "ConcealingNetwork | None":
    """The network at `path`; without one the built-in network, if descriptors of `kinds` were concealed by it."""
    from featveil.core import base_kind, is_concealed
    from featveil.defenses import builtin_concealer, has_builtin_concealer, load_network

    if path is not None:
        return load_network(path)
    for kind in kinds:
        if is_concealed(kind) and has_builtin_concealer(base_kind(kind)):
            usual = builtin_concealer(base_kind(kind))
            if usual.concealed_kind == kind:
                return usual
    return None
