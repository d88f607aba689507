"""What the commands share: results on stdout, progress and warnings on stderr."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

stdout = Console(soft_wrap=True)
stderr = Console(stderr=True, soft_wrap=True)

Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]


def show(result: dict[str, Any], as_json: bool, text: RenderableType) -> None:
    """Print `result` as JSON, or `text` for a person."""
    if as_json:
        typer.echo(json.dumps(result))
    else:
        stdout.print(text)


def table(*columns: str, rows: list[tuple[object, ...]]) -> Table:
    """A plain table, first column left-aligned, the others right-aligned."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for position, column in enumerate(columns):
        made.add_column(column, justify="left" if position == 0 else "right")
    for row in rows:
        made.add_row(*(str(cell) for cell in row))
    return made


@contextmanager
def progress(description: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr; yields a function of (done, total)."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=stderr, transient=True) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
