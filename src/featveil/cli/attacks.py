"""featveil bench attacks: every attack against every defense on the same photographs."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from featveil.cli.benching import real_numbers, split, stoppable, unless_none, whole_numbers, write_reports
from featveil.cli.concealing import Composed, Concealers
from featveil.cli.console import Json, progress, show, table
from featveil.core.files import make_folder

if TYPE_CHECKING:
    from rich.table import Table

    from featveil.audit.releases import Victim
    from featveil.core.records import Record
    from featveil.lab.attack_report import AttackRow
    from featveil.lab.attacks import Settings


def attacks(
    victims: Annotated[Path, typer.Argument(help="Folder of photographs whose features are attacked.")],
    attacker: Annotated[
        list[Path],
        typer.Option(help="Folder of the attacker's photographs (may be repeated), or one database file."),
    ],
    out: Annotated[Path, typer.Option(help="Folder for records.jsonl, table.md and curve.png.")],
    only: Annotated[
        str | None, typer.Option(help="Attacks to run, separated by commas.", show_default="all that apply")
    ] = None,
    strategies: Annotated[str, typer.Option(help="Lifting strategies; none for no lifting.")] = (
        "random,adversarial,hybrid,sub-adversarial,sub-hybrid"
    ),
    dimensions: Annotated[str, typer.Option(help="Subspace dimensions.")] = "2,4,8,16",
    epsilons: Annotated[
        str, typer.Option(help="Epsilons of the subset mechanism; none to leave it out.")
    ] = "14,10,8,6",
    subset_sizes: Annotated[str, typer.Option(help="Words it sends for each descriptor.")] = "1,4",
    metric_epsilons: Annotated[
        str, typer.Option(help="Epsilons of the metric mechanism; none likewise.")
    ] = "121,49,28",
    concealer: Concealers = None,
    composed: Composed = False,
    images: Annotated[int, typer.Option(min=1, help="Photographs to attack.")] = 6,
    max_features: Annotated[int, typer.Option(min=1, help="Features of each, the strongest.")] = 1000,
    sample: Annotated[int, typer.Option(min=1, help="Features of each for attacks that treat them one by one.")] = 100,
    database_size: Annotated[int, typer.Option(min=1, help="Descriptors that the attacker has.")] = 65_536,
    kind: Annotated[str, typer.Option(help="Descriptor kind.")] = "sift",
    seed: Annotated[int, typer.Option(help="A study may be repeatable; a release never is.")] = 0,
    json: Json = False,
) -> None:
    """All attacks against all defenses: how near the guesses come to the hidden descriptors.

    Take photographs that are not those of the lifting database (`featveil database info`), nor the attacker's. Stop it
    with Ctrl-C at any time: the same command goes on where it stopped (from OUT/records.jsonl). The best attack on each
    defense is shown: by guesses that come near, on word sets by words named right.

    Example: featveil bench attacks victims/ --attacker photos/ --out results/ --strategies sub-hybrid --dimensions 4
    """
    from featveil.audit.trials import make_trials
    from featveil.audit.victims import check_apart, own_database
    from featveil.defenses import load_network
    from featveil.lab.attacks import Settings, Study, make_schemes, run_resumable

    for folder in attacker:
        check_apart(folder, victims, "the attacker's database would hold what is hidden")
    settings = Settings(kind, max_features, seed, sample)
    schemes = make_schemes(
        kind,
        unless_none(strategies, lambda: tuple(split(strategies, "--strategies"))),
        whole_numbers(dimensions, "--dimensions"),
        unless_none(epsilons, lambda: real_numbers(epsilons, "--epsilons")),
        whole_numbers(subset_sizes, "--subset-sizes"),
        unless_none(metric_epsilons, lambda: real_numbers(metric_epsilons, "--metric-epsilons")),
        [load_network(path) for path in concealer or []],
        composed,
    )
    trials = make_trials(None if only is None else ["chance", "read", *split(only, "--only")])
    with progress("attacker's photographs") as report:
        database = own_database(attacker, kind, database_size, seed, report)
    study = Study(victims.resolve().name, _victims(victims, images, settings), schemes, trials, database, settings)
    make_folder(out)
    path = out / "records.jsonl"
    records = stoppable("attacks", path, lambda report: run_resumable(study, path, report))
    _publish(records, out, json)


def _victims(folder: Path, images: int, settings: "Settings") -> "list[Victim]":
    from featveil.audit.releases import Victim
    from featveil.audit.victims import read_victims, second_view

    kind, most = settings.kind, settings.max_features
    with progress("victims") as report:
        found = read_victims(folder, kind, images, most, report)
        return [Victim(name, features, second_view(folder / name, kind, most)) for name, features in found.items()]


def _publish(records: "list[Record]", out: Path, json: bool) -> None:
    """Write the reports and print the best attack of every scheme."""
    from featveil.lab.attack_report import attacks_markdown, best_attacks, draw_attacks, summarize_attacks

    rows = summarize_attacks(records)
    title = f"Attacks on {records[0].dataset}, {records[0].parameters['kind']}"
    files = write_reports(out, attacks_markdown(records), lambda path: draw_attacks(rows, path, title))
    best = best_attacks(rows)
    chance = {row.scheme: row for row in rows if row.attack == "chance"}
    show({"rows": [asdict(row) for row in rows], "files": files}, json, _narrow(best, chance))


def _narrow(best: "dict[str, AttackRow]", chance: "dict[str, AttackRow]") -> "Table":
    """A terminal has 80 columns: the best attack of each scheme; table.md and --json have everything."""
    from featveil.metrics import CLOSE, NEAR

    lines: list[tuple[object, ...]] = []
    for scheme, row in best.items():
        floor = f"{100 * chance[scheme].below_near:.0f}" if scheme in chance else "-"
        shares = (f"{100 * share:.0f}" for share in (row.below_near, row.below_close, row.exact))
        lines.append((scheme, row.attack, f"{row.median:.2f}", *shares, floor))
    headings = ("defense", "best attack", "median\naway", f"below\n{NEAR} %", f"below\n{CLOSE} %", "exact\n%")
    return table(*headings, "chance\n%", rows=lines)
