"""featveil bench: measure how well private features match, and how fast."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from featveil.cli import (
    assumptions,
    attacks,
    concealer_bench,
    face_bench,
    inversion,
    localization,
    mapping,
    oracle,
    patch_bench,
    runtime,
    tradeoff,
)
from featveil.cli.benching import real_numbers, split, stoppable, whole_numbers, write_reports
from featveil.cli.console import Json, printable, show, table
from featveil.core.files import make_folder

if TYPE_CHECKING:
    from featveil.core.records import Record
    from featveil.databases import Database
    from featveil.lab.matching_report import MatchingRow
    from featveil.lab.words_report import WordsRow

app = typer.Typer(no_args_is_help=True, help="Measure how well private features match, and how fast.")

Dimensions = Annotated[str, typer.Option(help="Subspace dimensions, separated by commas.")]


@app.command()
def matching(
    dataset: Annotated[Path, typer.Argument(help="Folder of scenes in HPatches layout.")],
    out: Annotated[Path, typer.Option(help="Folder for records.jsonl, table.md and curve.png.")],
    strategies: Annotated[
        str | None,
        typer.Option(help="Lifting strategies, separated by commas.", show_default="all without labels"),
    ] = None,
    dimensions: Dimensions = "2,4,8,16",
    max_features: Annotated[int, typer.Option(help="Features to use of each image, the strongest.")] = 2000,
    kind: Annotated[str, typer.Option(help="Descriptor kind.")] = "sift",
    seed: Annotated[int, typer.Option(help="A study may be repeatable; a release never is.")] = 0,
    json: Json = False,
) -> None:
    """Mean matching accuracy of raw and lifted descriptors over the image pairs of a dataset.

    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl).

    Example: featveil bench matching hpatches-sequences/ --out results/ --strategies random,sub-hybrid
    """
    from featveil.datasets import load_hpatches
    from featveil.lab.matching import DEFAULT_STRATEGIES, Settings, make_schemes, run_resumable

    settings = Settings(kind, max_features, seed)
    chosen = DEFAULT_STRATEGIES if strategies is None else tuple(split(strategies, "--strategies"))
    schemes = make_schemes(kind, chosen, whole_numbers(dimensions, "--dimensions"))
    scenes = load_hpatches(dataset)
    make_folder(out)
    path = out / "records.jsonl"
    records = stoppable("matching", path, lambda report: run_resumable(scenes, schemes, settings, path, report))
    _publish(records, out, json)


@app.command()
def words(
    dataset: Annotated[Path, typer.Argument(help="Folder of scenes in HPatches layout.")],
    out: Annotated[Path, typer.Option(help="Folder for records.jsonl, table.md and curve.png.")],
    codebooks: Annotated[
        str | None, typer.Option(help="Codebook files, separated by commas.", show_default="the built-in one")
    ] = None,
    epsilons: Annotated[str, typer.Option(help="Epsilons of a descriptor, separated by commas.")] = "16,14,12,10",
    subset_sizes: Annotated[str, typer.Option(help="Words sent for each descriptor.")] = "1,2,4,8,16",
    nearest_sizes: Annotated[str, typer.Option(help="Of these, run rule nearest, too; 0 for none.")] = "2,4",
    max_features: Annotated[int, typer.Option(help="Features to use of each image, the strongest.")] = 1500,
    iterations: Annotated[int, typer.Option(help="Most iterations of the robust homography.")] = 100_000,
    kind: Annotated[str, typer.Option(help="Descriptor kind.")] = "sift",
    seed: Annotated[int, typer.Option(help="A study may be repeatable; a release never is.")] = 0,
    json: Json = False,
) -> None:
    """Homographies found between raw images and word sets, for every codebook, epsilon and subset size.

    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl).

    Example: featveil bench words hpatches-sequences/ --out results/ --epsilons 12,10 --subset-sizes 1,4
    """
    from featveil.datasets import load_hpatches
    from featveil.lab.words import Settings, make_schemes, run_resumable

    settings = Settings(kind, max_features, seed, iterations)
    sizes, nearest = whole_numbers(subset_sizes, "--subset-sizes"), whole_numbers(nearest_sizes, "--nearest-sizes")
    schemes = make_schemes(kind, _codebooks(codebooks, kind), real_numbers(epsilons, "--epsilons"), sizes, nearest)
    scenes = load_hpatches(dataset)
    make_folder(out)
    path = out / "records.jsonl"
    records = stoppable("words", path, lambda report: run_resumable(scenes, schemes, settings, path, report))
    _publish_words(records, out, json)


app.command()(tradeoff.tradeoff)
app.command()(oracle.oracle)
app.command()(assumptions.assumptions)
app.command()(attacks.attacks)
app.command()(inversion.inversion)
app.command()(mapping.mapping)
app.command()(localization.localization)
app.command()(patch_bench.patches)
app.command()(concealer_bench.concealers)
app.command()(runtime.runtime)
app.add_typer(face_bench.app, name="faces")


def _publish(records: "list[Record]", out: Path, json: bool) -> None:
    """Write the reports of image matching and print the table."""
    from featveil.lab.matching_curves import draw_matching_curves
    from featveil.lab.matching_report import matching_cells, matching_markdown, summarize_matching

    rows: list[MatchingRow] = summarize_matching(records)
    title = f"Image matching on {records[0].dataset}, {records[0].parameters['kind']}"
    files = write_reports(out, matching_markdown(records), lambda path: draw_matching_curves(rows, path, title))
    headings, cells = matching_cells(rows)
    # A terminal has 80 columns; table.md and --json have everything.
    kept = [place for place, heading in enumerate(headings) if heading not in ("MMA@5", "pairs")]
    narrow: list[tuple[object, ...]] = [
        tuple(cells_of_row[place].replace("-to-", "-") for place in kept) for cells_of_row in cells
    ]
    text = table(*(headings[place] for place in kept), rows=narrow)
    text.columns[2].justify = "left"
    show({"rows": [asdict(row) for row in rows], "files": files}, json, text)


def _publish_words(records: "list[Record]", out: Path, json: bool) -> None:
    """Write the reports of word sets and print a table for each codebook."""
    from featveil.lab.word_curves import draw_words_curves
    from featveil.lab.words_report import summarize_words, words_markdown, words_tables

    rows: list[WordsRow] = summarize_words(records)
    title = f"Word sets on {records[0].dataset}, {records[0].parameters['kind']}"
    files = write_reports(out, words_markdown(records), lambda path: draw_words_curves(rows, path, title))
    parts: list[Text | Table] = []
    for name, chosen in words_tables(rows).items():
        free = [row for row in chosen if row.codebook is None]
        for rule in dict.fromkeys(row.rule for row in chosen if row.codebook is not None):
            words = [row for row in chosen if row.codebook is not None and row.rule == rule]
            heading = Text(f"{printable(name)}, rule {rule}\n", style="bold")
            parts += [heading, _narrow_words([*free, *words]), Text("")]
    show({"rows": [asdict(row) for row in rows], "files": files}, json, Group(*parts[:-1]))


def _narrow_words(rows: "list[WordsRow]") -> Table:
    """A terminal has 80 columns; table.md and --json have everything."""
    from featveil.lab.words_report import words_cells

    lines: list[tuple[object, ...]] = []
    for row, cells in zip(rows, words_cells(rows)[1], strict=True):
        sent, _, epsilon, image, k, probability, candidates, share, _, right, correct, _ = cells
        words = f"{k} word{'s' if k != '1' else ''}" if row.mechanism == "subset" else sent
        lines.append((words, epsilon, image, probability, candidates, share, right, correct))
    headings = ("sent", "epsilon", "epsilon\nan image", "P(true\nsent)", "candidates")
    return table(*headings, "right\nshare %", "right\ninliers", "correct\npairs %", rows=lines)


def _codebooks(text: str | None, kind: str) -> "dict[str, Database]":
    """Codebooks by file name and size; without `text` the built-in one."""
    from featveil.core import InputError
    from featveil.databases import builtin, load_database

    if text is None:
        book = builtin(kind)
        return {f"built-in ({len(book):,})": book}
    books: dict[str, Database] = {}
    for path in split(text, "--codebooks"):
        book = load_database(path)
        name = f"{Path(path).stem} ({len(book):,})"
        if name in books:
            raise InputError(f"two codebooks are called {name}: rename one of the files")
        books[name] = book
    return books
