"""featveil sketch: what a device needs of a map to send only what the map knows already."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from featveil.cli.console import Json, number, printable, show, staged_progress, table
from featveil.cli.options import command
from featveil.gate.probing import AuditLimits
from featveil.pipelines.sketch import SketchRequest, sketch_map
from featveil.pipelines.sketch_parts.finished_sketches import (
    AuditedSketch,
    InspectRequest,
    KeyRequest,
    MergeRequest,
    SignRequest,
    SketchAuditRequest,
    audit_sketches,
    inspect_sketches,
    make_key,
    merge_files,
    sign_file,
)
from featveil.pipelines.sketch_parts.written_sketches import Written

if TYPE_CHECKING:
    from featveil.gate import Calibration

app = typer.Typer(
    no_args_is_help=True, help="Sketches of maps: what a device needs to send only what the map knows already."
)

_FEW_ENTRIES = (
    "--bytes was not used: fewer than 1,024 entries are kept exact, since compressed ones would take more room"
)
_PART = (
    "This sketch holds some of the map's points only. If it is a tile, the calibration above is that of the whole map."
)
_STEP, _CLOSE = 0.05, 1e-6  # of tau, between the lines that a person is shown


@app.command()
@command
def build(request: SketchRequest, json: Json = False) -> None:
    """Build the sketch of a map from the map's raw features. A sketch holds descriptors and no positions.

    The command also calibrates tau, the largest distance at which a feature passes. It leaves out each image of the map
    in turn, and chooses tau so that the share --pass-rate of the image's true correspondences passes.

    To use it: featveil privatize photo.jpg --defense gate --sketch place.sketch --out query.veil

    Example: featveil sketch build map/ --out place.sketch --key service.key
    """
    with staged_progress("reading the map") as report:
        result = sketch_map(request, report)
    more = [_FEW_ENTRIES] if result.kept_exact else []
    more += [f"calibration drawn in {result.picture}"] if result.picture else []
    show(result.facts(), json, Group(_about(result), *_tiles(result), *map(_line, more)))


@app.command()
@command
def info(request: InspectRequest, json: Json = False) -> None:
    """Verify sketches and their signatures. Show what they hold and who signed them.

    Example: featveil sketch info place.sketch --signer service.key.pub
    """
    shown = inspect_sketches(request)
    show({"sketches": [one.facts() for one in shown]}, json, _several(shown))


@app.command()
@command
def audit(request: SketchAuditRequest, limits: AuditLimits, json: Json = False) -> None:
    """Look for content that a server has hidden in sketches, before a device uses them. Exit code 1 if one is refused.

    A sketch is refused if too much foreign content passes, or if its entries do not behave like tracks of a map. The
    audit cannot find one planted poster among normal tracks. Pin the signer as well (privatize --signer).

    Example: featveil sketch audit place.sketch --foreign faces/
    """
    audited = audit_sketches(request, limits)
    show({"sketches": [one.facts() for one in audited]}, json, Group(*(_audited(one, limits) for one in audited)))
    if not all(one.audit.accepted for one in audited):
        raise typer.Exit(1)


@app.command()
@command
def merge(request: MergeRequest, json: Json = False) -> None:
    """Merge sketches of one map, such as its tiles, into one. An entry that several of them hold counts once.

    The merged sketch keeps the calibration if all of them carry the same one, as tiles of one sketch do.

    Example: featveil sketch merge tiles/tile-000.sketch tiles/tile-001.sketch --out both.sketch
    """
    merged = merge_files(request)
    show(merged.facts(), json, _about(merged))


@app.command()
@command
def key(request: KeyRequest, json: Json = False) -> None:
    """Make a pair of keys (Ed25519): sign sketches with the private one, give devices the public one.

    Example: featveil sketch key service.key
    """
    pair = make_key(request)
    text = (
        f"private key   {pair.private}: keep it secret\n"
        f"public key    {pair.public}: devices pin it (--signer)\n"
        f"written out   {pair.digits}"
    )
    show({name: str(value) for name, value in asdict(pair).items()}, json, text)


@app.command()
@command
def sign(request: SignRequest, json: Json = False) -> None:
    """Sign a sketch, or all tiles in a folder. Devices that pin the key refuse sketches without this signature.

    The digest of the sketch stays the same.

    Example: featveil sketch sign place.sketch --key service.key
    """
    signed = sign_file(request)
    lines = [f"{one.path} {one.sketch.digest} signed with {_signer(one)}" for one in signed]
    show({"sketches": [one.facts() for one in signed]}, json, "\n".join(lines))


def _several(shown: list[Written]) -> RenderableType:
    parts: list[RenderableType] = []
    before: Calibration | None = None
    for one in shown:
        parts += [*([Text("")] if parts else []), _about(one, before)]
        before = one.sketch.calibration
    return Group(*parts)


def _about(one: Written, before: "Calibration | None" = None) -> RenderableType:
    """For a person: what it holds, the table of its calibration, and what a device with it sends.

    A calibration that is the same as the one `before` it is not shown again.
    """
    sketch, calibration = one.sketch, one.sketch.calibration
    rows = [
        ("sketch", f"{one.path}" + (f", {len(one.tiles)} tiles" if one.tiles else "")),
        ("source", sketch.source or "-"),
        ("map", f"{sketch.model}, {number(sketch.model_points)} points, {number(sketch.model_images)} images"),
        (
            "holds",
            f"{number(len(sketch))} entries of {number(len(sketch.known))} points in {number(len(sketch.seen))} images",
        ),
        ("descriptors", f"{sketch.kind}, {sketch.size} components in {sketch.entries.bytes} bytes"),
        ("file", f"{number(one.bytes)} bytes, {one.bytes / len(sketch):.1f} an entry"),
        ("digest", f"{sketch.digest}" + (" (of the whole; tiles have their own)" if one.tiles else "")),
        ("signed with", _signer(one)),
    ]
    parts: list[RenderableType] = [_line("\n".join(f"{name:13}{value}" for name, value in rows))]
    if calibration is None:
        parts.append(_line("not calibrated: a device must state a tau (--tau)"))
        return Group(*parts)
    if calibration == before:
        return Group(*parts, _line("calibrated as the one above"))
    parts += [Text(""), _lines_of(calibration), Text(""), _line(_sent(calibration))]
    return Group(*parts, *([_line(_PART)] if not one.tiles and len(sketch.known) < sketch.model_points else []))


def _audited(one: AuditedSketch, limits: AuditLimits) -> RenderableType:
    """Each share beside its limit, and the verdict."""
    values = ((name, getattr(one.audit, name), limit) for name, limit in vars(limits).items())
    rows: list[tuple[object, ...]] = [
        (name, "-" if share is None else f"{share:.2%}", f"{limit:.0%}") for name, share, limit in values
    ]
    verdict = "nothing speaks against it" if one.audit.accepted else "do not use it"
    lines = [f"{one.path}: {verdict}", *(f"  {reason}" for reason in one.audit.reasons)]
    return Group(_line("\n".join(lines)), table("share", "measured", "at most", rows=rows), Text(""))


def _signer(one: Written) -> str:
    if one.tiles:
        return "each tile has its own signature, if any"
    signature = one.sketch.signature
    return "nothing: featveil sketch sign" if signature is None else signature.key


def _tiles(one: Written) -> list[RenderableType]:
    if not one.tiles:
        return []
    rows: list[tuple[object, ...]] = [
        (tile.file, *map(number, (tile.images, tile.points, tile.entries, tile.bytes)), tile.digest[:16])
        for tile in one.tiles
    ]
    return [Text(""), table("tile", "images", "points", "entries", "bytes", "digest", rows=rows)]


def _lines_of(calibration: "Calibration") -> RenderableType:
    """A line for every other tau as long as something changes, and the chosen one."""
    shares = (calibration.passes, calibration.right, calibration.foreign or (0.0,) * len(calibration.taus))
    lines = list(zip(calibration.taus, *shares, strict=True))
    last = next(place for place, line in enumerate(lines) if line[1:] == lines[-1][1:])
    rows: list[tuple[object, ...]] = []
    for place, (tau, passing, right, foreign) in enumerate(lines):
        chosen = tau == calibration.tau
        if chosen or (place <= last and abs(tau / _STEP - round(tau / _STEP)) < _CLOSE):
            stray = "-" if calibration.foreign is None else f"{foreign:.2%}"
            rows.append((f"{tau:.3f}", f"{passing:.1%}", f"{right:.1%}", stray, "<- chosen" if chosen else ""))
    return table("tau", "true passing", "right point", "foreign passing", "", rows=rows)


def _sent(known: "Calibration") -> str:
    """What a device with this calibration sends."""
    tested = f"{number(known.queries)} true correspondences, each without its own image"
    if known.corpus:
        tested += f", and {number(known.corpus)} foreign descriptors"
    near, passing = (
        f"within {known.tau:g} of an entry",
        f"{known.at(known.passes, known.tau):.0%} of what the map knows",
    )
    if known.contrast is not None and known.background is not None:
        near += f", and nearer to it than {known.contrast:g} times its distance to background {known.background[:16]}"
    if known.foreign is not None:
        passing += f" and {known.at(known.foreign, known.tau):.2%} of foreign content"
    return (
        f"Tested with {tested}.\n"
        f"A device sends position and numbers of points of each feature that is {near}: {passing}.\n"
        "Of all other features it sends nothing."
    )


def _line(text: str) -> RenderableType:
    """Text of a stranger's file as it is, without markup and control characters."""
    return Text(printable(text))
