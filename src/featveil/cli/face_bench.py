"""featveil bench faces: how well private face templates verify, and what they give away."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from featveil.cli.benching import real_numbers, split, stoppable, whole_numbers, write_reports
from featveil.cli.console import Json, show, table
from featveil.core.errors import InputError, MissingExtraError
from featveil.core.files import make_folder

if TYPE_CHECKING:
    from featveil.core.records import Record
    from featveil.datasets.face_pairs import FacePairs
    from featveil.datasets.face_sets import FaceSet
    from featveil.lab.face_verification import Verification
    from featveil.pipelines.face_schemes import FaceScheme

app = typer.Typer(no_args_is_help=True, help="Measure how well private face templates verify, and what they give away.")

Faces = Annotated[Path, typer.Argument(metavar="FACES", help="Face descriptors: .npz or .npy (featveil face extract).")]
Out = Annotated[Path, typer.Option(help="Folder for records.jsonl, table.md and figures.")]
Pairs = Annotated[
    Path | None,
    typer.Option(help="Pairs: LFW's pairs.txt, or lines of two names and 0 or 1.", show_default="those in FACES"),
]
Others = Annotated[
    Path | None,
    typer.Option(help="Faces of other people to hide among.", show_default="those of FACES that are in no pair"),
]
Strategies = Annotated[str, typer.Option(help="Strategies, separated by commas.")]
Dimensions = Annotated[str, typer.Option(help="Subspace dimensions, separated by commas.")]
Attribute = Annotated[str, typer.Option(help="Attribute that hybrid+ and balanced balance, of the other faces.")]
Seed = Annotated[int, typer.Option(help="A study may be repeatable; a release never is.")]

_ALL = "random,adversarial,hybrid,hybrid+,balanced,hardened"


@app.command()
def verification(
    faces: Faces,
    out: Out,
    pairs: Pairs = None,
    others: Others = None,
    strategies: Strategies = _ALL,
    dimensions: Dimensions = "2,4,8,16,32",
    attribute: Attribute = "gender",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Which pairs are one person, by raw and by private templates: accuracy, TAR at FAR, EER, DET curves.

    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl).

    Example: featveil bench faces verification lfw.npz --pairs pairs.txt --others utk.npz --out results/
    """
    from featveil.lab.face_verification import run_resumable
    from featveil.lab.face_verification_report import (
        draw_det,
        draw_verification,
        summarize_verification,
        verification_cells,
        verification_markdown,
    )

    study = _verification(faces, pairs, others, attribute, seed)
    schemes = _schemes(strategies, dimensions)
    records = _measured(out, "verification", lambda path, report: run_resumable(study, schemes, path, report))
    rows = summarize_verification(records)
    title = f"Face verification on {study.name}"
    files = write_reports(out, verification_markdown(records), lambda path: draw_verification(rows, path, title))
    files += _drawn(out / "det.png", lambda path: draw_det(rows, path, title))
    _publish(rows, files, json, *verification_cells(rows))


@app.command()
def attributes(
    faces: Faces,
    out: Out,
    names: Annotated[str, typer.Option("--attributes", help="Attributes to guess; age becomes bands.")] = (
        "gender,race,age"
    ),
    shares: Annotated[str, typer.Option(help="Shares of the faces to hide among, and of the attacker.")] = "0.35,0.4",
    strategies: Strategies = _ALL,
    dimensions: Dimensions = "2,4,8,16,32",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """What attackers read off private templates: K-NN, one that is trained, and one that removes confounders.

    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl).

    Example: featveil bench faces attributes utk.npz --out results/ --attributes gender,race
    """
    from featveil.datasets.face_sets import load_faces
    from featveil.lab.face_attributes import AttributeStudy, run_resumable
    from featveil.lab.face_attributes_report import (
        attribute_cells,
        attributes_markdown,
        draw_attributes,
        summarize_attributes,
    )

    parts = real_numbers(shares, "--shares")
    if len(parts) != 2:
        raise InputError("--shares are two numbers: of the faces to hide among, and of the attacker")
    chosen = tuple(split(names, "--attributes"))
    study = AttributeStudy(faces.stem, load_faces(faces), chosen, (parts[0], parts[1]), seed)
    schemes = _schemes(strategies, dimensions)
    records = _measured(out, "attributes", lambda path, report: run_resumable(study, schemes, path, report))
    rows = summarize_attributes(records)
    title = f"Attributes of faces in {study.name}"
    files = write_reports(out, attributes_markdown(records), lambda path: draw_attributes(rows, path, title))
    _publish(rows, files, json, *attribute_cells(rows))


@app.command()
def logins(
    faces: Faces,
    out: Out,
    pairs: Pairs = None,
    others: Others = None,
    counts: Annotated[str, typer.Option(help="Numbers of templates that the attacker has.")] = "1,2,3,5,10",
    modes: Annotated[
        str, typer.Option(help="How logins are hidden: raw, fresh, keyed, parallel, or parallel-0.03, -0.1, -0.3.")
    ] = "raw,fresh,keyed,parallel,parallel-0.03,parallel-0.1,parallel-0.3",
    strategies: Strategies = "hybrid",
    dimensions: Dimensions = "2,4,8,16,32",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """What a history of private logins gives away, and whether keyed or parallel templates help.

    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl).

    Example: featveil bench faces logins lfw.npz --pairs pairs.txt --others utk.npz --out results/
    """
    from featveil.lab.face_logins import LoginStudy, run_resumable
    from featveil.lab.face_logins_report import draw_logins, login_cells, logins_markdown, summarize_logins

    found = _verification(faces, pairs, others, None, seed)
    study = LoginStudy(found.name, found.faces, found.pairs, found.others, whole_numbers(counts, "--counts"), seed)
    schemes, chosen = _schemes(strategies, dimensions)[1:], split(modes, "--modes")
    records = _measured(out, "logins", lambda path, report: run_resumable(study, schemes, chosen, path, report))
    rows = summarize_logins(records)
    title = f"Repeated logins of people in {study.name}"
    files = write_reports(out, logins_markdown(records), lambda path: draw_logins(rows, path, title))
    _publish(rows, files, json, *login_cells(rows))


@app.command()
def protection(
    faces: Faces,
    out: Out,
    pairs: Pairs = None,
    others: Others = None,
    strategies: Strategies = "random,adversarial,hybrid,hardened",
    dimensions: Dimensions = "2,4,8,16,32",
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Unlinkability (D_sys), irreversibility and renewability of private templates.

    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl).

    Example: featveil bench faces protection lfw.npz --pairs pairs.txt --others utk.npz --out results/
    """
    from featveil.lab.face_protection import run_resumable
    from featveil.lab.face_protection_report import (
        draw_protection,
        protection_cells,
        protection_markdown,
        summarize_protection,
    )

    study = _verification(faces, pairs, others, None, seed)
    schemes = _schemes(strategies, dimensions)
    records = _measured(out, "protection", lambda path, report: run_resumable(study, schemes, path, report))
    rows = summarize_protection(records)
    title = f"Template protection on {study.name}"
    files = write_reports(out, protection_markdown(records), lambda path: draw_protection(rows, path, title))
    _publish(rows, files, json, *protection_cells(rows))


def _verification(
    faces: Path, pairs: Path | None, others: Path | None, attribute: str | None, seed: int
) -> "Verification":
    """The faces, who is who, and the other faces."""
    from featveil.datasets.face_pairs import load_pairs, pairs_within
    from featveil.datasets.face_sets import load_faces
    from featveil.lab.face_verification import Verification, others_of

    tested = load_faces(faces)
    known: FacePairs = pairs_within(tested) if pairs is None else load_pairs(pairs, tested)
    among: FaceSet = others_of(tested, known) if others is None else load_faces(others)
    return Verification(faces.stem, tested, known, among, attribute, seed)


def _schemes(strategies: str, dimensions: str) -> "list[FaceScheme]":
    from featveil.pipelines.face_schemes import make_schemes

    return make_schemes(split(strategies, "--strategies"), whole_numbers(dimensions, "--dimensions"))


def _measured(out: Path, name: str, run: Callable[[Path, Any], "list[Record]"]) -> "list[Record]":
    make_folder(out)
    path = out / "records.jsonl"
    return stoppable(name, path, lambda report: run(path, report))


def _drawn(path: Path, draw: Callable[[Path], None]) -> list[str]:
    """The picture, where matplotlib is there; that it is not was said before."""
    try:
        draw(path)
    except MissingExtraError:
        return []
    return [str(path)]


def _publish(rows: Any, files: list[str], json: bool, headings: list[str], cells: list[tuple[str, ...]]) -> None:
    lines: list[tuple[object, ...]] = [tuple(line) for line in cells]
    show({"rows": [asdict(row) for row in rows], "files": files}, json, table(*headings, rows=lines))
