"""Command line -> one public function: one file per verb. A command's module is imported when it is run."""

import sys
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from featveil.cli.console import complain, drop, show_warnings
from featveil.core.errors import FeatveilError

# Where each command is, and the first sentence of its help, so that `featveil --help` imports none of them.
COMMANDS = {
    "extract": ("extract:extract", "Extract raw features. They show what the image shows: keep them on this device."),
    "privatize": (
        "privatize:privatize",
        "Hide descriptors so that they still match. Randomness is the operating system's, or that of the pool's"
        " secret.",
    ),
    "match": ("match:match", "Match two images by the exact distances of their features, or by their words."),
    "map": (
        "map:map_images",
        "Build a map from private features: hide, match, verify, map. Needs the extra colmap.",
    ),
    "sketch": ("sketch:app", "Sketches of maps: what a device needs to send only what the map knows already."),
    "localize": (
        "localize:localize",
        "Find where private queries were taken, in a map of raw or private features. Needs the extra colmap.",
    ),
    "retrieve": (
        "localize:retrieve",
        "Find the images of a map that see what gated queries see. Needs the extra colmap.",
    ),
    "attack": (
        "attack:attack",
        "Try to recover the descriptors behind private features, and say how near the guesses come.",
    ),
    "invert": (
        "invert:invert",
        "Paint what features show, with a trained network: what an attacker sees who has them.",
    ),
    "audit": (
        "audit:audit",
        "How well features still match, and how much attacks get back: all defenses, all attacks, on your own images.",
    ),
    "demo": (
        "demo:demo",
        "Match two images raw and privately, attack what was sent, and explain it all on one page.",
    ),
    "database": (
        "database:app",
        "Build and inspect databases of public descriptors: what lifting draws from, or a codebook of words.",
    ),
    "subset": (
        "subset:app",
        "Choose epsilon and the number of words of the subset mechanism, and check the sampler that ships.",
    ),
    "face": ("face:app", "Enroll, verify and identify people by private face templates."),
    "ledger": ("ledger:app", "Set privacy budgets, and show what releases have spent of them."),
    "pool": ("pool:app", "Keep descriptors that only this device has, to hide others among."),
    "patches": ("patches:app", "Build sets of matching patches, to train and to measure descriptors."),
    "train": ("train:app", "Train networks: inverters that attack, concealers that defend."),
    "bench": ("bench:app", "Measure how well private features match, and how fast."),
}

# Click's UsageError; newer versions of typer carry their own copy of click, so it cannot be imported by name.
_UsageError: Any = typer.BadParameter.__bases__[0]


class Commands(TyperGroup):
    """The commands; a user's mistake ends in one line on stderr and an exit code, never in a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except FeatveilError as error:
            complain("error", error)
            raise typer.Exit(error.exit_code) from None
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


class LazyCommands(Commands):
    """The commands of the table; one is imported when it is run or shows its own help."""

    def __init__(self, **facts: Any) -> None:
        super().__init__(**facts)
        self.commands = {name: TyperCommand(name, help=summary) for name, (_, summary) in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command itself."""
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed if name is None else load_command(name), rest


@cache
def load_command(name: str) -> Any:
    """The command called `name`, of which everything is imported that its help needs."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    target = getattr(import_module(f"featveil.cli.{module}"), attribute)
    if isinstance(target, typer.Typer):
        return get_group(target)
    alone = typer.Typer(add_completion=False)
    alone.command(name)(target)
    return get_command(alone)


app = typer.Typer(
    cls=LazyCommands,
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


def main() -> None:
    """Run the command."""
    app(prog_name="featveil")
