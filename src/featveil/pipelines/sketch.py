"""A map and the raw features of its images -> the sketch that devices look their features up in.

Sketches -> what is in them, one of several, signed ones.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featveil.core.errors import FeatveilError, InputError
from featveil.core.files import check_folder
from featveil.core.options import argument, option
from featveil.pipelines.sources import FEATURES_OF_IMAGE, PRIVATE, RAW, has_features, named_images

if TYPE_CHECKING:
    from featveil.core import Features, Points
    from featveil.databases import Database
    from featveil.formats.collections import Collection
    from featveil.gate import Sketch
    from featveil.gate.probing import AuditLimits, SketchAudit
    from featveil.gate.sketch_building import Stream
    from featveil.gate.thresholds import Foreign
    from featveil.gate.tile_files import Tile
    from featveil.geometry.models import SparseModel

StageReport = Callable[[str, int, int], None]  # what is done, how much of it, of how much

_SUFFIX = ".sketch"
_EXACT = "exact"
_STAGES = ("reading features", "compressing", "calibrating")
_FOREIGN_OF_IMAGE = 256  # descriptors of a foreign image, evenly chosen
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
    kind: str | None = option(None, help="Descriptor kind of files that do not say it.", shown="what the file says")
    entry_bytes: str = option("16", flags=("--bytes",), help="Bytes of a descriptor, 1 to 256, or exact: as it is.")
    pass_rate: float = option(0.85, help="Share of true correspondences that shall pass.")
    foreign: tuple[Path, ...] = option(
        (),
        repeated=True,
        help="More content that is not of this place, to calibrate with: images or raw features.",
        shown="what comes with featveil",
    )
    background: Path | None = option(
        None, help="Database of what every place has; devices need the same.", shown="the built-in one of the kind"
    )
    calibrate: bool = option(
        True, flags=("--calibrate/--no-calibrate",), help="Find tau; without it devices must state one."
    )
    tile_images: int | None = option(
        None, minimum=1, help="Write tiles of so many images, and an index of them.", shown="one sketch"
    )
    key: Path | None = option(None, help="Private key to sign with: see featveil sketch key.", shown="not signed")
    source: str | None = option(None, help="What the map is of, for the card.", shown="the folder's name")
    picture: Path | None = option(None, help="Draw the calibration (.png); needs the extra plots.")
    overwrite: bool = option(False, help="Replace a sketch that is there.")


@dataclass(frozen=True)
class InspectRequest:
    """The sketches to verify, and who must have signed them."""

    sketches: tuple[Path, ...] = argument(metavar="FILE...", help="Sketch files, or folders of tiles.")
    signer: str | None = option(None, help="Public key, or its file, that they must be signed with.")


@dataclass(frozen=True)
class MergeRequest:
    """The sketches of one map to put together, and where the whole goes."""

    sketches: tuple[Path, ...] = argument(metavar="FILE...", help="Sketch files of one map, or folders of its tiles.")
    out: Path = option(help="Sketch file to write (.sketch).")
    key: Path | None = option(None, help="Private key to sign with.", shown="not signed")
    overwrite: bool = option(False, help="Replace a sketch that is there.")


@dataclass(frozen=True)
class KeyRequest:
    """Where the private key goes; the public one goes beside it."""

    path: Path = argument(metavar="PATH", help="File for the private key; the public one is PATH.pub.")


@dataclass(frozen=True)
class SignRequest:
    """The sketch to sign, with which key, and where the signed one goes."""

    sketch: Path = argument(metavar="FILE", help="Sketch file, or folder of tiles.")
    key: Path = option(help="Private key: see featveil sketch key.")
    out: Path | None = option(None, help="Where the signed sketch goes.", shown="in its place")
    overwrite: bool = option(False, help="Replace what is at --out.")


@dataclass(frozen=True)
class SketchAuditRequest:
    """The sketches to audit as a device would use them, and with what."""

    sketches: tuple[Path, ...] = argument(metavar="FILE...", help="Sketch files, or folders of tiles.")
    foreign: tuple[Path, ...] = option(
        (),
        repeated=True,
        help="More content that no honest sketch knows, such as faces: images or raw features.",
        shown="what comes with featveil",
    )
    signer: str | None = option(None, help="Public key, or its file, that they must be signed with.")
    tau: float | None = option(None, help="Distance that the device gates with.", shown="the sketch's own")
    background: Path | None = option(None, help="Database that every place has.", shown="the built-in one of the kind")


@dataclass(frozen=True, eq=False)
class Written:
    """A sketch in a file of `bytes` bytes; of one in `tiles` these are all of theirs, and `path` is their folder."""

    path: Path
    sketch: "Sketch"
    bytes: int
    tiles: "tuple[Tile, ...]" = ()

    def facts(self) -> dict[str, Any]:
        """What it is, as plain values."""
        signature = self.sketch.signature
        return {
            "path": str(self.path),
            "entries": len(self.sketch),
            "points": len(self.sketch.known),
            "images": len(self.sketch.seen),
            "entry_bytes": self.sketch.entries.bytes,
            "bytes": self.bytes,
            "digest": self.sketch.digest,
            "signed_with": None if signature is None else signature.key,
            **self.sketch.card(),
            "tiles": [asdict(tile) for tile in self.tiles],
        }


@dataclass(frozen=True, eq=False)
class SketchResult(Written):
    """The sketch of a map, the images of the map that had no features, and the figure of its calibration."""

    missing: tuple[str, ...] = ()
    picture: Path | None = None

    def facts(self) -> dict[str, Any]:
        """What it is, as plain values."""
        picture = None if self.picture is None else str(self.picture)
        return {**super().facts(), "images_without_features": list(self.missing), "picture": picture}


@dataclass(frozen=True, eq=False)
class AuditedSketch:
    """A sketch at `path` with its digest, and what its audit says of it."""

    path: Path
    digest: str
    audit: "SketchAudit"

    def facts(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "path": str(self.path),
            "digest": self.digest,
            "accepted": self.audit.accepted,
            **asdict(self.audit),
        }


@dataclass(frozen=True)
class KeyPair:
    """Files of a private and of its public key, and the public one written out."""

    private: Path
    public: Path
    digits: str


def silent(stage: str, done: int, total: int) -> None:
    """The StageReport of who does not want any."""


def sketch_map(request: SketchRequest, report: StageReport = silent) -> SketchResult:
    """Build the sketch of a map, calibrate it, sign it where a key is given, and write it: a file, or tiles.

    Raises InputError for features that the map was not made of and a map without points; nothing is written then.
    """
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
    return SketchResult(whole.path, whole.sketch, whole.bytes, whole.tiles, missing, request.picture)


def inspect_sketches(request: InspectRequest) -> list[Written]:
    """Read and verify sketches, and their signatures.

    Raises InputError or FormatError, with the name of the file, for the first that is not as it should be.
    """
    return [Written(path, sketch, path.stat().st_size) for path, sketch in _verified(request.sketches, request.signer)]


def merge_files(request: MergeRequest) -> Written:
    """One sketch of several of one map. The calibration stays where all carry the same, as tiles of one sketch do.

    Raises InputError for sketches of different maps.
    """
    from featveil.gate.sketch_building import merge_sketches

    _check_file(request.out, request.overwrite)
    _check_key(request.key)
    parts = [sketch for _, sketch in _load(request.sketches)]
    merged = merge_sketches(parts)
    if merged.calibration is None and any(part.calibration is not None for part in parts):
        logger.warning(
            "these sketches were calibrated differently, so the whole is not calibrated: devices must state a tau, or"
            " build it from the map again"
        )
    if request.key is None and any(part.signature is not None for part in parts):
        logger.warning("the signatures were of the parts: sign the whole anew (--key, or featveil sketch sign)")
    return _saved(_signed(merged, request.key), request.out)


def audit_sketches(request: SketchAuditRequest, limits: "AuditLimits | None" = None) -> list[AuditedSketch]:
    """What a device can notice of sketches before it uses them, within `limits` or not.

    Raises InputError for a wrong signature, and for a sketch without tau where the request states none.
    """
    from featveil.databases import load_database
    from featveil.defenses import Gate
    from featveil.gate.probing import AuditLimits, audit_sketch
    from featveil.pipelines.map_parts.observed import foreign_to

    background = None if request.background is None else load_database(request.background)
    audited = []
    for path, sketch in _verified(request.sketches, request.signer):
        gate = Gate(sketch, request.tau, background=background).for_kind(sketch.kind)
        assert gate.tau is not None  # `for_kind` has the sketch's own
        more = _more_foreign(request.foreign, _Wanted(sketch.kind, sketch.size))
        corpus = foreign_to(sketch.kind, more, gate.background).corpus
        if corpus is None:
            logger.warning(f"featveil has no foreign {sketch.kind} descriptors to audit with: give some (--foreign)")
        known = gate.contrast, gate.background
        audit = audit_sketch(sketch, corpus, gate.tau, *known, AuditLimits() if limits is None else limits)
        audited.append(AuditedSketch(path, sketch.digest, audit))
    return audited


def make_key(request: KeyRequest) -> KeyPair:
    """Make a pair of keys; raises InputError when there is one already."""
    from featveil.gate.signing import create_key, public_key

    public = create_key(request.path)
    return KeyPair(request.path, public, public_key(str(public)))


def sign_file(request: SignRequest) -> list[Written]:
    """Sign a sketch or all tiles in a folder; the files are replaced unless the request says where to write."""
    from featveil.gate.tile_files import check_tiles_folder, load_tiles, save_tiles

    there, out = request.sketch, request.out or request.sketch
    _check_key(request.key)
    replaced = request.overwrite or out == there
    if there.is_dir():
        check_tiles_folder(out, replaced)
        signed = [_signed(sketch, request.key) for _, sketch in load_tiles(there)]
        listed = save_tiles(signed, out, replaced)
        return [Written(out / tile.file, one, tile.bytes) for tile, one in zip(listed, signed, strict=True)]
    _check_file(out, replaced)
    from featveil.gate import load_sketch

    return [_saved(_signed(load_sketch(there), request.key), out)]


@dataclass(frozen=True)
class _Wanted:
    """Kind and size of the descriptors that are wanted."""

    kind: str
    size: int


class _Reader:
    """Reads raw features of images, all of one kind."""

    def __init__(self, stored: "Collection", first: str) -> None:
        self._stored = stored
        features = self._raw(first)
        self.kind, self.size = features.kind, features.descriptors.size
        self.wanted = _Wanted(self.kind, self.size)

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
        _check_file(request.out, request.overwrite)
    elif request.tile_images < 1:
        raise InputError(f"a tile has at least one image, got {request.tile_images}")
    else:
        check_tiles_folder(request.out, request.overwrite)
    if request.picture is not None:
        if request.picture.suffix.lower() != ".png":
            raise InputError(f"the picture is a .png file, not {request.picture.name}")
        check_folder(request.picture.parent)
        _check_plots()
    _check_key(request.key)


def _check_plots() -> None:
    from featveil.plotting.figures import blank_figure

    blank_figure(1, 1)


def _check_file(out: Path, overwrite: bool) -> None:
    if out.suffix != _SUFFIX:
        raise InputError(f"a sketch is a {_SUFFIX} file, not {out.name}")
    check_folder(out.parent)
    if out.is_dir():
        raise InputError(f"{out} is a folder: name a file, or write tiles (--tile-images)")
    if out.exists() and not overwrite:
        raise InputError(f"{out} is there already, and devices may name its digest: --overwrite replaces it")


def _check_key(key: Path | None) -> None:
    from featveil.gate.signing import check_key

    if key is not None:
        check_key(key)


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
    more = _more_foreign(request.foreign, read.wanted)
    foreign = foreign_to(read.kind, more, background)
    _check_usable(foreign.background, read)
    if foreign.corpus is None:
        logger.warning(f"featveil has no foreign {read.kind} descriptors to calibrate with: give some (--foreign)")
    if foreign.background is None:
        logger.warning(f"there is no built-in background of {read.kind}: with one less passes (--background)")
    return foreign


def _more_foreign(paths: tuple[Path, ...], wanted: _Wanted) -> "list[Points]":
    more = [points for path in paths for points in _foreign_points(path, wanted)]
    if paths and not more:
        raise InputError(f"there are no features at {paths[0]}")
    return more


def _check_usable(background: "Database | None", read: _Reader) -> None:
    """Raise InputError for features that are called as what comes with featveil and have another size."""
    if background is not None and background.size != read.size:
        raise InputError(
            f"{read.kind} descriptors have size {background.size}, these have {read.size}: name their kind"
        )


def _foreign_points(path: Path, wanted: _Wanted) -> "Iterator[Points]":
    """Descriptors of each of the images, or of the features, at `path`."""
    import numpy as np

    for features in _foreign_features(path, wanted.kind):
        points = features.descriptors
        if (features.kind, points.size) != (wanted.kind, wanted.size):
            raise InputError(f"{path} holds {features.kind} descriptors of size {points.size}, not {wanted.kind}")
        if len(points):
            some = min(len(points), _FOREIGN_OF_IMAGE)
            yield points.take(np.linspace(0, len(points) - 1, some).astype(np.int64))


def _foreign_features(path: Path, kind: str) -> "Iterator[Features]":
    from featveil.core import Features
    from featveil.extractors import EXTRACTORS, extract
    from featveil.formats.collections import open_collection

    if path.exists() and has_features(path):
        stored = open_collection(path, kind)
        for name in stored.names:
            features = stored.read(name)
            if not isinstance(features, Features):
                raise InputError(f"{path} holds private features: a calibration takes raw ones")
            yield features
        return
    if kind not in EXTRACTORS:
        raise InputError(f"{path} has no {kind} features by itself: name a file of them (--foreign)")
    for image in named_images([path]).values():
        try:
            yield extract(image, kind, FEATURES_OF_IMAGE)
        except FeatveilError as error:
            if not path.is_dir():
                raise
            logger.warning(f"left out {image}: {error}")


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
        return _saved(_signed(sketch, request.key), request.out)
    parts = (_signed(tile, request.key) for tile in tiles(sketch, request.tile_images))
    listed = save_tiles(parts, request.out, request.overwrite)
    return Written(request.out, sketch, sum(tile.bytes for tile in listed), listed)


def _signed(sketch: "Sketch", key: Path | None) -> "Sketch":
    from featveil.gate.signing import sign

    return sketch if key is None else sign(sketch, key)


def _saved(sketch: "Sketch", out: Path) -> Written:
    from featveil.gate import save_sketch

    save_sketch(sketch, out)
    return Written(out, sketch, out.stat().st_size)


def _load(paths: tuple[Path, ...]) -> "Iterator[tuple[Path, Sketch]]":
    from featveil.gate import load_sketch
    from featveil.gate.tile_files import load_tiles

    for path in paths:
        if path.is_dir():
            yield from load_tiles(path)
        else:
            yield path, load_sketch(path)


def _verified(paths: tuple[Path, ...], signer: str | None) -> "Iterator[tuple[Path, Sketch]]":
    """Sketches that are signed by `signer` or, without one, by whom they say; raises InputError for others."""
    from featveil.gate.signing import check_signer, public_key

    if signer is not None:
        public_key(signer)
    for path, sketch in _load(paths):
        key = signer if signer is not None or sketch.signature is None else sketch.signature.key
        try:
            if key is not None:
                check_signer(sketch, key)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        yield path, sketch
