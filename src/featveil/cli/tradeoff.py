"""featveil bench tradeoff: the subset mechanism against the metric one at equal success of an attacker."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from featveil.cli.benching import real_numbers, stoppable, whole_numbers, write_reports
from featveil.cli.console import Json, progress, show, table
from featveil.core.files import make_folder

if TYPE_CHECKING:
    from rich.table import Table

    from featveil.core.records import Record
    from featveil.lab.tradeoff_report import TradeoffRow


def tradeoff(
    dataset: Annotated[Path, typer.Argument(help="Folder of scenes in HPatches layout.")],
    out: Annotated[Path, typer.Option(help="Folder for records.jsonl, table.md and curve.png.")],
    codebook: Annotated[
        Path | None, typer.Option(help="Codebook: a database file.", show_default="the built-in database")
    ] = None,
    epsilons: Annotated[
        str, typer.Option(help="Epsilons of the subset mechanism; those of the metric one are found.")
    ] = "10,8,6",
    subset_sizes: Annotated[str, typer.Option(help="Words sent for each descriptor.")] = "1,4",
    max_features: Annotated[int, typer.Option(help="Features to use of each image, the strongest.")] = 1500,
    iterations: Annotated[int, typer.Option(help="Most iterations of the robust homography.")] = 100_000,
    kind: Annotated[str, typer.Option(help="Descriptor kind.")] = "sift",
    seed: Annotated[int, typer.Option(help="A study may be repeatable; a release never is.")] = 0,
    json: Json = False,
) -> None:
    """Subset against metric mechanism at equal success of an attacker: what is still matched, and what leaks.

    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl).

    Example: featveil bench tradeoff hpatches-sequences/ --out results/ --epsilons 10,8 --subset-sizes 1,4
    """
    from featveil.databases import builtin, load_database
    from featveil.datasets import load_hpatches
    from featveil.lab.tradeoff import make_schemes, run_resumable
    from featveil.lab.words import Settings

    settings = Settings(kind, max_features, seed, iterations)
    wanted, sizes = real_numbers(epsilons, "--epsilons"), whole_numbers(subset_sizes, "--subset-sizes")
    book = builtin(kind) if codebook is None else load_database(codebook)
    scenes = load_hpatches(dataset)
    with progress("images") as report:
        schemes = make_schemes(scenes, settings, book, wanted, sizes, report)
    make_folder(out)
    path = out / "records.jsonl"
    records = stoppable("tradeoff", path, lambda report: run_resumable(scenes, schemes, settings, path, report))
    _publish(records, out, json)


def _publish(records: "list[Record]", out: Path, json: bool) -> None:
    """Write the reports and print the table."""
    from featveil.lab.tradeoff_report import draw_tradeoff, summarize_tradeoff, tradeoff_markdown

    rows = summarize_tradeoff(records)
    title = f"Subset and metric mechanism on {records[0].dataset}, {records[0].parameters['kind']}"
    files = write_reports(out, tradeoff_markdown(records), lambda path: draw_tradeoff(rows, path, title))
    show({"rows": [asdict(row) for row in rows], "files": files}, json, _narrow(rows))


def _narrow(rows: "list[TradeoffRow]") -> "Table":
    """A terminal has 80 columns: both rules share one; table.md and --json have everything."""
    from featveil.lab.tradeoff_report import tradeoff_cells

    lines: list[tuple[object, ...]] = []
    for cells in tradeoff_cells(rows)[1]:
        k, success, mechanism, epsilon, image, contains, guess, _, *found, _ = cells
        first, second, correct_first, correct_second = found
        both = f"{first} / {second}", f"{correct_first} / {correct_second}"
        lines.append((mechanism, k, success, _unit(epsilon), _unit(image), contains, guess, *both))
    headings = ("sent", "k", "success", "epsilon", "epsilon\nan image", "contains", "guess\naway")
    return table(*headings, "right\ninliers", "correct\npairs %", rows=lines)


def _unit(epsilon: str) -> str:
    return epsilon.replace(" per unit", "/d")
