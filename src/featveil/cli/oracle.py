"""featveil bench oracle: the oracle attack's distance from the truth over the length of its shortlist."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from featveil.cli.benching import split, stoppable, write_reports
from featveil.cli.console import Json, progress, show, table
from featveil.core.files import make_folder

if TYPE_CHECKING:
    from featveil.core.records import Record


def oracle(
    victims: Annotated[Path, typer.Argument(help="Folder of photographs to attack.")],
    database: Annotated[
        list[Path], typer.Option(help="The attacker's: a database file, or a folder of photographs; may be repeated.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for records.jsonl, table.md and curve.png.")],
    dimension: Annotated[int, typer.Option(help="Subspace dimension.")] = 2,
    strategy: Annotated[str, typer.Option(help="Lifting strategy.")] = "sub-hybrid",
    database_size: Annotated[int, typer.Option(help="Descriptors to draw from the attacker's photographs.")] = 131_072,
    images: Annotated[int, typer.Option(help="Photographs to attack, evenly spaced.")] = 10,
    max_features: Annotated[int, typer.Option(help="Features to use of each image, the strongest.")] = 1000,
    kinds: Annotated[str, typer.Option(help="Descriptor kinds, separated by commas.")] = "sift",
    seed: Annotated[int, typer.Option(help="A study may be repeatable; a release never is.")] = 0,
    json: Json = False,
) -> None:
    """Mean distance from the truth of the best of the K database entries nearest to a subspace, for K up to all.

    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl).

    Example: featveil bench oracle holidays/ --database places/ --out results/ --kinds sift,rootsift
    """
    from featveil.lab.oracle import Settings, make_targets, run_resumable

    settings = Settings(strategy, dimension, images, max_features, database_size, seed)
    with progress("images") as report:
        targets = make_targets(victims, database, split(kinds, "--kinds"), settings, report)
    make_folder(out)
    path, name = out / "records.jsonl", victims.resolve().name
    records = stoppable("oracle", path, lambda report: run_resumable(name, targets, settings, path, report))
    _publish(records, out, json)


def _publish(records: "list[Record]", out: Path, json: bool) -> None:
    """Write the reports and print the table."""
    from featveil.lab.oracle_report import draw_oracle, oracle_cells, oracle_markdown, summarize_oracle

    rows = summarize_oracle(records)
    title = f"Oracle attack on {records[0].dataset}, {records[0].scheme}"
    files = write_reports(out, oracle_markdown(records), lambda path: draw_oracle(rows, path, title))
    headings, cells = oracle_cells(rows)
    text = table(*(heading.replace(" ", "\n") for heading in headings), rows=list(cells))
    text.columns[0].justify = "right"
    show({"rows": [asdict(row) for row in rows], "files": files}, json, text)
