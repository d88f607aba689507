"""featveil ledger: budgets of epsilon, and what releases have spent of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from featveil.cli.console import Json
from featveil.cli.console import show as show_result

if TYPE_CHECKING:
    from featveil.stores.ledger import Balance, Entry

app = typer.Typer(no_args_is_help=True, help="Set privacy budgets, and show what releases have spent of them.")

LedgerFile = Annotated[Path, typer.Argument(metavar="LEDGER", help="Ledger file (SQLite).")]


@app.command()
def set_budget(
    ledger: LedgerFile,
    subject: Annotated[str, typer.Argument(help="Person or device whose features are released.")],
    epsilon: Annotated[float, typer.Argument(help="What all releases together may spend; 0 stops them.")],
    kind: Annotated[str, typer.Option(help="local-dp or metric-dp: their epsilons never add up.")] = "local-dp",
    json: Json = False,
) -> None:
    """Set what a subject may spend. Makes the ledger if there is none; what was spent stays spent.

    Example: featveil ledger set-budget ledger.sqlite ann 50000
    """
    from dataclasses import asdict

    from featveil.stores.ledger import Ledger

    balance = Ledger(ledger).set_budget(subject, epsilon, kind)
    show_result({"ledger": str(ledger), **asdict(balance)}, json, _balances([balance]))


@app.command()
def show(
    ledger: LedgerFile,
    subject: Annotated[str | None, typer.Argument(help="Show this one only.", show_default="all subjects")] = None,
    last: Annotated[int, typer.Option(min=0, help="Entries of the history to show; 0 shows all.")] = 20,
    json: Json = False,
) -> None:
    """Show budgets, spending and the history, newest last. Verifies the file.

    Example: featveil ledger show ledger.sqlite ann --last 5
    """
    from dataclasses import asdict

    from featveil.core.errors import InputError
    from featveil.stores.ledger import Ledger

    opened = Ledger(ledger)
    balances, history = opened.statement(subject), opened.history(subject)
    if subject is not None and not history:
        raise InputError(f"{subject!r} is not in {ledger}: show it without a subject to see who is")
    shown = history[-last:]  # -0 takes all
    left_out = len(history) - len(shown)
    result = {
        "ledger": str(ledger),
        "subjects": [asdict(balance) for balance in balances],
        "history": [asdict(entry) for entry in shown],
        "not_shown": left_out,
    }
    note = [f"({left_out} earlier entries are not shown: --last 0 shows all)"] if left_out else []
    show_result(result, json, "\n".join([_balances(balances), "", *note, _history(shown)]))


def _balances(balances: "list[Balance]") -> str:
    rows = [
        (
            each.subject,
            each.kind,
            _number(each.budget),
            _number(each.spent),
            _number(each.remaining),
            str(each.releases),
        )
        for each in balances
    ]
    return _aligned([("subject", "kind", "budget", "spent", "left", "releases"), *rows])


def _history(entries: "list[Entry]") -> str:
    rows = [
        (each.time, each.subject, each.event, each.kind, _amount(each), each.defense, each.label) for each in entries
    ]
    return _aligned([("time", "subject", "event", "kind", "epsilon", "defense", "label"), *rows])


def _amount(entry: "Entry") -> str:
    """The epsilon of an entry; one per descriptor never stands without that of the image."""
    total = _number(entry.epsilon)
    if entry.event == "budget":
        return f"set to {total}"
    if entry.per_descriptor is None:
        return f"{total} per image"
    unit = ", per unit of distance" if entry.kind == "metric-dp" else ""
    return f"{_number(entry.per_descriptor)} per descriptor x {entry.features} = {total} per image{unit}"


def _number(value: float) -> str:
    return f"{value:.15g}"


def _aligned(rows: list[tuple[str, ...]]) -> str:
    """Columns of plain text. A table of rich would cut or fold long names where the terminal is narrow."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
