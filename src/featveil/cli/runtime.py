"""featveil bench runtime: how long matching takes, as ratios, and beside homomorphic encryption."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group

from featveil.cli.benching import whole_numbers
from featveil.cli.console import Json, progress, show, table

if TYPE_CHECKING:
    from featveil.core import Points
    from featveil.lab.encryption import Comparison, Exchange


def runtime(
    features: Annotated[int, typer.Option(min=2, help="Descriptors in each of the two sets.")] = 1000,
    dimensions: Annotated[str, typer.Option(help="Subspace dimensions, separated by commas.")] = "2,4,8",
    repeat: Annotated[int, typer.Option(min=1, help="Repetitions; the median is shown.")] = 3,
    images: Annotated[
        tuple[Path, Path] | None,
        typer.Option(help="Two images to take descriptors from.", show_default="the built-in database"),
    ] = None,
    kind: Annotated[str, typer.Option(help="Descriptor kind.")] = "sift",
    encryption: Annotated[
        bool, typer.Option("--encryption", help="Distances of one and of all descriptors, raw, lifted and encrypted.")
    ] = False,
    json: Json = False,
) -> None:
    """CPU time of every matching method on one thread, and its ratio to a reference measured beside it.

    Example: featveil bench runtime --features 1000 --dimensions 2,4,8

    Example: featveil bench runtime --encryption
    """
    wanted = whole_numbers(dimensions, "--dimensions")
    first, second = _two_sets(kind, features, images)
    run = _against_encryption if encryption else _matching
    run(first, second, wanted, repeat, kind, json)


def _matching(
    first: "Points", second: "Points", dimensions: tuple[int, ...], repeat: int, kind: str, json: bool
) -> None:
    from featveil.lab.runtime import Timing, measure

    timings: list[Timing] = []
    with progress("timing") as report:
        for timing in measure(first, second, dimensions, repeat, kind):
            timings.append(timing)
            # How many methods there are depends on the sizes: the bar only counts.
            report(len(timings), max(len(timings) + 1, 4 * len(dimensions) + 2))
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


def _against_encryption(
    first: "Points", second: "Points", dimensions: tuple[int, ...], repeat: int, kind: str, json: bool
) -> None:
    from featveil.lab.encryption import Cipher, compare

    key_bytes = Cipher().key_bytes
    comparisons: list[Comparison] = []
    with progress("timing") as report:
        for comparison in compare(first, second, dimensions, repeat, kind):
            comparisons.append(comparison)
            # Raw and both distances of each dimension, for one query and for all; encryption in three ways.
            report(len(comparisons), 2 + 4 * len(dimensions) + 5)
    times = table(
        *("method", "m", "distances", "CPU ms", "ratio", "scaled from"), rows=[_times(row) for row in comparisons]
    )
    exchanges = [_exchange(row.method, row.exchange) for row in comparisons if row.exchange is not None]
    headings = ("at the sender", "queries", "encrypt ms", "decrypt ms", "sent MB", "back MB", "error")
    keys = f"\nKeys that the server needs, sent once: {key_bytes / 1e6:.1f} MB. Error: largest of a squared distance."
    result = {"comparisons": [asdict(row) for row in comparisons], "key_bytes": key_bytes}
    show(result, json, Group(times, "", table(*headings, rows=exchanges), keys))


def _times(row: "Comparison") -> tuple[object, ...]:
    size = f"{row.queries} x {row.database}"
    return row.method, row.dimension or "", size, _short(1000 * row.seconds), _short(row.ratio), row.scaled_from


def _exchange(method: str, cost: "Exchange") -> tuple[object, ...]:
    times = _short(1000 * cost.encrypt_seconds), _short(1000 * cost.decrypt_seconds)
    sizes = f"{cost.sent_bytes / 1e6:.2f}", f"{cost.returned_bytes / 1e6:.2f}"
    return method.removeprefix("encrypted, "), cost.queries, *times, *sizes, f"{cost.largest_error:.0e}"


def _short(value: float) -> str:
    """About three digits, thousands apart."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{float(f'{value:.3g}'):,.{digits}f}"


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
