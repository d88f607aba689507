"""featveil bench patches: how well patch descriptors tell patches apart."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from featveil.cli.benching import stoppable
from featveil.cli.console import Json, printable, show, table
from featveil.core.files import make_folder, replacing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from featveil.lab.patch_benchmark import Transform
    from featveil.lab.patch_report import PatchRow


def patches(
    out: Annotated[Path, typer.Option(help="Folder for records.jsonl and table.md.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder of scenes in HPatches layout.", show_default="not run")
    ] = None,
    phototour: Annotated[
        list[Path] | None, typer.Option(help="Patch set, see featveil patches build; may be repeated.")
    ] = None,
    kind: Annotated[str, typer.Option(help="sift, rootsift, hardtfeat, hardnet or sosnet.")] = "sift",
    weights: Annotated[Path | None, typer.Option(help="Weights file of a network.", show_default="none")] = None,
    concealer: Annotated[
        list[Path] | None, typer.Option(help="Concealing network to put after the descriptor; may be repeated.")
    ] = None,
    max_patches: Annotated[int, typer.Option(help="Patches of each scene, the strongest.")] = 500,
    pairs: Annotated[int, typer.Option(help="Negative pairs of verification.")] = 50_000,
    queries: Annotated[int, typer.Option(help="Queries of retrieval.")] = 1000,
    seed: Annotated[int, typer.Option(help="A study may be repeatable; a release never is.")] = 0,
    json: Json = False,
) -> None:
    """FPR@95 on patch sets, and the verification, matching and retrieval tasks of HPatches on image sequences.

    Several kinds may be measured into one folder, one after the other: the table has all of them. Stop it with Ctrl-C
    at any time: the same command goes on where it stopped (from OUT/records.jsonl).

    Example: featveil bench patches --data hpatches-sequences/ --phototour patches/ --out results/
    """
    from featveil.datasets import load_hpatches, load_phototour
    from featveil.extractors import make_describer
    from featveil.lab.patch_benchmark import PatchSettings, PatchSources, run_resumable

    settings = PatchSettings(max_patches, pairs, queries, seed)
    describer, schemes = make_describer(kind, weights), _schemes(concealer or [], kind)
    sets = [load_phototour(folder) for folder in phototour or []]
    sources = PatchSources(None if data is None else load_hpatches(data), sets)
    make_folder(out)
    path = out / "records.jsonl"
    stoppable("patches", path, lambda report: run_resumable(sources, describer, schemes, settings, path, report))
    _publish(out, json)


def _schemes(concealers: list[Path], kind: str) -> "Mapping[str, Transform]":
    """What is done to the descriptors, by name; a concealing network is named by its lambda and digest."""
    from featveil.core.errors import InputError
    from featveil.formats.network_files import load_network
    from featveil.lab.patch_benchmark import chance, concealing, raw

    schemes: dict[str, Transform] = {"raw": raw}
    for path in concealers:
        network = load_network(path)
        if network.kind != kind:
            raise InputError(f"{path} conceals {network.kind} descriptors, not {kind}")
        schemes[network.name] = concealing(network)
    return schemes | {"chance": chance}


def _publish(out: Path, json: bool) -> None:
    """Write the table of everything that the folder's records hold, and print it."""
    from featveil.core.records import read_records
    from featveil.lab.patch_report import patch_markdown, summarize_patches

    records = [record for record in read_records(out / "records.jsonl") if record.task == "patches"]
    rows = summarize_patches(records)
    with replacing(out / "table.md") as temporary:
        temporary.write_text(patch_markdown(records), encoding="utf-8")
    files = [str(out / name) for name in ("records.jsonl", "table.md")]
    show({"rows": [asdict(row) for row in rows], "files": files}, json, _narrow(rows))


def _narrow(rows: "list[PatchRow]") -> Table:
    """A terminal has 80 columns: means over easy and hard; table.md and --json have everything."""
    from featveil.lab.patch_report import TASKS, percent

    sets = list(dict.fromkeys(name for row in rows for name in row.false_positives))
    tasks = [task for task in TASKS if any(row.mean_of(task) is not None for row in rows)]
    lines: list[tuple[object, ...]] = []
    for row in rows:
        numbers = [*(row.false_positives.get(name) for name in sets), *(row.mean_of(task) for task in tasks)]
        lines.append((row.kind, row.scheme, *map(percent, numbers), *([percent(row.mean_precision)] if tasks else [])))
    headings = [*(f"FPR@95\n{printable(name)}" for name in sets), *(f"{task}\nmAP" for task in tasks)]
    text = table("descriptor", "scheme", *headings, *(["mean\nmAP"] if tasks else []), rows=lines)
    text.columns[1].justify = "left"
    return text
