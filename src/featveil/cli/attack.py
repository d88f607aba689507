"""featveil attack: private features -> guesses of what they hide, and how near those are to the truth."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from featveil.cli.console import Json, printable, progress, show, stderr, table
from featveil.cli.options import command, split
from featveil.pipelines.adversary import AdversaryFiles, flag
from featveil.pipelines.attack import AttackRequest, AttackResult, keeps, list_attacks
from featveil.pipelines.attack import attack as run_attacks

if TYPE_CHECKING:
    from rich.console import RenderableType

_FALLBACK = "features without an answer are scored too, by a fallback guess of the attack"
_MOST_NOTES = 12
_MOST_WRITTEN = 4


@command
def attack(
    request: AttackRequest,
    known: AdversaryFiles,
    list_: Annotated[bool, typer.Option("--list", help="Say what each attack needs and applies to, and stop.")] = False,
    json: Json = False,
) -> None:
    """Try to recover the descriptors behind private features, and say how near the guesses come.

    With --truth and --out, what OUT/records.jsonl holds is not run again, so a stopped command can be run again. A file
    that cannot be used is reported and left out: exit code 1 if others worked, 2 if none did.

    Example: featveil attack query.veil --with nearest --truth query-raw.veil --out results/
    """
    if list_:
        listed = list_attacks()
        show(listed, json, _listing(listed))
        return
    request = replace(request, attacks=split_names(request.attacks))
    try:
        with progress("attacking") as report:
            result = run_attacks(request, known, report)
    except KeyboardInterrupt:
        way = f"The same command goes on from {request.out}" if keeps(request) else "Nothing was kept"
        stderr.print(f"Stopped. {way}", markup=False, highlight=False)
        raise typer.Exit(130) from None
    show(result.facts(), json, _text(result))
    if result.failed:
        raise typer.Exit(1)


def split_names(given: Sequence[str]) -> tuple[str, ...]:
    """The names of attacks, each of which may be several with commas between."""
    return tuple(name for text in given for name in split(text, "--with"))


def _text(result: AttackResult) -> "RenderableType":
    """For a person: a table for each scheme, what the attackers knew, what was left out and written."""
    from featveil.plotting.leakage_tables import leakage_rows

    parts = _scored(result) if result.records else _guessed(result)
    notes, written = result.notes, result.written
    hidden = [f"and {len(notes) - _MOST_NOTES} more notes: see --json"] if len(notes) > _MOST_NOTES else []
    fallback = [_FALLBACK] if any(row.answered < 1 for row in leakage_rows(result.records)) else []
    lines = [*fallback, *notes[:_MOST_NOTES], *hidden, *result.not_run]
    parts += [Text("")] if lines else []
    parts += [_hanging(line) for line in lines]
    if len(written) > _MOST_WRITTEN:
        written = (*written[: _MOST_WRITTEN - 1], f"and {len(written) - _MOST_WRITTEN + 1} more")
    return Group(*parts, *(Text(printable(f"wrote {path}")) for path in written))


def _scored(result: AttackResult) -> "list[RenderableType]":
    from featveil.plotting.leakage_tables import leakage_cells, leakage_rows

    rows = leakage_rows(result.records)
    parts: list[RenderableType] = []
    for scheme in dict.fromkeys(row.scheme for row in rows):
        chosen = [row for row in rows if row.scheme == scheme]
        files = max(row.files for row in chosen)
        heading = f"{chosen[0].title}: {files} file{'s' if files > 1 else ''}"
        headings = ("attack", "features", "answers\n%", "mean", "median", "< 0.3\n%", "< 0.5\n%", "exact\n%")
        cells: list[tuple[object, ...]] = list(leakage_cells(chosen))
        scores = table(*headings, "rank", "seconds", rows=cells)
        scores.padding = (0, 1, 0, 0)  # a terminal has 80 columns
        knew = {row.knows: [one.attack for one in chosen if one.knows == row.knows] for row in chosen}
        lines = [f"known to {', '.join(attacks)}: {_known(names, result.sources)}" for names, attacks in knew.items()]
        parts += [Text(printable(f"{heading}\n"), style="bold"), scores, Text(""), *map(_hanging, lines), Text("")]
    return parts[:-1]


def _known(names: Sequence[str], sources: dict[str, str]) -> str:
    known = [_listed((name,)) + (f" ({sources[name]})" if name in sources else "") for name in names]
    return ", ".join(known) or "nothing"


def _guessed(result: AttackResult) -> "list[RenderableType]":
    rows: list[tuple[object, ...]] = [
        (
            guess.file,
            guess.attack,
            f"{guess.attacked:,}",
            f"{100 * guess.answered / guess.attacked:.1f}",
            f"{guess.seconds:.1f}",
        )
        for guess in result.guesses
    ]
    guesses = table("file", "attack", "features", "answered %", "seconds", rows=rows)
    guesses.columns[1].justify = "left"
    return [guesses, Text(""), Text("How near these guesses are is unknown without --truth.")]


def _listing(listed: dict[str, Any]) -> "RenderableType":
    """Every attack with what it needs, can use and applies to, for a person."""
    parts: list[RenderableType] = []
    for one in listed["attacks"]:
        facts = {
            "applies to": ", ".join(one["applies_to"]),
            "needs": _listed(one["needs"]),
            "can use": _listed(one["uses"]),
            "--set": ", ".join(f"{key}={value}" for key, value in one["parameters"].items()),
        }
        parts += [Text(one["name"], style="bold"), _hanging(one["summary"], " "), _indented(facts), Text("")]
    known = {f"{name.replace('_', ' ')} ({flag(name)})": meaning for name, meaning in listed["knowledge"].items()}
    return Group(*parts, Text("What an adversary may know", style="bold"), _indented(known))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(name.replace("_", " ") for name in names) or "nothing"


def _indented(lines: dict[str, str]) -> "RenderableType":
    grid = Table.grid(padding=(0, 2, 0, 0))
    for name, value in lines.items():
        if value:
            grid.add_row(Text(name, style="dim"), Text(value))
    return Padding(grid, (0, 0, 0, 2), expand=False)


def _hanging(line: str, before: str = "-") -> "RenderableType":
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_row(before, Text(printable(line)))
    return grid
