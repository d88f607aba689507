"""featveil bench inversion: what attackers see of photographs under every defense, beside floors and the papers."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from featveil.cli.benching import real_numbers, split, stoppable, unless_none, whole_numbers, write_reports
from featveil.cli.concealing import Composed, Concealers
from featveil.cli.console import Json, progress, show, stderr, table
from featveil.cli.extract import ContrastThreshold
from featveil.core.errors import InputError, MissingExtraError
from featveil.core.files import make_folder

if TYPE_CHECKING:
    from rich.table import Table

    from featveil.core.records import Record
    from featveil.lab.inversion_photos import Photograph
    from featveil.lab.inversion_report import InversionRow
    from featveil.lab.inversion_study import Study


def inversion(
    images: Annotated[list[Path], typer.Option(help="Folder of photographs to attack (may be repeated).")],
    attacker: Annotated[
        list[Path],
        typer.Option(help="Folder of the attacker's photographs (may be repeated), or one database file."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for records.jsonl, table.md, curve.png and pictures.")],
    inverter: Annotated[
        Path | None, typer.Option(help="Inverter of raw descriptors.", show_default="the built-in one")
    ] = None,
    direct: Annotated[
        list[Path] | None,
        typer.Option(help="Inverter trained on what a scheme sends (may be repeated).", show_default="none"),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            help="Attacks that recover descriptors, NAME or NAME+KNOWLEDGE, separated by commas.",
            show_default="the papers', lattice, vertex, posterior",
        ),
    ] = None,
    leave_out: Annotated[
        str,
        typer.Option(help="SCHEME:ATTACK not to run, separated by commas, or none: the default takes minutes each."),
    ] = "sub-hybrid-16:vertex",
    geometry: Annotated[
        str, typer.Option(help="What is sent of keypoints: positions, or full (scale, orientation, response too).")
    ] = "positions",
    part: Annotated[
        str, typer.Option(help="test: only photographs that training leaves for tests, whatever folder they are in.")
    ] = "all",
    strategies: Annotated[str, typer.Option(help="Lifting strategies; none for no lifting.")] = "sub-hybrid",
    dimensions: Annotated[str, typer.Option(help="Subspace dimensions, or none.")] = "2,4,8,16",
    random_dimensions: Annotated[str, typer.Option(help="Of random lifting; none to leave it out.")] = "2",
    epsilons: Annotated[str, typer.Option(help="Epsilons of the subset mechanism; none to leave it out.")] = "14,10",
    subset_sizes: Annotated[str, typer.Option(help="Words it sends for each descriptor.")] = "2",
    concealer: Concealers = None,
    composed: Composed = False,
    photographs: Annotated[int, typer.Option(min=1, help="Photographs to attack, evenly spaced.")] = 12,
    max_features: Annotated[int, typer.Option(min=1, help="Features of each, the strongest.")] = 1000,
    contrast_threshold: ContrastThreshold = 0.04,
    database_size: Annotated[int, typer.Option(min=1, help="Descriptors that the attacker has.")] = 65_536,
    grid: Annotated[
        str, typer.Option(help="Photographs to show in grid.png beside what is seen: how many, or their names.")
    ] = "0",
    grid_columns: Annotated[
        str | None,
        typer.Option(help="SCHEME:ATTACK to show, separated by commas.", show_default="the best on each scheme"),
    ] = None,
    kind: Annotated[str, typer.Option(help="Descriptor kind.")] = "sift",
    seed: Annotated[int, typer.Option(help="A study may be repeatable; a release never is.")] = 0,
    json: Json = False,
) -> None:
    """What attackers see: pictures from recovered descriptors and by inverters of what is sent; MAE, SSIM, PSNR.

    The middle square of each photograph is attacked. Take photographs that no inverter was trained on (--part test, if
    it may have been), nor the attacker has. Stop it with Ctrl-C at any time: the same command goes on where it stopped
    (from OUT/records.jsonl). Pictures are kept in OUT/pictures; the photographs themselves only in grid.png, if asked.

    Example: featveil bench inversion --images victims/ --attacker photos/ --out results/ --direct lifting-4.onnx
    """
    from featveil.audit.victims import check_apart, own_database
    from featveil.defenses import load_network
    from featveil.lab.inversion import run_resumable
    from featveil.lab.inversion_photos import find_photographs, read_photographs
    from featveil.lab.inversion_study import DEFAULT_ATTACKS, Settings, Study, make_schemes, make_trials
    from featveil.pipelines.painters import load_painter

    for theirs in attacker:
        for folder in images:
            check_apart(theirs, folder, "the attacker's database would hold what is hidden")
    settings = Settings(kind, max_features, seed, geometry, part, contrast_threshold)
    schemes = make_schemes(
        kind,
        unless_none(strategies, lambda: split(strategies, "--strategies")),
        unless_none(dimensions, lambda: whole_numbers(dimensions, "--dimensions")),
        unless_none(random_dimensions, lambda: whole_numbers(random_dimensions, "--random-dimensions")),
        unless_none(epsilons, lambda: real_numbers(epsilons, "--epsilons")),
        whole_numbers(subset_sizes, "--subset-sizes"),
        [load_network(path) for path in concealer or []],
        composed,
    )
    trials = make_trials(DEFAULT_ATTACKS if only is None else split(only, "--only"))
    painter, painters = load_painter(inverter, kind), [load_painter(path) for path in direct or []]
    left_out = frozenset(unless_none(leave_out, lambda: _pairs(leave_out, "--leave-out")))
    shown = None if grid_columns is None else _pairs(grid_columns, "--grid-columns")
    files = find_photographs(images, part)
    with progress("attacker's photographs") as report:
        database = own_database(attacker, kind, database_size, seed, report)
    with progress("photographs") as report:
        found = read_photographs(files, photographs, kind, max_features, report, contrast_threshold)
    dataset = "+".join(dict.fromkeys(folder.resolve().name for folder in images))
    study = Study(dataset, found, schemes, trials, painter, database, painters, left_out, settings)
    chosen = _shown(found, grid)
    make_folder(out)
    records = stoppable("inversion", out / "records.jsonl", lambda report: run_resumable(study, out, report))
    pictures = [out / "grid.png"] if chosen and _draw_grid(study, records, chosen, shown, out) else []
    _publish(records, out, pictures, json)


def _pairs(text: str, option: str) -> list[tuple[str, str]]:
    """SCHEME:ATTACK separated by commas; an attack may have its knowledge with or without spaces around the +."""
    made = []
    for word in split(text, option):
        scheme, colon, attack = (part.strip() for part in word.partition(":"))
        if not (scheme and colon and attack):
            raise InputError(f"{option} takes SCHEME:ATTACK separated by commas, got {word!r:.60}")
        made.append((scheme, " + ".join(part.strip() for part in attack.split("+"))))
    return made


def _shown(photographs: "list[Photograph]", text: str) -> "list[Photograph]":
    """Those of --grid: a number of them, evenly spaced, or the named ones."""
    from featveil.audit.victims import evenly

    words = split(text, "--grid")
    if len(words) == 1 and words[0].isdecimal():
        return evenly(photographs, int(words[0])) if int(words[0]) else []
    known = {one.name: one for one in photographs}
    unknown = [word for word in words if word not in known]
    if unknown:
        raise InputError(
            f"{unknown[0]!r:.60} is not attacked here: --grid takes a number, or some of {', '.join(known)}"
        )
    return [known[word] for word in words]


def _draw_grid(
    study: "Study",
    records: "list[Record]",
    photographs: "list[Photograph]",
    columns: list[tuple[str, str]] | None,
    out: Path,
) -> bool:
    """Write grid.png from the pictures that are kept; False without matplotlib."""
    from featveil.extractors import read_image
    from featveil.lab.inversion import picture_path
    from featveil.lab.inversion_grid import Seen, draw_inversion_grid
    from featveil.lab.inversion_report import inversion_columns, summarize_inversion

    columns = inversion_columns(summarize_inversion(records)) if columns is None else columns
    scores = {(one.scheme, one.attack, one.parameters["victim"]): one.value for one in records}
    for scheme, attack in columns:
        if not any((scheme, attack) == (one.scheme, one.attack) for one in records):
            raise InputError(f"--grid-columns: {scheme}:{attack} was not measured here")

    def seen(scheme: str, attack: str, name: str) -> Seen | None:
        path, value = picture_path(out / "pictures", scheme, attack, name), scores.get((scheme, attack, name))
        return Seen(read_image(path), value[1]) if path.is_file() and isinstance(value, tuple) else None

    lines = [[seen(*column, photograph.name) for column in columns] for photograph in photographs]
    try:
        draw_inversion_grid(columns, [one.image for one in photographs], lines, out / "grid.png")
    except MissingExtraError as error:
        stderr.print(f"grid.png was not drawn: {error}", markup=False, highlight=False)
        return False
    return True


def _publish(records: "list[Record]", out: Path, pictures: list[Path], json: bool) -> None:
    """Write the reports and print the best attack on every scheme."""
    from featveil.lab.inversion_curves import draw_inversion
    from featveil.lab.inversion_report import inversion_markdown, summarize_inversion

    rows = summarize_inversion(records)
    title = f"What attackers see of {records[0].dataset}, {records[0].parameters['kind']}"
    files = write_reports(out, inversion_markdown(records), lambda path: draw_inversion(rows, path, title))
    files += [str(path) for path in pictures]
    show({"rows": [asdict(row) for row in rows], "files": files}, json, _narrow(rows))


def _narrow(rows: "list[InversionRow]") -> "Table":
    """A terminal has 80 columns: the best attack on each scheme, then the floors; table.md has everything."""
    from featveil.lab.inversion_report import FLOORS, RAW, best_inversions

    best = [*best_inversions(rows).values(), *(row for row in rows if row.scheme == RAW and row.attack in FLOORS)]
    lines: list[tuple[object, ...]] = [
        (
            "-" if row.attack in FLOORS else row.scheme,
            row.attack,
            f"{row.mae:.3f}",
            f"{row.ssim:.3f}",
            f"{row.psnr:.2f}",
            row.photographs,
        )
        for row in best
    ]
    made = table("defense", "best attack", "MAE", "SSIM", "PSNR", "photographs", rows=lines)
    made.columns[1].justify = "left"
    return made
