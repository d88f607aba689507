"""What `featveil map` makes a map of: private features as they are, a release of raw ones, or these themselves."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featveil.cli.console import progress
from featveil.cli.extract import HDF5, Work, check_kind, extract_to_hloc, extracted, named_images
from featveil.cli.methods import make_defense
from featveil.cli.outputs import PrivateFile
from featveil.cli.privatize import release_all
from featveil.cli.releases import Released, Releases
from featveil.cli.sources import FEATURES_OF_IMAGE, find_sources
from featveil.core.errors import InputError

if TYPE_CHECKING:
    from featveil.formats.collections import Collection

PRIVATE, RAW = "private.h5", "features.h5"


@dataclass(frozen=True)
class Hiding:
    """The defense by name (None: lifting; raw: none) with its options, and which features are used."""

    defense: str | None
    options: dict[str, Any]
    database: Path | None
    digest: str | None
    apart: bool
    kind: str | None
    max_features: int | None
    concealer: Path | None = None  # of private features, what their words were concealed by

    @property
    def given(self) -> bool:
        """Whether any option of a defense was given."""
        return self.apart or any(value is not None for value in (*self.options.values(), self.digest))


def map_features(images: Path, out: Path, hiding: Hiding, begin: Callable[[], None]) -> "Collection":
    """The features at `images`, hidden; those that are made here go to a file in `out`, each image once.

    `begin` is called before anything is written, when `images` and `hiding` go together.
    """
    from featveil.formats.collections import open_collection

    found = open_collection(images, hiding.kind) if has_features(images) else None
    if found is not None:
        found.read(found.names[0])  # raises when they are of another kind
    elif hiding.kind is not None:
        check_kind(hiding.kind)
    if found is not None and found.private:
        if hiding.defense is not None or hiding.given:
            raise InputError(f"{images} is private already: leave --defense and its options out")
        return _as_it_is(found, hiding, begin)
    if hiding.defense == "raw":
        if hiding.given:
            raise InputError("raw features are not hidden: leave the options of defenses out")
        return _extracted(images, out / RAW, hiding, begin) if found is None else _as_it_is(found, hiding, begin)
    options = hiding.options | {"network": hiding.concealer}
    method = make_defense(hiding.defense or "lifting", options, hiding.database, hiding.digest)
    sources = find_sources([images], hiding.kind, hiding.max_features)
    releases = Releases(method, Released(apart=hiding.apart), None)
    begin()
    output = PrivateFile(sources, out / PRIVATE)
    _check_gone(output.before - set(output.stored.values()), images, out)
    work = release_all(sources, output, releases, resume=True, overwrite=False)
    _check_any(work)
    return open_collection(out / PRIVATE, hiding.kind)


def has_features(path: Path) -> bool:
    """Whether `path` holds features of images rather than images."""
    if path.is_dir():
        return next(path.rglob("*.veil"), None) is not None
    return path.suffix.lower() in (*HDF5, ".db", ".veil")


def _as_it_is(found: "Collection", hiding: Hiding, begin: Callable[[], None]) -> "Collection":
    if hiding.max_features is not None:
        raise InputError(f"the features in {found.path} are used as they are: leave --max-features out")
    begin()
    return found


def _extracted(images: Path, file: Path, hiding: Hiding, begin: Callable[[], None]) -> "Collection":
    from featveil.formats import hloc
    from featveil.formats.collections import open_collection

    named, kind = named_images([images]), hiding.kind or "sift"
    most = hiding.max_features or FEATURES_OF_IMAGE
    work = Work(lambda path: extracted(path, kind, most), len(named))
    begin()
    _check_gone(set(hloc.names(file) if file.exists() else ()) - set(named), images, file.parent)
    with progress("extracting") as report:
        work.report = report
        extract_to_hloc(named, file, kind, work, overwrite=False)
    _check_any(work)
    return open_collection(file, hiding.kind)


def _check_gone(names: set[str], images: Path, out: Path) -> None:
    """Raise InputError when an image was mapped that is not there any more, perhaps because nobody should have it."""
    if names:
        raise InputError(f"{out} has image {min(names)!r}, which is not in {images} any more: use another folder")


def _check_any(work: Work[Any]) -> None:
    if not work.written and not work.skipped:
        raise InputError(f"none of the {work.total} images could be used: see the lines above")
