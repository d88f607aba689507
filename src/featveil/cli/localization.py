"""featveil bench localization: each image of a scene localized in a map of the others, raw and private."""

from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from featveil.cli.benching import real_numbers, stoppable, unless_none, whole_numbers, write_reports
from featveil.cli.concealing import Concealers
from featveil.cli.console import Json, show, table
from featveil.core.files import make_folder

if TYPE_CHECKING:
    from featveil.core.records import Record
    from featveil.lab.localization_report import LocalizationRow


def localization(
    scenes: Annotated[list[Path], typer.Argument(metavar="SCENES...", help="Scenes with true cameras.")],
    out: Annotated[Path, typer.Option(help="Folder for records.jsonl, table.md, curve.png and the maps.")],
    dimensions: Annotated[str, typer.Option(help="Dimensions of lifted queries, raw map; or none.")] = "2,4,8,16",
    private_maps: Annotated[str, typer.Option(help="Dimensions of lifted queries, private map; or none.")] = "2,4",
    epsilons: Annotated[str, typer.Option(help="Epsilons of a descriptor, for word sets; or none.")] = "16,14,12,10",
    subset_size: Annotated[int, typer.Option(help="Words sent for each descriptor.")] = 2,
    codebook: Annotated[Path | None, typer.Option(help="Codebook file.", show_default="the built-in one")] = None,
    concealer: Concealers = None,
    iterations: Annotated[
        str, typer.Option(help="Most iterations of RANSAC, for word sets; the others take the fewest.")
    ] = "10000,100000,1000000,10000000",
    retrieved: Annotated[int, typer.Option(help="Map images that a query is matched with, the nearest.")] = 20,
    max_features: Annotated[int, typer.Option(help="Features to use of each image, the strongest.")] = 2000,
    kind: Annotated[str, typer.Option(help="Descriptor kind.")] = "sift",
    seed: Annotated[int, typer.Option(help="A study may be repeatable; a release never is.")] = 0,
    json: Json = False,
) -> None:
    """Localize each image in a map of the others: raw, lifted and word queries, raw and private maps.

    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl and OUT/maps).

    Example: featveil bench localization strecha/ --out results/ --epsilons 12,10 --iterations 10000,100000
    """
    from featveil.audit.schemes import concealed_schemes
    from featveil.databases import builtin, load_database
    from featveil.datasets import load_map_scenes
    from featveil.defenses import load_network
    from featveil.lab.localization import Settings, make_methods, run_resumable
    from featveil.lab.scenes import SceneReleases

    settings = Settings(kind, max_features, seed, retrieved)
    methods = make_methods(
        kind,
        unless_none(dimensions, lambda: whole_numbers(dimensions, "--dimensions")),
        unless_none(private_maps, lambda: whole_numbers(private_maps, "--private-maps")),
        builtin(kind) if codebook is None else load_database(codebook),
        unless_none(epsilons, lambda: real_numbers(epsilons, "--epsilons")),
        subset_size,
        whole_numbers(iterations, "--iterations"),
        concealed_schemes([load_network(path) for path in concealer or []], kind),
    )
    found = [scene for folder in scenes for scene in load_map_scenes(folder)]
    make_folder(out)
    releases = [(scene, SceneReleases(scene, settings)) for scene in found]
    path = out / "records.jsonl"
    records = stoppable("localization", path, lambda report: run_resumable(releases, methods, settings, out, report))
    _publish(records, out, json)


def _publish(records: "list[Record]", out: Path, json: bool) -> None:
    """Write the reports and print the table of all scenes together."""
    from featveil.lab.localization_curves import draw_localization
    from featveil.lab.localization_report import (
        localization_cells,
        localization_markdown,
        summarize_localization,
    )

    rows = summarize_localization(records)
    title = f"Localization, {records[0].parameters['kind']}"
    files = write_reports(out, localization_markdown(records), lambda path: draw_localization(rows, path, title))
    shown = [row for row in rows if row.scene == rows[-1].scene]
    headings, cells = localization_cells(shown)
    # A terminal has 80 columns; table.md and --json have everything.
    kept = [place for place, heading in enumerate(headings) if heading in _SHOWN]
    narrow: list[tuple[object, ...]] = [tuple(line[place] for place in kept) for line in cells]
    text = table(*(headings[place].replace(", ", "\n") for place in kept), rows=narrow)
    show({"rows": [_facts(row) for row in rows], "files": files}, json, text)


def _facts(row: "LocalizationRow") -> dict[str, Any]:
    """For --json, which has no infinity: a median error is None where half of the queries were not localized."""
    return {name: None if value == inf else value for name, value in asdict(row).items()}


_SHOWN = ("scheme", "epsilon an image", "distance", "iterations", "queries", "localized", "5 cm, 0.5 deg", "inliers")
