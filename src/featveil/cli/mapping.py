"""featveil bench mapping: structure from motion with raw and private features, beside the true cameras."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from featveil.cli.benching import stoppable, whole_numbers, write_reports
from featveil.cli.concealing import Concealers
from featveil.cli.console import Json, progress, show, table
from featveil.core.files import make_folder

if TYPE_CHECKING:
    from featveil.audit.releases import Scheme
    from featveil.core.records import Record

_SHOWN = 3  # models beside the raw one in a picture


def mapping(
    scenes: Annotated[
        list[Path], typer.Argument(metavar="SCENES...", help="Scenes, folders of them, or folders of photographs.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for records.jsonl, table.md, curve.png and the maps.")],
    dimensions: Annotated[str, typer.Option(help="Subspace dimensions, separated by commas.")] = "2,4",
    epsilon: Annotated[float, typer.Option(help="Epsilon of a descriptor, for word sets.")] = 10.0,
    subset_sizes: Annotated[str, typer.Option(help="Words sent for each descriptor.")] = "4,8,16,32,64",
    codebook: Annotated[Path | None, typer.Option(help="Codebook file.", show_default="the built-in one")] = None,
    pool: Annotated[
        Path | None, typer.Option(help="Photographs for the pools of hardened lifting.", show_default="not run")
    ] = None,
    concealer: Concealers = None,
    max_features: Annotated[int, typer.Option(help="Features to use of each image, the strongest.")] = 4000,
    kind: Annotated[str, typer.Option(help="Descriptor kind.")] = "sift",
    seed: Annotated[int, typer.Option(help="A study may be repeatable; a release never is.")] = 0,
    json: Json = False,
) -> None:
    """Map scenes from raw, lifted, hardened and word features: images, points, tracks, errors.

    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl and OUT/maps).

    Example: featveil bench mapping strecha/fountain-P11 --out results/ --subset-sizes 4,8
    """
    from featveil.audit.releases import concealed_schemes
    from featveil.databases import builtin, load_database
    from featveil.datasets import load_map_scenes
    from featveil.defenses import load_network
    from featveil.lab.mapping import make_schemes, run_resumable
    from featveil.lab.matching import Settings
    from featveil.lab.scene_releases import SceneReleases, pool_descriptors

    settings = Settings(kind, max_features, seed)
    book = builtin(kind) if codebook is None else load_database(codebook)
    sizes = whole_numbers(subset_sizes, "--subset-sizes")
    schemes = make_schemes(kind, whole_numbers(dimensions, "--dimensions"), book, epsilon, sizes, pool is not None)
    schemes += concealed_schemes([load_network(path) for path in concealer or []], kind)
    found = [scene for folder in scenes for scene in load_map_scenes(folder)]
    make_folder(out)
    with progress("pool") as report:
        values = None if pool is None else pool_descriptors(pool, kind, report)
    releases = [(scene, SceneReleases(scene, settings, values)) for scene in found]
    path = out / "records.jsonl"
    records = stoppable("mapping", path, lambda report: run_resumable(releases, schemes, settings, out, report))
    pictures = [_picture(out, scene.name, schemes) for scene in found]
    _publish(records, out, [picture for picture in pictures if picture is not None], json)


def _picture(out: Path, scene: str, schemes: "list[Scheme]") -> Path | None:
    """Draw the raw map of a scene beside the first private ones; None where there is no raw one."""
    from featveil.core import InputError
    from featveil.geometry.models import read_model
    from featveil.plotting.model_comparison import draw_models
    from featveil.plotting.pictures import write_picture

    folders = {scheme.name: out / "maps" / scene / scheme.name for scheme in schemes}
    made = [name for name, folder in folders.items() if (folder / "points3D.bin").exists()]
    if made[:1] != [schemes[0].name]:
        return None
    try:
        drawn = draw_models({name: read_model(folders[name]) for name in made[: 1 + _SHOWN]})
    except InputError:  # a map without points
        return None
    write_picture(drawn, out / f"{scene}.png")
    return out / f"{scene}.png"


def _publish(records: "list[Record]", out: Path, pictures: list[Path], json: bool) -> None:
    """Write the reports and print the table."""
    from featveil.lab.mapping_curves import draw_mapping
    from featveil.lab.mapping_report import mapping_cells, mapping_markdown, summarize_mapping

    rows = summarize_mapping(records)
    title = f"Maps, {records[0].parameters['kind']}"
    files = write_reports(out, mapping_markdown(records), lambda path: draw_mapping(rows, path, title))
    headings, cells = mapping_cells(rows)
    # A terminal has 80 columns; table.md and --json have everything.
    kept = [place for place, heading in enumerate(headings) if heading != "epsilon" and "pairs" not in heading]
    narrow: list[tuple[object, ...]] = [tuple(line[place] for place in kept) for line in cells]
    text = table(*(headings[place].replace(" ", "\n", 1) for place in kept), rows=narrow)
    files += [str(picture) for picture in pictures]
    show({"rows": [asdict(row) for row in rows], "files": files}, json, text)
