"""Where the privatize command finds raw features: images, `.veil` files, hloc files, COLMAP databases."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featveil.cli.extract import HDF5, has_images, named_images, read_features
from featveil.core.errors import InputError, PrivacyError

if TYPE_CHECKING:
    from featveil.core import Features, PrivateFeatures

FEATURES_OF_IMAGE = 2048


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
            return self.kind or "sift"
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
            features = read_features(self.path, self.kind or "sift", self.max_features or FEATURES_OF_IMAGE)
        if not isinstance(features, Features):
            raise _private_already(self.path)
        return features if self.max_features is None else _strongest(features, self.max_features)


def find_sources(
    inputs: list[Path], kind: str | None, max_features: int | None, only: str | None = None
) -> dict[str, Source]:
    """What to privatize, by name. A folder stands for its .veil files or, without any, its images.

    `only` is a pattern that names must fit. Raises InputError when an input holds nothing, two hold one name or none
    fits, and PrivacyError for a private file.
    """
    found: dict[str, Source] = {}
    for path in inputs:
        for name, (file, member) in _found(path).items():
            source = Source(file, member, kind, max_features)
            if found.setdefault(name, source) != source:
                raise InputError(f"{found[name].path} and {path} both hold {name!r}: use two folders")
    chosen = {name: source for name, source in found.items() if only is None or fnmatchcase(name, only)}
    if not chosen:
        raise InputError(f"none of the {len(found)} names fits {only!r}, such as {min(found)!r}")
    return chosen


def _found(path: Path) -> dict[str, tuple[Path, str | None]]:
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
