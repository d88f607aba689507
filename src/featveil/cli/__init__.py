"""Command line -> one public function: one file per verb. Heavy imports wait until a command runs."""

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from featveil.cli import (
    attack,
    audit,
    bench,
    database,
    demo,
    extract,
    face,
    invert,
    ledger,
    localize,
    match,
    patches,
    pool,
    privatize,
    subset,
    train,
    train_concealer,
)
from featveil.cli import map as mapping
from featveil.cli.console import complain, drop, show_warnings
from featveil.core.errors import FeatveilError

# Click's UsageError; newer versions of typer carry their own copy of click, so it cannot be imported by name.
_UsageError: Any = typer.BadParameter.__bases__[0]


class Commands(TyperGroup):
    """The commands; a user's mistake ends in one line on stderr and exit code 2, never in a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except FeatveilError as error:
            complain("error", error)
            raise typer.Exit(2) from None
        except _UsageError as error:
            if type(error).__name__ == "NoArgsIsHelpError":
                raise
            path = error.ctx.command_path if error.ctx else "featveil"
            complain("error", f"{error.format_message()} See: {path} --help")
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            complain("stopped", "nothing was left half-written")
            raise typer.Exit(130) from None
        except BrokenPipeError:
            drop(sys.stdout)  # the reader (`| head`) has left
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=Commands,
    name="featveil",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from featveil import __version__

        typer.echo(f"featveil {__version__}")
        raise typer.Exit


@app.callback()
def featveil(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Image features that still match but no longer show what they saw.

    Example: featveil demo
    """
    show_warnings()


app.command()(extract.extract)
app.add_typer(database.app, name="database")
app.command()(privatize.privatize)
app.command()(match.match)
app.command("map")(mapping.map_images)
app.command()(localize.localize)
app.command()(attack.attack)
app.command()(invert.invert)
app.command()(audit.audit)
app.add_typer(subset.app, name="subset")
app.add_typer(face.app, name="face")
app.add_typer(ledger.app, name="ledger")
app.add_typer(pool.app, name="pool")
app.add_typer(patches.app, name="patches")
train.app.command("concealer")(train_concealer.concealer)
app.add_typer(train.app, name="train")
app.add_typer(bench.app, name="bench")
app.command()(demo.demo)


def main() -> None:
    """Entry point of the `featveil` command."""
    app()
