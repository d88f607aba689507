"""Sketches -> what is in them, what speaks against them, one of several, signed ones; and the keys to sign with."""

import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featveil.core.errors import InputError
from featveil.core.options import argument, option
from featveil.pipelines.sketch_parts.foreign_points import Wanted, more_foreign
from featveil.pipelines.sketch_parts.written_sketches import Written, check_file, check_key_file, saved, signed

if TYPE_CHECKING:
    from featveil.gate import Sketch
    from featveil.gate.probing import AuditLimits, SketchAudit

logger = logging.getLogger(__name__)


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
        help="More content that no honest sketch holds, such as faces: images or raw features.",
        shown="what comes with featveil",
    )
    signer: str | None = option(None, help="Public key, or its file, that they must be signed with.")
    tau: float | None = option(
        None, help="Largest distance at which the device lets a feature pass.", shown="the sketch's own"
    )
    background: Path | None = option(
        None, help="Database file of common features that every place has.", shown="the built-in one of the kind"
    )


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

    check_file(request.out, request.overwrite)
    check_key_file(request.key)
    parts = [sketch for _, sketch in _load(request.sketches)]
    merged = merge_sketches(parts)
    if merged.calibration is None and any(part.calibration is not None for part in parts):
        logger.warning(
            "these sketches were calibrated differently, so the whole is not calibrated: devices must state a tau, or"
            " build it from the map again"
        )
    if request.key is None and any(part.signature is not None for part in parts):
        logger.warning("the signatures were of the parts: sign the whole anew (--key, or featveil sketch sign)")
    return saved(signed(merged, request.key), request.out)


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
        more = more_foreign(request.foreign, Wanted(sketch.kind, sketch.size))
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
    check_key_file(request.key)
    replaced = request.overwrite or out == there
    if there.is_dir():
        check_tiles_folder(out, replaced)
        sketches = [signed(sketch, request.key) for _, sketch in load_tiles(there)]
        listed = save_tiles(sketches, out, replaced)
        return [Written(out / tile.file, one, tile.bytes) for tile, one in zip(listed, sketches, strict=True)]
    check_file(out, replaced)
    from featveil.gate import load_sketch

    return [saved(signed(load_sketch(there), request.key), out)]


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
