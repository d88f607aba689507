"""What verbs are given -> images, features, cameras by name, and the network that concealed them."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featveil.core.errors import InputError, PrivacyError

if TYPE_CHECKING:
    from featveil.core import Camera, ConcealingNetwork, Features, PrivateFeatures
    from featveil.extractors import Extractor

HDF5 = (".h5", ".hdf5")
USUAL_KIND, FEATURES_OF_IMAGE = "sift", 2048
PRIVATE, RAW = "private.h5", "features.h5"  # beside a map, what it was made of

_NO_IMAGES = (*HDF5, ".veil")

logger = getLogger(__name__)


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


def has_features(path: Path) -> bool:
    """Whether `path` holds features of images rather than images."""
    if path.is_dir():
        return next(path.rglob("*.veil"), None) is not None
    return path.suffix.lower() in (*HDF5, ".db", ".veil")


@dataclass(frozen=True)
class Source:
    """Where raw features are; `name` is the image's in a file with many."""

    path: Path
    name: str | None
    kind: str | None
    max_features: int | None

    @property
    def is_veil(self) -> bool:
        """Whether `path` is a .veil file."""
        return self.name is None and self.path.suffix.lower() == ".veil"

    def find_kind(self) -> str:
        """The kind of the descriptors, of which no more is read than that takes."""
        from featveil.formats import colmap_database, hloc, veil

        if self.is_veil:
            return veil.load(self.path).kind
        if self.name is None:
            return self.kind or USUAL_KIND
        if colmap_database.is_database(self.path):
            return colmap_database.kind_of(self.path, self.name) or self.kind or colmap_database.DEFAULT_KIND
        return hloc.kind_of(self.path, self.name) or self.kind or ""

    def read(self) -> "Features":
        """The raw features, at most `max_features`; raises PrivacyError when they are private already."""
        from featveil.core import Features

        if self.name is not None:
            features: Features | PrivateFeatures = _with_many(self.path).read(self.path, self.name, self.kind)
            if len(features) == 0:
                raise InputError(f"image {self.name!r} in {self.path} has no features")
        else:
            features = read_features(self.path, self.kind or USUAL_KIND, self.max_features or FEATURES_OF_IMAGE)
        if not isinstance(features, Features):
            raise _private_already(self.path)
        return features if self.max_features is None else _strongest(features, self.max_features)


def find_sources(
    inputs: Iterable[Path],
    kind: str | None,
    max_features: int | None,
    only: str | None = None,
    usual: str = USUAL_KIND,
) -> dict[str, Source]:
    """What to privatize, by name. A folder stands for its .veil files or, without any, its images.

    `only` is a pattern that names must fit. Without a `kind`, images are described by the `usual` one. Raises
    InputError when an input holds nothing, two hold one name or none fits, and PrivacyError for a private file.
    """
    sources: dict[str, Source] = {}
    for path in inputs:
        for name, (file, member) in _files_at(path).items():
            source = Source(file, member, kind or (usual if member is None else None), max_features)
            if sources.setdefault(name, source) != source:
                raise InputError(f"{sources[name].path} and {path} both hold {name!r}: use two folders")
    chosen = {name: source for name, source in sources.items() if only is None or fnmatchcase(name, only)}
    if not chosen:
        raise InputError(f"none of the {len(sources)} names fits {only!r}, such as {min(sources)!r}")
    return chosen


def _files_at(path: Path) -> dict[str, tuple[Path, str | None]]:
    """Files at `path` by name, each with the image's name in it if it holds many."""
    from featveil.formats import colmap_database, private_hloc

    if path.suffix.lower() in HDF5 or (path.is_file() and colmap_database.is_database(path)):
        if path.suffix.lower() in HDF5 and private_hloc.is_private(path):
            raise _private_already(path)
        names = _with_many(path).names(path)
        if not names:
            raise InputError(f"{path} holds no image features")
        return {name: (path, name) for name in names}
    if path.is_dir() and (veils := sorted(path.rglob("*.veil"))):
        if has_images(path):
            raise InputError(f"{path} holds both images and .veil files: name the ones you mean")
        return {veil.relative_to(path).as_posix(): (veil, None) for veil in veils}
    return {name: (file, None) for name, file in named_images([path]).items()}


def _with_many(path: Path) -> Any:
    """The module that reads files such as `path`, with features of many images."""
    from featveil.formats import colmap_database, hloc

    return hloc if path.suffix.lower() in HDF5 else colmap_database


def _private_already(path: Path) -> PrivacyError:
    return PrivacyError(f"{path} is private already: privatize the raw features it came from")


def _strongest(features: "Features", most: int) -> "Features":
    """The `most` features of highest response; raises InputError when there are more and none has a response."""
    if len(features) <= most:
        return features
    response = None if features.keypoints is None else features.keypoints.response
    if response is None:
        raise InputError(f"these {len(features)} features have no response to choose {most} by: extract fewer instead")
    return features.take((-response).argsort(kind="stable")[:most])


class KnownCameras:
    """Intrinsics by image name: those of a list, which are exact, or without one what their source tells."""

    def __init__(self, listed: Path | None) -> None:
        from featveil.formats.poses import read_queries

        self._listed = None if listed is None else read_queries(listed)

    @property
    def exact(self) -> bool:
        """Whether they are better than EXIF data, which are rounded and sometimes wrong."""
        return self._listed is not None

    def warn(self, names: Iterable[str]) -> None:
        """Say how many of the images a list lacks."""
        every = list(names)
        missing = [name for name in every if self._listed is not None and name not in self._listed]
        if missing:
            such = f"such as {missing[0]!r}"
            logger.warning(f"--cameras names none for {len(missing)} of {len(every)} images, {such}")

    def find(self, name: str, source: Path) -> "Camera | None":
        """Of image `name` in a folder, an image file or a COLMAP database; None when nothing is known."""
        from featveil.formats import colmap_database
        from featveil.geometry.map_images import camera_from_exif

        if self._listed is not None:
            return self._listed.get(name)
        if source.is_file() and colmap_database.is_database(source):
            return colmap_database.camera_of(source, name)
        image = source / name if source.is_dir() else source
        return camera_from_exif(image) if image.is_file() and image.suffix.lower() not in _NO_IMAGES else None


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
