"""featveil database: build and inspect databases of public descriptors."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from featveil.cli.console import Json, progress, show, stderr
from featveil.cli.options import command
from featveil.pipelines.build_database import DatabaseRequest, build_database, database_facts

app = typer.Typer(
    no_args_is_help=True,
    help="Build and inspect databases of public descriptors: what lifting draws from, or a codebook of words.",
)


@app.command()
@command
def build(request: DatabaseRequest, json: Json = False) -> None:
    """Build a database from public images or descriptors.

    Stop it with Ctrl-C at any time: the same command goes on where it stopped (from the folder OUT.work).

    Example: featveil database build photos/ --out my.safetensors --clusters 4096
    """
    try:
        with _stages() as report:
            database = build_database(request, report)
    except KeyboardInterrupt:
        stderr.print(f"Stopped. The same command goes on from {request.work}", markup=False, highlight=False)
        raise typer.Exit(130) from None
    _show(database_facts(database, str(request.out)), json)


@app.command()
def info(
    database: Annotated[Path | None, typer.Argument(help="Database file.", show_default="the built-in one")] = None,
    kind: Annotated[str, typer.Option(help="Kind of the built-in database to show.")] = "sift",
    json: Json = False,
) -> None:
    """Show where a database comes from, its size and its digest. Verifies the file.

    Example: featveil database info my.safetensors
    """
    from featveil.databases import builtin, load_database

    if database is None:
        _show(database_facts(builtin(kind), f"built-in {kind}"), json)
    else:
        _show(database_facts(load_database(database), str(database)), json)


def _show(facts: dict[str, Any], json: bool) -> None:
    card = facts["card"]
    about = {key: value for key, value in card.items() if key not in ("recipe", "kind")}
    rows: list[tuple[object, ...]] = [*((key, value) for key, value in facts.items() if key != "card"), *about.items()]
    if isinstance(recipe := card.get("recipe", {}), dict):
        rows += [(f"recipe {key}", value) for key, value in recipe.items()]
    # Plain lines and no table: a digest that is folded to the terminal's width cannot be compared or searched for.
    text = "\n".join(f"{_plain(key).replace('_', ' '):24}{_plain(value)}" for key, value in rows)
    show(facts, json, text)


def _plain(value: object) -> str:
    """Text of a stranger's file, on one line and without control characters for the terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(value))


@contextmanager
def _stages() -> Iterator[Callable[[str, int, int], None]]:
    """One progress bar for each stage, opened when the stage begins."""
    with ExitStack() as bars:
        current: dict[str, Callable[[int, int], None]] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in current:
                bars.close()
                current[stage] = bars.enter_context(progress(stage))
            current[stage](done, total)

        yield report
