"""featveil bench assumptions: what the database and clustering attacks take for granted, measured."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from featveil.cli.benching import stoppable, whole_numbers, write_reports
from featveil.cli.console import Json, progress, show, table
from featveil.core.files import make_folder

if TYPE_CHECKING:
    from featveil.core.records import Record


def assumptions(
    victims: Annotated[Path, typer.Argument(help="Folder of photographs to lift.")],
    out: Annotated[Path, typer.Option(help="Folder for records.jsonl, table.md and curve.png.")],
    database: Annotated[
        list[Path] | None,
        typer.Option(
            help="To lift with: a database file, or a folder of photographs; may be repeated.",
            show_default="the built-in database",
        ),
    ] = None,
    database_size: Annotated[int, typer.Option(help="Descriptors to draw from folders of photographs.")] = 131_072,
    dimensions: Annotated[str, typer.Option(help="Subspace dimensions, separated by commas.")] = "2,4,8,16",
    strategy: Annotated[str, typer.Option(help="Lifting strategy.")] = "sub-hybrid",
    images: Annotated[int, typer.Option(help="Photographs to lift, evenly spaced.")] = 10,
    max_features: Annotated[int, typer.Option(help="Features to use of each image, the strongest.")] = 1000,
    kind: Annotated[str, typer.Option(help="Descriptor kind.")] = "sift",
    seed: Annotated[int, typer.Option(help="A study may be repeatable; a release never is.")] = 0,
    json: Json = False,
) -> None:
    """How often a subspace comes near its own members only, and how often other subspaces give them away.

    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl).

    Example: featveil bench assumptions holidays/ --out results/ --dimensions 4,16
    """
    from featveil.audit.victims import read_victims
    from featveil.lab.assumptions import lifting_database, make_schemes, run_resumable
    from featveil.lab.matching import Settings

    settings = Settings(kind, max_features, seed)
    wanted = whole_numbers(dimensions, "--dimensions")
    with progress("images") as report:
        lifted_with = lifting_database(database or [], kind, database_size, seed, report)
        schemes = make_schemes(lifted_with, wanted, strategy)
        found = read_victims(victims, kind, images, max_features, report)
    make_folder(out)
    path, name = out / "records.jsonl", victims.resolve().name
    records = stoppable("assumptions", path, lambda report: run_resumable(name, found, schemes, settings, path, report))
    _publish(records, out, json)


def _publish(records: "list[Record]", out: Path, json: bool) -> None:
    """Write the reports and print both tables."""
    from featveil.lab.assumptions_report import (
        assumptions_markdown,
        collision_cells,
        draw_assumptions,
        member_cells,
        summarize_assumptions,
    )

    members, collisions = summarize_assumptions(records)
    title = f"Assumptions of attacks on {records[0].dataset}, {records[0].parameters['kind']}"
    files = write_reports(
        out, assumptions_markdown(records), lambda path: draw_assumptions(members, collisions, path, title)
    )
    parts: list[Text | Table] = []
    for name, (headings, cells) in (
        ("entries near a subspace that are near one of its members, %", member_cells(members)),
        ("subspaces that others give away, %", collision_cells(collisions)),
    ):
        # A terminal has 80 columns: long headings take two lines.
        short = [heading if len(heading) < 7 else heading.replace(" ", "\n") for heading in headings]
        narrow = table(*short, rows=list(cells))
        narrow.columns[1].justify = "left"
        parts += [Text(name + "\n", style="bold"), narrow, Text("")]
    rows = {"members": [asdict(row) for row in members], "collisions": [asdict(row) for row in collisions]}
    show({**rows, "files": files}, json, Group(*parts[:-1]))
