"""featveil bench concealers: what concealing networks keep of matching, and what is still seen through them."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from featveil.cli.benching import split, stoppable, unless_none
from featveil.cli.console import Json, progress, show, stderr, table
from featveil.core.errors import InputError, MissingExtraError
from featveil.core.files import make_folder, replacing

if TYPE_CHECKING:
    from rich.table import Table

    from featveil.core.records import Record
    from featveil.lab.concealers_report import ConcealerResults

_SHOWN = ("descriptors", "mean mAP", "to raw", "right@3", "SSIM seen", "by")


def concealers(
    files: Annotated[list[Path], typer.Argument(help="Network files, as featveil train concealer writes them.")],
    data: Annotated[Path, typer.Option(help="Folder of scenes in HPatches layout.")],
    images: Annotated[list[Path], typer.Option(help="Folder of photographs to invert (may be repeated).")],
    out: Annotated[Path, typer.Option(help="Folder for records.jsonl, table.md, two figures and pictures.")],
    phototour: Annotated[
        list[Path] | None, typer.Option(help="Patch set for FPR@95 (may be repeated).", show_default="none")
    ] = None,
    direct: Annotated[
        list[Path] | None,
        typer.Option(help="Inverter trained on what a network gives, or raw (may be repeated).", show_default="none"),
    ] = None,
    inverter: Annotated[
        Path | None, typer.Option(help="Inverter of raw descriptors.", show_default="the built-in one")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Weights file of a learned base descriptor.")] = None,
    database: Annotated[
        Path | None,
        typer.Option(help="Descriptors that lifting draws from, and that attackers have.", show_default="built-in"),
    ] = None,
    attacks: Annotated[
        str, typer.Option(help="Attacks that recover descriptors for --inverter, such as unconceal; or none.")
    ] = "none",
    geometry: Annotated[str, typer.Option(help="What inverters see of keypoints: positions, or full.")] = "positions",
    part: Annotated[
        str, typer.Option(help="test: only photographs that training leaves for tests, whatever folder they are in.")
    ] = "all",
    photographs: Annotated[int, typer.Option(min=1, help="Photographs to invert, evenly spaced.")] = 12,
    max_features: Annotated[int, typer.Option(min=1, help="Features of an image that is matched.")] = 2000,
    max_patches: Annotated[int, typer.Option(help="Patches of each scene, the strongest.")] = 500,
    pairs: Annotated[int, typer.Option(help="Negative pairs of verification.")] = 50_000,
    queries: Annotated[int, typer.Option(help="Queries of retrieval.")] = 1000,
    seed: Annotated[int, typer.Option(help="A study may be repeatable; a release never is.")] = 0,
    json: Json = False,
) -> None:
    """NinjaDesc's evaluation of concealing networks, beside the raw descriptor and the paper's numbers.

    FPR@95, the tasks of HPatches, mean matching accuracy with sub-hybrid lifting beside it, and what fresh inverters
    see (featveil train inverter --defense concealer --concealer FILE). Stop it with Ctrl-C at any time: the same
    command goes on where it stopped (from OUT/records.jsonl). Tables and figures are of everything that is in there,
    so that networks and inverters which are trained later can be added.

    Example: featveil bench concealers sift-0.1.safetensors sift-1.safetensors --data hpatches-sequences/
    --images victims/ --part test --direct fresh-0.1.onnx --direct fresh-1.onnx --out results/
    """
    from featveil.audit.victims import own_database
    from featveil.core.records import read_records
    from featveil.databases import builtin
    from featveil.datasets import load_hpatches, load_phototour
    from featveil.extractors import make_describer
    from featveil.formats.network_files import load_network
    from featveil.lab import scenes
    from featveil.lab.concealers import ConcealerStudy, check_networks, described_by, inverted_schemes
    from featveil.lab.inversion_photos import find_photographs, read_photographs
    from featveil.lab.inversion_study import Settings, Study, make_trials
    from featveil.lab.patches import Settings as PatchSettings
    from featveil.lab.patches import Sources as PatchSources
    from featveil.pipelines.invert import load_painter

    networks = [load_network(path) for path in files]
    kind = networks[0].kind
    check_networks(networks, kind)
    describer = make_describer(kind, weights)
    sources = PatchSources(load_hpatches(data), [load_phototour(folder) for folder in phototour or []])
    patch_settings = PatchSettings(max_patches, pairs, queries, seed)
    match_settings = scenes.Settings(kind, max_features, seed, weights=weights)
    settings = Settings(kind, seed=seed, geometry=geometry, part=part, weights=weights)
    trials = make_trials(unless_none(attacks, lambda: split(attacks, "--attacks")))
    own = builtin(kind) if database is None else own_database([database], kind)
    painter, painters = load_painter(inverter, kind), [load_painter(path) for path in direct or []]
    chosen = find_photographs(images, part)
    with progress("photographs") as report:
        seen = read_photographs(chosen, photographs, kind if weights is None else "sift", report=report)
    found = seen if weights is None else described_by(seen, settings)
    name = "+".join(dict.fromkeys(folder.resolve().name for folder in images))
    schemes = inverted_schemes(networks, kind)
    study = Study(name, found, schemes, trials, painter, own, painters, settings=settings)
    whole = ConcealerStudy(networks, describer, sources, patch_settings, match_settings, own, study)
    make_folder(out)
    path = out / "records.jsonl"
    stoppable("patches", path, lambda report: whole.patches(path, report))
    stoppable("matching", path, lambda report: whole.matching(path, report))
    stoppable("inversion", path, lambda report: whole.inversion(out, report))
    _publish(read_records(path), out, kind, json)


def _publish(records: "list[Record]", out: Path, kind: str, json: bool) -> None:
    """Write both figures and the tables, and print the first."""
    from featveil.lab.concealer_figures import draw_concealed_matching, draw_concealers
    from featveil.lab.concealers_report import concealer_markdown, summarize_concealers

    found = summarize_concealers(records)
    with replacing(out / "table.md") as temporary:
        temporary.write_text(concealer_markdown(records), encoding="utf-8")
    files = [str(out / name) for name in ("records.jsonl", "table.md")]
    for name, draw in (("curve.png", draw_concealers), ("matching.png", draw_concealed_matching)):
        try:
            draw(found, out / name, f"Concealed {kind}")
            files.append(str(out / name))
        except (MissingExtraError, InputError) as error:
            stderr.print(f"{name} was not drawn: {error}", markup=False, highlight=False)
    rows: list[dict[str, Any]] = [{"name": row.name, **asdict(row)} for row in found.rows]
    show({"rows": rows, "files": files}, json, _narrow(found))


def _narrow(found: "ConcealerResults") -> "Table":
    """A terminal has 80 columns: table.md and --json have everything."""
    from featveil.lab.concealers_report import concealer_cells

    headings, lines = concealer_cells(found)
    kept = [place for place, name in enumerate(headings) if name in _SHOWN]
    text = table(*(headings[place] for place in kept), rows=[tuple(line[place] for place in kept) for line in lines])
    text.columns[-1].justify = "left"
    return text
