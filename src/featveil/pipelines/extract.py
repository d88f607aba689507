"""Image files -> files of raw features, which stay on this device."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from featveil.core.errors import InputError
from featveil.core.files import check_folder, make_folder
from featveil.core.options import argument, option
from featveil.core.resuming import Report, silent
from featveil.pipelines.privatize_parts.outputs import Work, targets
from featveil.pipelines.sources import HDF5, extracted_by, named_images

if TYPE_CHECKING:
    from featveil.core import Features

_FIRST_BATCH = 16


@dataclass(frozen=True)
class ExtractRequest:
    """What to extract of which images, and where to write it."""

    images: tuple[Path, ...] = argument(metavar="IMAGE...", help="Image files, or folders of them.")
    out: Path = option(help="A folder, a .veil file for one image, or an .h5 file for hloc.")
    kind: str = option("sift", help="sift, rootsift, or a network: hardtfeat, hardnet, sosnet.")
    weights: Path | None = option(None, help="Weights file of a network.", shown="none")
    max_features: int = option(2048, minimum=1, help="Strongest features to keep of each image.")
    contrast_threshold: float = option(0.04, help="Of keypoints; a smaller one finds more, in flat areas too.")
    format: Literal["veil", "hloc"] | None = option(
        None, help="One .veil file an image, or one hloc file.", shown="by --out"
    )
    overwrite: bool = option(False, help="Extract again what is there already.")


@dataclass(frozen=True)
class ExtractResult:
    """How many images were written to `out`, kept as they were, and failed; `features` of those that were written."""

    out: Path
    kind: str
    written: int
    skipped: int
    failed: int
    features: int


def extract_files(request: ExtractRequest, report: Report = silent) -> ExtractResult:
    """Extract the features of images, except those that are there already.

    An image that cannot be read or has no feature is a warning and counted; raises InputError when all are.
    """
    from featveil.extractors import make_extractor

    extractor = make_extractor(request.kind, request.max_features, request.weights, request.contrast_threshold)
    named = named_images(request.images)
    work = Work(lambda path: extracted_by(extractor, path), len(named), report)
    if request.format == "hloc" or (request.format is None and request.out.suffix.lower() in HDF5):
        extract_to_hloc(named, request.out, request.kind, work, request.overwrite)
    else:
        _extract_to_veil(named, request, work)
    work.check_any()
    return ExtractResult(request.out, request.kind, work.written, work.skipped, work.failed, work.features)


def extract_to_hloc(named: dict[str, Path], out: Path, kind: str, work: "Work[Features]", overwrite: bool) -> None:
    """Add to one file of hloc. It is copied for each batch, so batches grow with it."""
    from featveil.formats.hloc import kind_of, names, write_features

    if out.suffix.lower() not in HDF5:
        raise InputError(f"hloc features are one file: name an .h5 file instead of {out}")
    check_folder(out.parent)
    there = set(names(out)) if out.exists() else set()
    for name in there - (set(named) if overwrite else set()):
        if (stored := kind_of(out, name)) != kind:
            raise InputError(f"{out} holds {stored or 'unnamed'} features: write {kind} to another file")
    waiting = {name: path for name, path in named.items() if overwrite or name not in there}
    work.skipped = len(named) - len(waiting)
    features = _extracted(waiting, work)
    while (first := next(features, None)) is not None:
        batch = max(_FIRST_BATCH, work.written + len(there)) - 1
        write_features(out, itertools.chain([first], itertools.islice(features, batch)))


def _extracted(waiting: dict[str, Path], work: "Work[Features]") -> "Iterator[tuple[str, Features]]":
    for name, path in waiting.items():
        features = work.tried(path)
        if features is not None:
            work.count(len(features))
            work.advance()
            yield name, features


def _extract_to_veil(named: dict[str, Path], request: ExtractRequest, work: "Work[Features]") -> None:
    from featveil.formats.veil import load, save

    for name, target in targets(named, request.out).items():
        if target.exists() and not request.overwrite:
            if (there := load(target).kind) != request.kind:
                raise InputError(f"{target} holds {there} features: --overwrite it, or use another folder")
            work.skipped += 1
            work.advance()
        elif (features := work.tried(named[name])) is not None:
            make_folder(target.parent)
            save(features, target)
            work.count(len(features))
            work.advance()
