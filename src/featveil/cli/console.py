"""What the commands share: results on stdout, progress and warnings on stderr."""

import json
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from featveil.core.errors import InputError

_MINUTE = 60.0

stdout = Console(soft_wrap=True)
stderr = Console(stderr=True, soft_wrap=True)

Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]


def show(result: dict[str, Any], as_json: bool, text: RenderableType) -> None:
    """Print `result` as JSON, or `text` for a person; a plain string is printed as it is."""
    try:
        if as_json:
            typer.echo(json.dumps(result))
        elif isinstance(text, str):
            stdout.print(printable(text), markup=False, highlight=False)
        else:
            stdout.print(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        drop(sys.stdout)
        raise InputError(f"cannot write to the standard output: {error.strerror}") from error


def drop(stream: IO[str]) -> None:
    """Send what is still unwritten nowhere; Python would complain about it again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def complain(level: str, message: object) -> None:
    """Print one line on stderr, such as 'error: ...', without characters that steer the terminal."""
    line = " ".join(str(message).splitlines())
    stderr.print(printable(f"{level}: {line}"), markup=False, highlight=False)


def printable(text: str) -> str:
    """`text` with everything but its line ends and printable characters replaced by '?'."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)


def number(value: float) -> str:
    """For a person: all digits that count, thousands apart, no exponent up to a billion."""
    return f"{value:,.10g}"


class WarningLines(logging.Handler):
    """Shows log records of featveil as lines on stderr, above a running progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record."""
        complain(record.levelname.lower(), record.getMessage())


def show_warnings() -> None:
    """Send the warnings of all featveil modules to stderr; may be called again."""
    logger = logging.getLogger("featveil")
    if not any(isinstance(handler, WarningLines) for handler in logger.handlers):
        logger.addHandler(WarningLines(logging.WARNING))


def table(*columns: str, rows: list[tuple[object, ...]]) -> Table:
    """A plain table, first column left-aligned, the others right-aligned. Cells are plain text, without markup."""
    text = Table(box=None, pad_edge=False, header_style="bold")
    for position, column in enumerate(columns):
        text.add_column(column, justify="left" if position == 0 else "right")
    for row in rows:
        text.add_row(*(Text(printable(str(cell))) for cell in row))
    return text


@contextmanager
def progress(description: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, or a line a minute where that is no terminal; yields a function of (done, total)."""
    with staged_progress(description) as update:
        yield lambda done, total: update(description, done, total)


@contextmanager
def staged_progress(first: str) -> Iterator[Callable[[str, int, int], None]]:
    """The same for work in stages, of which the `first` is shown at once; yields a function of (stage, done, total)."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with bar_on_stderr(*columns) as bar:
        task, current = bar.add_task(first, total=None), first
        tell = minute_lines()

        def update(stage: str, done: int, total: int) -> None:
            nonlocal current
            if stage != current:
                bar.reset(task, description=stage)
                current = stage
            bar.update(task, completed=done, total=total)
            tell(lambda: f"{stage}: {done:,} of {total:,}")

        yield update


def bar_on_stderr(*columns: ProgressColumn) -> Progress:
    """A progress bar that is drawn on a terminal only, and is gone when it ends."""
    return Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal)


def minute_lines() -> Callable[[Callable[[], str]], None]:
    """A function that prints what its argument makes, once a minute at most, where stderr is no terminal.

    A log that cannot be written does not end the work: its disk may be full, its reader gone.
    """
    last = time.monotonic()

    def tell(line: Callable[[], str]) -> None:
        nonlocal last
        if stderr.is_terminal or time.monotonic() - last < _MINUTE:
            return
        last = time.monotonic()
        try:
            sys.stderr.write(f"{printable(line())}\n")
            sys.stderr.flush()
        except (OSError, ValueError):  # ValueError: it is closed
            last = math.inf
            with suppress(OSError, ValueError):
                drop(sys.stderr)

    return tell
