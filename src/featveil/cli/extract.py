"""featveil extract: image files -> raw features. Also how other commands read an image or a feature file."""

import itertools
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import typer

from featveil.cli.console import Json, complain, progress, show
from featveil.core.errors import FeatveilError, InputError
from featveil.core.files import check_folder, make_folder
from featveil.pipelines.sources import HDF5 as HDF5
from featveil.pipelines.sources import add_named as add_named
from featveil.pipelines.sources import check_kind as check_kind
from featveil.pipelines.sources import extracted as extracted
from featveil.pipelines.sources import extracted_by as extracted_by
from featveil.pipelines.sources import has_images as has_images
from featveil.pipelines.sources import named_images as named_images
from featveil.pipelines.sources import read_features as read_features

if TYPE_CHECKING:
    from featveil.core import Features

Kind = Annotated[str, typer.Option(help="Descriptor kind for images: sift or rootsift.")]
MaxFeatures = Annotated[int, typer.Option(min=1, help="Strongest features to keep of each image.")]
ContrastThreshold = Annotated[float, typer.Option(help="Of keypoints; a smaller one finds more, in flat areas too.")]
Report = Callable[[int, int], None]

Made = TypeVar("Made")

_NOT_FOLDERS = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".npz", ".npy", ".safetensors", ".db")
_FIRST_BATCH = 16


class Format(StrEnum):
    """What to write."""

    veil = "veil"
    hloc = "hloc"


def extract(
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="Image files, or folders of them.")],
    out: Annotated[Path, typer.Option(help="A folder, a .veil file for one image, or an .h5 file for hloc.")],
    kind: Annotated[str, typer.Option(help="sift, rootsift, or a network: hardtfeat, hardnet, sosnet.")] = "sift",
    weights: Annotated[Path | None, typer.Option(help="Weights file of a network.", show_default="none")] = None,
    max_features: MaxFeatures = 2048,
    contrast_threshold: ContrastThreshold = 0.04,
    format: Annotated[  # noqa: A002
        Format | None, typer.Option(help="One .veil file an image, or one hloc file.", show_default="by --out")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Extract again what is there already.")] = False,
    json: Json = False,
) -> None:
    """Extract raw features. They show what the image shows: keep them on this device.

    Images that are done already are skipped, so a stopped command can be run again. An image that cannot be
    read or has no feature is reported and left out: exit code 1 if others worked, 2 if none did.

    Example: featveil extract photos/ --out features/ --kind rootsift
    """
    from featveil.extractors import make_extractor

    extractor = make_extractor(kind, max_features, weights, contrast_threshold)
    named = named_images(images)
    work = Work(lambda path: extracted_by(extractor, path), len(named))
    with progress("extracting") as report:
        work.report = report
        if format is Format.hloc or (format is None and out.suffix.lower() in HDF5):
            extract_to_hloc(named, out, kind, work, overwrite)
        else:
            _to_veil(named, out, kind, work, overwrite)
    finish(work, out, {"kind": kind, "features": work.features}, json)


class Work(Generic[Made]):
    """Counts what was done, skipped and failed; a failure is shown at once."""

    def __init__(self, read: Callable[[Path], Made], total: int) -> None:
        self.read, self.total = read, total
        self.written = self.skipped = self.failed = self.features = 0
        self.report: Report = lambda done, total: None

    def tried(self, path: Path) -> Made | None:
        """What is made of `path`, or None when that failed. The only input there is may not fail."""
        features: Made | None = None
        try:
            features = self.read(path)
        except FeatveilError as error:
            if self.total == 1:
                raise
            self.failed += 1
            complain("warning", error)
        self.advance()
        return features

    def advance(self) -> None:
        """Move the progress bar."""
        self.report(self.written + self.skipped + self.failed, self.total)


def finish(work: Work[Any], out: Path, more: dict[str, object], json: bool, note: str = "") -> None:
    """Print the counts; exit code 1 when some failed, InputError when all did."""
    if work.failed and not work.written and not work.skipped:
        raise InputError(f"none of the {work.total} inputs could be used, nothing was written: see the lines above")
    counts = {"out": str(out), "written": work.written, "skipped": work.skipped, "failed": work.failed}
    text = f"{work.written} written to {out}"
    text += f", {work.skipped} there already and kept as they are" if work.skipped else ""
    text += f", {work.failed} failed" if work.failed else ""
    show({**counts, **more}, json, f"{text}\n{note}" if note else text)
    if work.failed:
        raise typer.Exit(1)


def targets(names: list[str], out: Path) -> dict[str, Path]:
    """Where each of `names` is written: `out` itself if it is a .veil file, else .veil files in that folder.

    Raises InputError when `out` cannot hold them. Makes nothing.
    """
    check_folder(out.parent)
    if not out.exists() and (out.suffix.lower() in _NOT_FOLDERS or out.suffix.lower() in HDF5):
        raise InputError(f"{out} would be a folder with a misleading name: name a .veil file or a folder")
    if out.suffix == ".veil" and not out.is_dir():
        if len(names) > 1:
            raise InputError(f"{len(names)} inputs do not fit one file {out}: name a folder")
        return dict.fromkeys(names, out)
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file that does not end in .veil: name a folder or a .veil file")
    made = {name: out / (name if name.endswith(".veil") else f"{name}.veil") for name in names}
    for name, path in made.items():
        if not path.resolve().is_relative_to(out.resolve()):
            raise InputError(f"{name!r} leads out of the folder {out}: rename it first")
    if len(set(made.values())) < len(made):
        raise InputError(f"two inputs would be written to one file in {out}: use two folders")
    return made


def _to_veil(named: dict[str, Path], out: Path, kind: str, work: "Work[Features]", overwrite: bool) -> None:
    from featveil.formats.veil import load, save

    for name, target in targets(list(named), out).items():
        if target.exists() and not overwrite:
            if (there := load(target).kind) != kind:
                raise InputError(f"{target} holds {there} features: --overwrite it, or use another folder")
            work.skipped += 1
            work.advance()
        elif (features := work.tried(named[name])) is not None:
            make_folder(target.parent)
            save(features, target)
            work.written += 1
            work.features += len(features)
            work.advance()


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
    waiting = [name for name in named if overwrite or name not in there]
    work.skipped = len(named) - len(waiting)
    found = _found(named, waiting, work)
    while (first := next(found, None)) is not None:
        batch = max(_FIRST_BATCH, work.written + len(there)) - 1
        write_features(out, itertools.chain([first], itertools.islice(found, batch)))


def _found(named: dict[str, Path], waiting: list[str], work: "Work[Features]") -> Iterator[tuple[str, "Features"]]:
    for name in waiting:
        features = work.tried(named[name])
        if features is not None:
            work.written += 1
            work.features += len(features)
            work.advance()
            yield name, features
