"""featveil bench: measure how well private features match, and how fast."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from featveil.cli.console import Json, progress, show, stderr, table

if TYPE_CHECKING:
    from featveil.core import Points
    from featveil.core.records import Record
    from featveil.reports import MatchingRow

app = typer.Typer(no_args_is_help=True, help="Measure how well private features match, and how fast.")

Dimensions = Annotated[str, typer.Option(help="Subspace dimensions, separated by commas.")]


@app.command()
def matching(
    dataset: Annotated[Path, typer.Argument(help="Folder of scenes in HPatches layout.")],
    out: Annotated[Path, typer.Option(help="Folder for records.jsonl, table.md and curve.png.")],
    strategies: Annotated[
        str | None,
        typer.Option(help="Lifting strategies, separated by commas.", show_default="all but hybrid+"),
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
    from featveil.tasks.matching import DEFAULT_STRATEGIES, Settings, make_schemes, run_resumable

    settings = Settings(kind, max_features, seed)
    chosen = DEFAULT_STRATEGIES if strategies is None else tuple(_words(strategies, "--strategies"))
    schemes = make_schemes(kind, chosen, _numbers(dimensions))
    scenes = load_hpatches(dataset)
    _make_folder(out)
    path = out / "records.jsonl"
    try:
        with progress("matching") as report:
            records = run_resumable(scenes, schemes, settings, path, report)
    except KeyboardInterrupt:
        stderr.print(f"Stopped. The same command goes on from {path}", markup=False, highlight=False)
        raise typer.Exit(130) from None
    _publish(records, out, json)


@app.command()
def runtime(
    features: Annotated[int, typer.Option(min=2, help="Descriptors in each of the two sets.")] = 1000,
    dimensions: Dimensions = "2,4,8",
    repeat: Annotated[int, typer.Option(min=1, help="Repetitions; the median is shown.")] = 3,
    images: Annotated[
        tuple[Path, Path] | None,
        typer.Option(help="Two images to take descriptors from.", show_default="the built-in database"),
    ] = None,
    kind: Annotated[str, typer.Option(help="Descriptor kind.")] = "sift",
    json: Json = False,
) -> None:
    """CPU time of every matching method on one thread, and its ratio to a reference measured beside it.

    Example: featveil bench runtime --features 1000 --dimensions 2,4,8
    """
    from featveil.tasks.runtime import Timing, measure

    wanted = _numbers(dimensions)
    first, second = _two_sets(kind, features, images)
    timings: list[Timing] = []
    with progress("timing") as report:
        for timing in measure(first, second, wanted, repeat, kind):
            timings.append(timing)
            # How many methods there are depends on the sizes: the bar only counts.
            report(len(timings), max(len(timings) + 1, 4 * len(wanted) + 2))
    rows: list[tuple[object, ...]] = [
        (
            timing.method,
            timing.n,
            timing.dimension,
            f"{1000 * timing.seconds:.1f}",
            f"{timing.ratio:.2f}",
            timing.reference,
        )
        for timing in timings
    ]
    text = table("method", "n", "m", "CPU ms", "ratio", "to", rows=rows)
    text.columns[-1].justify = "left"
    show({"timings": [asdict(timing) for timing in timings]}, json, text)


def _publish(records: "list[Record]", out: Path, json: bool) -> None:
    """Write table.md and, where matplotlib is there, curve.png; print the table."""
    from featveil.core import MissingExtraError
    from featveil.core.files import replacing
    from featveil.reports import draw_matching_curves, matching_cells, matching_markdown, summarize_matching

    rows: list[MatchingRow] = summarize_matching(records)
    with replacing(out / "table.md") as temporary:
        temporary.write_text(matching_markdown(records), encoding="utf-8")
    files = ["records.jsonl", "table.md", "curve.png"]
    try:
        title = f"Image matching on {records[0].dataset}, {records[0].parameters['kind']}"
        draw_matching_curves(rows, out / "curve.png", title)
    except MissingExtraError as error:
        files.remove("curve.png")
        stderr.print(f"curve.png was not drawn: {error}", markup=False, highlight=False)
    headings, cells = matching_cells(rows)
    # A terminal has 80 columns; table.md and --json have everything.
    kept = [place for place, heading in enumerate(headings) if heading not in ("MMA@5", "pairs")]
    narrow: list[tuple[object, ...]] = [
        tuple(cells_of_row[place].replace("-to-", "-") for place in kept) for cells_of_row in cells
    ]
    text = table(*(headings[place] for place in kept), rows=narrow)
    text.columns[2].justify = "left"
    result = {"rows": [asdict(row) for row in rows], "files": [str(out / name) for name in files]}
    show(result, json, text)


def _two_sets(kind: str, features: int, images: tuple[Path, Path] | None) -> "tuple[Points, Points]":
    """Two sets of the same number of raw descriptors, of two images or of the built-in database."""
    import numpy as np

    from featveil.core import InputError, Points
    from featveil.databases import builtin
    from featveil.extractors import extract

    if images is None:
        points = Points(builtin(kind).points())
        half = len(points) // 2
        sets = points.take(np.arange(half)), points.take(np.arange(half, 2 * half))
    else:
        sets = (
            extract(images[0], kind, features).descriptors,
            extract(images[1], kind, features).descriptors,
        )
    fewest = min(len(sets[0]), len(sets[1]))
    if fewest < features:
        raise InputError(f"{features} descriptors are asked for, {fewest} are there: lower --features")
    return sets[0].take(np.arange(features)), sets[1].take(np.arange(features))


def _make_folder(out: Path) -> None:
    from featveil.core import InputError

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make folder {out}: {error.strerror}") from error


def _words(text: str, option: str) -> list[str]:
    from featveil.core import InputError

    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise InputError(f"{option} names nothing: give one or more, separated by commas")
    return words


def _numbers(text: str) -> tuple[int, ...]:
    from featveil.core import InputError

    words = _words(text, "--dimensions")
    try:
        return tuple(int(word) for word in words)
    except ValueError as error:
        raise InputError(f"--dimensions must be whole numbers separated by commas, got {text!r}") from error
