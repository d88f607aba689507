"""A map and the raw features of its images -> the sketch that devices look their features up in."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featveil.core.errors import InputError
from featveil.core.files import check_folder
from featveil.core.options import argument, option
from featveil.pipelines.sketch_parts.foreign_points import Wanted, more_foreign
from featveil.pipelines.sketch_parts.written_sketches import Written, check_file, check_key_file, saved, signed
from featveil.pipelines.sources import PRIVATE, RAW

if TYPE_CHECKING:
    from featveil.core import Features, Points
    from featveil.databases import Database
    from featveil.formats.collections import Collection
    from featveil.gate import Sketch
    from featveil.gate.sketch_building import Stream
    from featveil.gate.thresholds import Foreign
    from featveil.geometry.models import SparseModel

StageReport = Callable[[str, int, int], None]  # what is done, how much of it, of how much

_EXACT = "exact"
_STAGES = ("reading features", "compressing", "calibrating")
_CUT_OFF = 0.2
_SIFT_PEAKS, _ROOTSIFT_PEAKS = 0.8, 0.95  # shares of descriptors that have a component above it: at least, at most
_ENOUGH = 100  # descriptors to tell that from
_SHORT = 0.01  # of the share that shall pass: less is not worth a warning

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SketchRequest:
    """The map to sketch, how small and how strict the sketch is, and where it goes."""

    model: Path = argument(help="Folder of a COLMAP model, such as featveil map makes.")
    out: Path = option(help="Sketch file to write (.sketch); with --tile-images a folder.")
    features: Path | None = option(
        None,
        help="Raw features of the map's images: .h5, COLMAP .db, .veil file or folder.",
        shown="features.h5 beside the model",
    )
    kind: str | None = option(None, help="Descriptor kind, for files that do not state it.", shown="what the file says")
    entry_bytes: str = option(
        "16",
        flags=("--bytes",),
        help="Bytes per entry, 1 to 256, or exact (not compressed). Fewer than 1,024 entries are always kept exact.",
    )
    pass_rate: float = option(0.85, help="Share of true correspondences that must pass.")
    foreign: tuple[Path, ...] = option(
        (),
        repeated=True,
        help="More content that this place does not show, to calibrate with: images or raw features.",
        shown="what comes with featveil",
    )
    background: Path | None = option(
        None,
        help="Database file of common features that every place has. Devices need the same one.",
        shown="the built-in one of the kind",
    )
    calibrate: bool = option(
        True, flags=("--calibrate/--no-calibrate",), help="Find tau. Without it, devices must state one (--tau)."
    )
    tile_images: int | None = option(
        None, minimum=1, help="Write tiles of at most this many images, and an index of them.", shown="one sketch"
    )
    key: Path | None = option(None, help="Private key to sign with: see featveil sketch key.", shown="not signed")
    source: str | None = option(None, help="Name of the place, which the sketch carries.", shown="the folder's name")
    picture: Path | None = option(None, help="Draw the calibration (.png). Needs the extra plots.")
    overwrite: bool = option(False, help="Replace a sketch that is there.")


@dataclass(frozen=True, eq=False)
class SketchResult(Written):
    """The sketch of a map, the images of the map that had no features, and the figure of its calibration.

    `kept_exact` says that entries were to be compressed, and are not, because there are too few of them.
    """

    missing: tuple[str, ...] = ()
    picture: Path | None = None
    kept_exact: bool = False

    def facts(self) -> dict[str, Any]:
        """What it is, as plain values."""
        picture = None if self.picture is None else str(self.picture)
        more = {"images_without_features": list(self.missing), "picture": picture, "kept_exact": self.kept_exact}
        return {**super().facts(), **more}


def silent(stage: str, done: int, total: int) -> None:
    """The StageReport of who does not want any."""


def sketch_map(request: SketchRequest, report: StageReport = silent) -> SketchResult:
    """Build the sketch of a map, calibrate it, sign it where a key is given, and write it: a file, or tiles.

    Raises InputError for features that the map was not made of and a map without points; nothing is written then.
    """
    from featveil.gate.map_sketch import Exact
    from featveil.gate.sketch_building import build_sketch
    from featveil.geometry.models import read_model
    from featveil.pipelines.map_parts.localizer import usable_images
    from featveil.pipelines.map_parts.observed import facts_of, observations

    size = _entry_size(request.entry_bytes)
    _check_request(request)
    model = read_model(request.model)
    source = _source(request, model)
    stored = _raw_features(request)
    names = usable_images(model, stored)
    read = _Reader(stored, names[0])
    facts = facts_of(model, read.kind, source)
    foreign = _foreign(request, read)
    stages = iter(_STAGES)

    def stream() -> Iterator[Any]:
        stage = next(stages)
        return observations(model, read, names, lambda done, total: report(stage, done, total))

    sketch = build_sketch(facts, stream, size)
    if foreign is not None:
        sketch = _calibrated(sketch, stream, foreign, request.pass_rate)
    missing = tuple(sorted(model.views.keys() - set(names)))
    if missing:
        logger.warning(f"{len(missing)} images of the map have no features, such as {missing[0]!r}: left out")
    if request.picture is not None:
        _draw(sketch, request.picture)
    whole = _write(request, sketch)
    kept_exact = size is not None and isinstance(sketch.entries, Exact)
    return SketchResult(whole.path, whole.sketch, whole.bytes, whole.tiles, missing, request.picture, kept_exact)


class _Reader:
    """Reads raw features of images, all of one kind."""

    def __init__(self, stored: "Collection", first: str) -> None:
        self._stored = stored
        features = self._raw(first)
        self.kind, self.size = features.kind, features.descriptors.size
        _warn_if_misnamed(features.kind, features.descriptors)
        self.wanted = Wanted(self.kind, self.size)

    def __call__(self, name: str) -> "Features":
        features = self._raw(name)
        if (features.kind, features.descriptors.size) != (self.kind, self.size):
            raise InputError(
                f"image {name!r} in {self._stored.path} has {features.kind} descriptors of size"
                f" {features.descriptors.size}, others have {self.kind} of size {self.size}: keep them apart"
            )
        return features

    def _raw(self, name: str) -> "Features":
        from featveil.core import Features

        features = self._stored.read(name)
        if not isinstance(features, Features):
            raise _are_private(self._stored.path)
        return features


def _warn_if_misnamed(kind: str, points: "Points") -> None:
    """Say when SIFT looks like RootSIFT, or the other way round: no feature of a right query would pass.

    SIFT cuts components off at 0.2 and then brings descriptors to norm 1 again, so nearly all have one above that. At
    most 60 % of RootSIFT descriptors do.
    """
    from featveil.databases.entries import QUANTIZED_KINDS
    from featveil.gate.map_sketch import unit

    if kind not in QUANTIZED_KINDS or len(points) < _ENOUGH:
        return
    peaks = float((unit(points).max(axis=1) > _CUT_OFF).mean())
    if peaks < _SIFT_PEAKS if kind == "sift" else peaks > _ROOTSIFT_PEAKS:
        other = "rootsift" if kind == "sift" else "sift"
        logger.warning(f"the descriptors are called {kind} and look like {other}: name the right kind (--kind)")


def _entry_size(text: str) -> int | None:
    """Bytes of an entry; None for exact ones."""
    if text == _EXACT:
        return None
    if not text.isdecimal():
        raise InputError(f"--bytes is a whole number of 1 to 256, or exact, got {text!r:.40}")
    return int(text[:9])


def _check_request(request: SketchRequest) -> None:
    """Raise for what would make a long work useless at its end."""
    from featveil.gate.tile_files import check_tiles_folder

    if not 0 < request.pass_rate < 1:
        raise InputError(f"the share that shall pass (--pass-rate) is between 0 and 1, got {request.pass_rate:g}")
    if not request.calibrate and (request.picture is not None or request.foreign or request.background is not None):
        raise InputError("without a calibration there is nothing to draw or to compare: leave --no-calibrate out")
    if request.tile_images is None:
        check_file(request.out, request.overwrite)
    elif request.tile_images < 1:
        raise InputError(f"a tile has at least one image, got {request.tile_images}")
    else:
        check_tiles_folder(request.out, request.overwrite)
    if request.picture is not None:
        if request.picture.suffix.lower() != ".png":
            raise InputError(f"the picture is a .png file, not {request.picture.name}")
        check_folder(request.picture.parent)
        _check_plots()
    check_key_file(request.key)


def _check_plots() -> None:
    from featveil.plotting.figures import blank_figure

    blank_figure(1, 1)


def _source(request: SketchRequest, model: "SparseModel") -> str:
    from featveil.gate.map_sketch import check_source
    from featveil.pipelines.map_parts.observed import facts_of

    source = request.model.resolve().name if request.source is None else request.source
    check_source(source)
    facts_of(model, "sift")  # raises for a map without points, before anything is read
    return source


def _raw_features(request: SketchRequest) -> "Collection":
    from featveil.formats.collections import open_collection

    path = request.features
    if path is None:
        path = request.model / RAW
        if not path.is_file():
            if (request.model / PRIVATE).is_file():
                raise _are_private(request.model / PRIVATE)
            raise InputError(
                f"there is no {RAW} in {request.model}: name the features that it was made of (--features)"
            )
    stored = open_collection(path, request.kind)
    if stored.private:
        raise _are_private(path)
    return stored


def _are_private(path: Path) -> InputError:
    return InputError(
        f"a sketch is made of raw features, and {path} holds private ones: name the raw ones (--features)"
    )


def _foreign(request: SketchRequest, read: _Reader) -> "Foreign | None":
    """What to calibrate with; None where that is not wanted."""
    from featveil.databases import load_database
    from featveil.pipelines.map_parts.observed import foreign_to

    if not request.calibrate:
        return None
    background = None if request.background is None else load_database(request.background)
    if background is not None and (background.kind, background.size) != (read.kind, read.size):
        raise InputError(
            f"the background holds {background.kind} descriptors of size {background.size}, the features are"
            f" {read.kind} of size {read.size}"
        )
    more = more_foreign(request.foreign, read.wanted)
    foreign = foreign_to(read.kind, more, background)
    _check_usable(foreign.background, read)
    if foreign.corpus is None:
        logger.warning(f"featveil has no foreign {read.kind} descriptors to calibrate with: give some (--foreign)")
    if foreign.background is None:
        logger.warning(f"there is no built-in background of {read.kind}: with one less passes (--background)")
    return foreign


def _check_usable(background: "Database | None", read: _Reader) -> None:
    """Raise InputError for features that are called as what comes with featveil and have another size."""
    if background is not None and background.size != read.size:
        raise InputError(
            f"{read.kind} descriptors have size {background.size}, these have {read.size}: name their kind"
        )


def _calibrated(sketch: "Sketch", stream: "Stream", foreign: "Foreign", target: float) -> "Sketch":
    from featveil.gate.probing import AuditLimits
    from featveil.gate.thresholds import calibrate

    calibration = calibrate(sketch, stream(), foreign, target)
    passing = calibration.at(calibration.passes, calibration.tau)
    if passing < target - _SHORT:
        logger.warning(
            f"only {passing:.0%} of true correspondences pass, not {target:.0%}: the map's images differ much"
        )
    most = AuditLimits().passing
    if calibration.foreign is not None and (stray := calibration.at(calibration.foreign, calibration.tau)) > most:
        logger.warning(
            f"{stray:.1%} of foreign content passes, and featveil sketch audit refuses more than {most:.0%}: use more"
            " bytes (--bytes) or a smaller share (--pass-rate)"
        )
    return replace(sketch, calibration=calibration)


def _draw(sketch: "Sketch", picture: Path) -> None:
    from featveil.plotting.sketch_calibration import draw_calibration

    if sketch.calibration is not None:
        draw_calibration(sketch.calibration, picture)


def _write(request: SketchRequest, sketch: "Sketch") -> Written:
    from featveil.gate.sketch_building import tiles
    from featveil.gate.tile_files import save_tiles

    if request.tile_images is None:
        return saved(signed(sketch, request.key), request.out)
    parts = (signed(tile, request.key) for tile in tiles(sketch, request.tile_images))
    listed = save_tiles(parts, request.out, request.overwrite)
    return Written(request.out, sketch, sum(tile.bytes for tile in listed), listed)
