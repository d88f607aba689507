"""Features of many images by name: of an hloc or private file, a COLMAP database, or `.veil` files."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from featveil.core import Features, FeatveilError, InputError, PrivateFeatures, base_kind
from featveil.formats import colmap_database, hloc, private_hloc, veil

_HDF5 = (".h5", ".hdf5")
_VEIL = ".veil"

AnyFeatures = Features | PrivateFeatures


@dataclass(frozen=True)
class Collection:
    """Features of the images `names`, sorted: private ones, or raw ones, never both."""

    path: Path
    names: list[str]
    private: bool
    _read: Callable[[str], AnyFeatures] = field(repr=False)
    _kind: str | None = None
    _known: frozenset[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_known", frozenset(self.names))

    def read(self, name: str) -> AnyFeatures:
        """The features of image `name`. Raises InputError when there is none or it is of another kind, or FormatError.

        The error names the file.
        """
        if name not in self._known:
            raise InputError(f"{self.path} has no image {name!r}: it has {len(self.names)}, such as {self.names[0]!r}")
        try:
            features = self._read(name)
        except FeatveilError as error:
            if str(self.path) in str(error):
                raise
            raise type(error)(f"{self.path}: {error}") from error
        if isinstance(features, PrivateFeatures) != self.private:
            raise InputError(f"{self.path} holds raw and private features: keep them apart")
        if self._kind is not None and base_kind(features.kind) != base_kind(self._kind):
            raise InputError(f"the features of image {name!r} in {self.path} are {features.kind}, not {self._kind}")
        return features


def open_collection(path: str | Path, kind: str | None = None) -> Collection:
    """The features at `path`: an hloc or private HDF5 file, a COLMAP database, a .veil file or a folder of those.

    A .veil file is named by its path in the folder, without `.veil`. `kind` names the descriptors of files that do
    not say it, and others must have it. Raises InputError when there is nothing to read, FormatError if damaged.
    """
    path = Path(path)
    if path.is_dir():
        return _of_folder(path, kind)
    if path.suffix.lower() == _VEIL:
        return _of_veil(path, {path.stem: path}, kind)
    if not path.exists():
        raise InputError(f"{path} does not exist")
    if colmap_database.is_database(path):
        names = colmap_database.names(path)
        return Collection(path, names, False, lambda name: colmap_database.read(path, name, kind), kind)
    if path.suffix.lower() not in _HDF5:
        raise InputError(f"{path} holds no features: name an .h5 file, a COLMAP database or .veil files")
    if private_hloc.is_private(path):
        return Collection(path, private_hloc.names(path), True, lambda name: private_hloc.read(path, name), kind)
    names = hloc.names(path)
    if not names:
        raise InputError(f"{path} holds no image features")
    return Collection(path, names, False, lambda name: hloc.read(path, name, kind), kind)


def _of_folder(folder: Path, kind: str | None) -> Collection:
    files = {file.relative_to(folder).as_posix().removesuffix(_VEIL): file for file in folder.rglob(f"*{_VEIL}")}
    if not files:
        raise InputError(f"{folder} holds no .veil files")
    return _of_veil(folder, files, kind)


def _of_veil(path: Path, files: dict[str, Path], kind: str | None) -> Collection:
    """The first file tells whether they are private; `Collection.read` compares the others with it."""
    names = sorted(files)
    private = isinstance(veil.load(files[names[0]]), PrivateFeatures)
    return Collection(path, names, private, lambda name: veil.load(files[name]), kind)
