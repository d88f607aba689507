"""A dataclass as the options of a command: types, defaults, lists, help, and mistakes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer
from typer.testing import CliRunner

from featveil.cli import Commands
from featveil.cli.options import command
from featveil.core.options import argument, option, parameters_of


@dataclass(frozen=True)
class Request:
    inputs: tuple[Path, ...] = argument(help="Files to read.")
    out: Path = option(help="Folder to write.")
    dimensions: tuple[int, ...] = option((2, 4), help="Dimensions.")
    epsilons: tuple[float, ...] = option((2.0, 4.5), help="Bounds.")
    databases: tuple[Path, ...] = option((), help="Files.", flags=("--database", "--codebook"), repeated=True)
    side: Literal["left", "right"] | None = option(None, help="Which.", shown="both")
    count: int | None = option(None, help="How many.", minimum=1)
    ends: tuple[Path, Path] | None = option(None, help="From and to.")
    strict: bool = option(False, help="Refuse more.")


@pytest.fixture
def ran() -> tuple[typer.Typer, list[tuple[Request, bool]]]:
    app, calls = typer.Typer(cls=Commands), list[tuple[Request, bool]]()

    @app.command()
    @command
    def go(request: Request, json: Annotated[bool, typer.Option("--json")] = False) -> None:
        """Go."""
        calls.append((request, json))

    @app.command()
    def stay() -> None:
        """Stay."""

    return app, calls


def test_defaults(ran: tuple[typer.Typer, list[tuple[Request, bool]]]) -> None:
    app, calls = ran
    assert CliRunner().invoke(app, ["go", "a", "b", "--out", "o"]).exit_code == 0
    assert calls == [(Request((Path("a"), Path("b")), Path("o")), False)]


def test_every_type(ran: tuple[typer.Typer, list[tuple[Request, bool]]]) -> None:
    app, calls = ran
    given = (
        "go a --out o --dimensions 1,3 --epsilons none --database x --codebook y --side left --count 3"
        " --ends c d --strict --json"
    )
    result = CliRunner().invoke(app, given.split())
    assert result.exit_code == 0, result.output
    expected = Request(
        (Path("a"),), Path("o"), (1, 3), (), (Path("x"), Path("y")), "left", 3, (Path("c"), Path("d")), True
    )
    assert calls == [(expected, True)]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("--dimensions 1,x", "whole numbers"),
        ("--dimensions ,", "names nothing"),
        ("--epsilons 1,x", "numbers separated by commas"),
        ("--side middle", "--side"),
        ("--count 0", "--count"),
        ("--no-strict", "--no-strict"),
    ],
)
def test_mistakes(ran: tuple[typer.Typer, list[tuple[Request, bool]]], given: str, named: str) -> None:
    app, calls = ran
    result = CliRunner().invoke(app, ["go", "a", "--out", "o", *given.split()])
    assert result.exit_code == 2 and named in result.stderr and not calls


def test_help_is_that_of_the_fields(ran: tuple[typer.Typer, list[tuple[Request, bool]]]) -> None:
    shown = CliRunner().invoke(ran[0], ["go", "--help"], env={"COLUMNS": "200"}).stdout
    for parameter in parameters_of(Request).values():
        assert parameter.option.help in shown
        assert parameter.option.positional or all(flag in shown for flag in parameter.flags)
    assert "2,4.5" in shown and "both" in shown
