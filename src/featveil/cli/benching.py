"""What the benches share: lists of numbers, runs that can be stopped, and the files of a report."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from featveil.cli.console import progress, stderr
from featveil.core.errors import InputError, MissingExtraError
from featveil.core.files import replacing

if TYPE_CHECKING:
    from featveil.core.records import Record
    from featveil.core.resuming import Report

Value = TypeVar("Value")


def stoppable(name: str, path: Path, run: "Callable[[Report], list[Record]]") -> "list[Record]":
    """The records of `run` under a progress bar; Ctrl-C ends the command and says how to go on."""
    try:
        with progress(name) as report:
            return run(report)
    except KeyboardInterrupt:
        stderr.print(f"Stopped. The same command goes on from {path}", markup=False, highlight=False)
        raise typer.Exit(130) from None


def write_reports(out: Path, markdown: str, draw: Callable[[Path], None]) -> list[str]:
    """Write table.md and, where matplotlib is there, curve.png; the files of the folder."""
    with replacing(out / "table.md") as temporary:
        temporary.write_text(markdown, encoding="utf-8")
    files = ["records.jsonl", "table.md", "curve.png"]
    try:
        draw(out / "curve.png")
    except MissingExtraError as error:
        files.remove("curve.png")
        stderr.print(f"curve.png was not drawn: {error}", markup=False, highlight=False)
    return [str(out / name) for name in files]


def split(text: str, option: str) -> list[str]:
    """The words of `text` between its commas; raises InputError when there is none."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise InputError(f"{option} names nothing: give one or more, separated by commas")
    return words


def unless_none(text: str, parse: Callable[[], Sequence[Value]]) -> Sequence[Value]:
    """What `parse` gives; nothing where `text` says none."""
    return () if text.strip() == "none" else parse()


def whole_numbers(text: str, option: str) -> tuple[int, ...]:
    """Whole numbers separated by commas; raises InputError for anything else."""
    words = split(text, option)
    try:
        return tuple(int(word) for word in words)
    except ValueError as error:
        raise InputError(f"{option} must be whole numbers separated by commas, got {text!r}") from error


def real_numbers(text: str, option: str) -> tuple[float, ...]:
    """Numbers separated by commas; raises InputError for anything else."""
    words = split(text, option)
    try:
        return tuple(float(word) for word in words)
    except ValueError as error:
        raise InputError(f"{option} must be numbers separated by commas, got {text!r}") from error
